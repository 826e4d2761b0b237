"use strict";
// Shows what the server plays. Each run has a socket of its own; the controls at the top speak to all of them.

const setup = JSON.parse(document.getElementById("setup").textContent);
const byId = (id) => document.getElementById(id);
const root = document.documentElement;

const PALETTES = { // Okabe and Ito's colours, which colour-blind people can tell apart; lighter ones on dark ground
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#39424e"],
  dark: ["#56a9e8", "#ff8a3d", "#2cc79b", "#e59dc8", "#f2bb3d", "#8fd4fb", "#e4e9ef"],
};
const DASHES = [[], [7, 4], [2, 3]];
const KEPT = 2000; // points of a time line, as many as the server keeps
const SHRINK = 0.04; // share by which an axis that is too wide shrinks in each frame

let colours = {};
function readColours() {
  const style = getComputedStyle(root);
  colours = { lines: PALETTES[root.dataset.theme] };
  for (const name of ["ink", "soft", "line", "accent", "band", "card", "good", "bad"]) {
    colours[name] = style.getPropertyValue("--" + name).trim();
  }
}
function setTheme(theme) {
  root.dataset.theme = theme;
  readColours();
  runs.forEach((run) => { run.buildActions(); run.redraw(); run.drawLearning(); });
}
const colourOf = (action) => colours.lines[action % colours.lines.length];
const dashOf = (action) => DASHES[Math.floor(action / colours.lines.length) % DASHES.length];

// A number with so many decimals, commas between thousands, and a minus sign instead of a hyphen.
function fixed(value, digits) {
  const words = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return words.replace("-", /[1-9]/.test(words) ? "−" : "");
}
function ordinal(number) {
  const last = number % 100 > 10 && number % 100 < 14 ? 0 : number % 10;
  return number + (["", "st", "nd", "rd"][last] || "th");
}
function formatted(value, whole = false) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (whole && Number.isInteger(value) && size < 1e6) return fixed(value, 0);
  if (size >= 1e5) return value.toExponential(1).replace("-", "−");
  return fixed(value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 || size === 0 ? 2 : size >= 0.01 ? 3 : 4);
}
function tickText(value, step) {
  if (Math.abs(value) < step / 1e6) return "0";
  if (Math.abs(value) >= 1e6) return (value / 1e6).toLocaleString("en").replace("-", "−") + "M";
  if (Math.abs(value) >= 1e4) return (value / 1e3).toLocaleString("en").replace("-", "−") + "k";
  return fixed(value, Math.max(0, Math.min(5, -Math.floor(Math.log10(step) + 1e-9))));
}
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step) found.push(value);
  return { found, step };
}

// A canvas in CSS pixels, sharp on every screen, with one plotting area.
class Plot {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
  }
  begin(left, right, top, bottom) {
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight, ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.pen.clearRect(0, 0, width, height);
    this.pen.font = "11px system-ui, sans-serif";
    Object.assign(this, { width, height, x0: left, x1: width - right, y0: height - bottom, y1: top });
  }
  scale(xLow, xHigh, yLow, yHigh) {
    this.x = (value) => this.x0 + (value - xLow) / (xHigh - xLow || 1) * (this.x1 - this.x0);
    this.y = (value) => this.y0 - (value - yLow) / (yHigh - yLow || 1) * (this.y0 - this.y1);
    this.limits = [xLow, xHigh, yLow, yHigh];
  }
  text(words, x, y, align = "left", colour = colours.soft) {
    this.pen.fillStyle = colour;
    this.pen.textAlign = align;
    this.pen.textBaseline = "middle";
    this.pen.fillText(words, x, y);
  }
  rule(x0, y0, x1, y1, colour = colours.line, width = 1, dash = []) {
    this.pen.strokeStyle = colour;
    this.pen.lineWidth = width;
    this.pen.setLineDash(dash);
    this.pen.beginPath();
    this.pen.moveTo(x0, y0);
    this.pen.lineTo(x1, y1);
    this.pen.stroke();
    this.pen.setLineDash([]);
  }
  axes(xTicks, yTicks, asText) {
    const [xLow, xHigh, yLow, yHigh] = this.limits;
    const rows = ticks(yLow, yHigh, yTicks), columns = ticks(xLow, xHigh, xTicks);
    for (const value of rows.found) {
      this.rule(this.x0, this.y(value), this.x1, this.y(value));
      this.text(asText ? asText(value, rows.step) : tickText(value, rows.step), this.x0 - 6, this.y(value), "right");
    }
    for (const value of columns.found) {
      const align = this.x(value) > this.x1 - 14 ? "right" : this.x(value) < this.x0 + 4 ? "left" : "center";
      this.text(tickText(value, columns.step), this.x(value), this.y0 + 11, align);
    }
    this.rule(this.x0, this.y0, this.x1, this.y0, colours.soft);
  }
  line(points, colour, width, dash = [], alpha = 1) {
    const pen = this.pen;
    pen.save();
    pen.beginPath();
    pen.rect(this.x0, this.y1 - 3, this.x1 - this.x0, this.y0 - this.y1 + 6);
    pen.clip();
    pen.globalAlpha = alpha;
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.lineJoin = "round";
    pen.setLineDash(dash);
    pen.beginPath();
    points.forEach(([x, y], index) => index ? pen.lineTo(this.x(x), this.y(y)) : pen.moveTo(this.x(x), this.y(y)));
    pen.stroke();
    pen.restore();
  }
  band(xLow, xHigh, yLow, yHigh, colour) {
    this.pen.fillStyle = colour;
    const left = this.x(xLow), top = Math.max(this.y(yHigh), this.y1), bottom = Math.min(this.y(yLow), this.y0);
    this.pen.fillRect(left, top, this.x(xHigh) - left, Math.max(bottom - top, 1));
  }
}

// The limits of an axis: they widen at once and shrink slowly, so that curves can be followed.
class Limits {
  update(low, high) {
    const margin = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    low -= margin; high += margin;
    if (this.low === undefined) [this.low, this.high] = [low, high];
    this.low = low < this.low ? low : this.low + (low - this.low) * SHRINK;
    this.high = high > this.high ? high : this.high + (high - this.high) * SHRINK;
  }
}

const VERBS = { loading: "connecting", waiting: "waiting", playing: "playing", paused: "paused", error: "error", lost: "disconnected" };

class Run {
  constructor(number, name) {
    this.number = number;
    this.element = byId("run").content.cloneNode(true).querySelector("article");
    byId("runs").append(this.element);
    this.find = (selector) => this.element.querySelector(selector);
    this.find(".name").textContent = name;
    this.picture = new Plot(this.find(".picture"));
    this.timeline = new Plot(this.find(".timeline"));
    this.curvesPlot = new Plot(this.find(".curves"));
    this.learning = [...this.element.querySelectorAll("[data-curve]")].map((canvas) => new Plot(canvas));
    this.points = [];
    this.status = { actions: [], state: "loading", risk: {} };
    this.returns = new Limits();
    this.live = null; this.past = null; this.shown = null; this.lookingAt = null;
    this.frames = 0;
    const timeline = this.timeline.canvas;
    timeline.addEventListener("pointermove", (event) => this.point(event));
    timeline.addEventListener("pointerdown", (event) => this.point(event));
    timeline.addEventListener("pointerleave", () => this.lookAt(null));
    this.find(".audit").addEventListener("click", () => this.askForAudit());
    new ResizeObserver(() => { this.redraw(); this.drawLearning(); }).observe(this.element);
    this.connect();
  }

  connect() {
    const socket = new WebSocket(`ws://${location.host}/watch/${this.number}?token=${encodeURIComponent(setup.token)}`);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => { this.points = []; this.live = null; if (document.hidden) this.send({ type: "visible", value: false }); };
    socket.onmessage = (event) => typeof event.data === "string" ? this.tell(JSON.parse(event.data)) : this.receive(event.data);
    socket.onclose = (event) => {
      if (this.lookingAt !== null) this.lookAt(null);
      this.setState("lost");
      const known = { 1008: `The server closed the connection: ${event.reason}.`, 1013: "The server has closed the connection: too many pages are open." };
      this.say(known[event.code] || "The server has stopped or cannot be reached. This page connects again by itself; if monotau watch was started again, open the address that it prints.");
      setTimeout(() => this.connect(), 1000);
    };
  }

  send(request) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(request));
  }

  tell(message) {
    if (message.type === "status") this.setStatus(message);
    if (message.type === "curves") {
      this.curves = message.curves;
      this.find(".learning").hidden = !Object.keys(this.curves).length; // a saved agent has no metrics
      this.drawLearning();
    }
    if (message.type === "audit") this.showAudit(message);
    if (message.type === "gone") { this.lookPending = false; this.lookAt(null); }
    if (message.type === "points" && message.points.length) {
      const first = message.points[0];
      // A new episode begins at step 0; a page that connects late may join in the middle of one.
      const episodes = message.points.findLastIndex((point) => point[1] === 0);
      if (episodes >= 0) {
        if (this.lookingAt !== null) this.lookAt(null); // the time line is now that of the new episode
        this.points = message.points.slice(episodes);
      }
      else if (!this.points.length || first[0] > this.points[this.points.length - 1][0]) this.points.push(...message.points);
      if (this.points.length > KEPT) this.points.splice(0, this.points.length - KEPT);
    }
  }

  setStatus(status) {
    const renamed = status.actions.join("\n") !== this.status.actions.join("\n");
    this.status = status;
    this.find(".about").textContent = [[status.preset, status.env].filter(Boolean).join(" on "), status.agent].filter(Boolean).join(" · ");
    const progress = this.find(".progress");
    progress.classList.toggle("training", status.training);
    this.progressText();
    if (renamed) this.buildActions();
    this.setState(status.state);
    this.say(status.message);
    if (status.state === "waiting") this.veil("The run has not saved a checkpoint yet. Play begins with the first one.");
    else if (status.state === "error") this.veil("The episode cannot go on. Start a new one, or look at the message above.");
    else if (!this.shown) this.veil("Loading");
    showControls(status);
    this.redraw();
  }

  progressText() {
    const steps = this.curves ? Math.max(0, ...Object.values(this.curves).flatMap((series) => Object.values(series).map((points) => points.length ? points[points.length - 1][0] : 0))) : 0;
    const at = steps ? ` · step ${fixed(steps, 0)}` : "";
    this.find(".progress").textContent = this.status.training ? `training${at}` : this.status.finished ? "" : `interrupted${at}`;
  }

  setState(state) {
    this.element.dataset.state = state;
    this.find(".state").textContent = this.lookingAt !== null && state !== "lost" ? "looking back" : VERBS[state];
  }

  say(words) {
    this.find(".banner").hidden = !words;
    this.find(".banner").textContent = words;
  }

  veil(words) {
    this.find(".veil").classList.toggle("on", Boolean(words));
    if (words) this.find(".veil p").textContent = words;
  }

  async receive(buffer) {
    const tag = String.fromCharCode(...new Uint8Array(buffer, 0, 4)), length = new DataView(buffer).getUint32(4, true);
    const moment = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
    const start = 8 + length, count = moment.rows * moment.columns;
    const numbers = new Float32Array(buffer, start, count);
    const bins = moment.columns - moment.fractions - 4;
    moment.actions = Array.from({ length: moment.rows }, (_, row) => {
      const offset = row * moment.columns, rest = offset + moment.fractions + bins;
      return {
        quantiles: numbers.subarray(offset, offset + moment.fractions), density: numbers.subarray(offset + moment.fractions, rest),
        mean: numbers[rest], cvar: numbers[rest + 1], score: numbers[rest + 2], bonus: numbers[rest + 3],
      };
    });
    const image = buffer.byteLength > start + 4 * count ? new Blob([new Uint8Array(buffer, start + 4 * count)], { type: "image/png" }) : null;
    moment.bitmap = image ? await createImageBitmap(image) : null;
    if (tag === "LOOK") {
      this.lookPending = false;
      if (this.lookingAt === null) moment.bitmap?.close();
      else { this.keep("past", moment); this.redraw(); }
      if (this.lookingAt !== null && this.lookingAt !== moment.at) this.askForPast();
      return;
    }
    this.keep("live", moment);
    const point = this.points[this.points.length - 1];
    if (point && point[0] === moment.at) point[4] = moment.action ?? -1; // the choice may have changed since
    requestAnimationFrame(() => {
      this.redraw();
      this.send({ type: "drawn", value: moment.at });
      this.frames += 1;
      // The next frame begins when this one is on the screen.
      requestAnimationFrame(() => {
        latencies.push(performance.timeOrigin + performance.now() - moment.time * 1000);
        if (latencies.length > 400) latencies.shift();
      });
    });
  }

  keep(place, moment) {
    if (this[place] && this[place].bitmap) this[place].bitmap.close();
    this[place] = moment;
  }

  point(event) {
    if (!this.points.length || !this.timeline.x) return;
    const box = this.timeline.canvas.getBoundingClientRect(), [low, high] = this.timeline.limits;
    const share = (event.clientX - box.left - this.timeline.x0) / (this.timeline.x1 - this.timeline.x0);
    const step = Math.round(low + share * (high - low));
    const nearest = this.points.reduce((best, point) => Math.abs(point[1] - step) < Math.abs(best[1] - step) ? point : best);
    this.lookAt(nearest[0]);
  }

  lookAt(at) {
    this.lookingAt = at;
    if (at === null) { this.keep("past", null); this.setState(this.status.state); this.redraw(); return; }
    this.setState(this.status.state);
    this.askForPast();
  }

  askForPast() {
    if (this.lookPending) return; // one question at a time; the answer asks again if the pointer has moved on
    this.lookPending = true;
    this.send({ type: "look", value: this.lookingAt });
  }

  askForAudit() {
    if (this.shown && this.shown.actions.length) this.send({ type: "audit", value: this.shown.at });
  }

  showAudit(audit) {
    this.audit = audit;
    // The page may have gone on by a step before the server paused.
    if (this.lookingAt === null && this.live && this.live.at !== audit.at) this.lookAt(audit.at);
    else this.redraw();
  }

  // The measured returns of the state that is shown, if there are any.
  auditOf(moment) {
    return this.audit && moment && moment.actions.length && this.audit.at === moment.at ? this.audit : null;
  }

  lookBy(count) {
    if (!this.points.length) return false;
    const newest = this.points[this.points.length - 1][0], oldest = this.points[0][0];
    const at = (this.lookingAt ?? newest) + count;
    this.lookAt(at >= newest ? null : Math.max(at, oldest));
    return true;
  }

  redraw() {
    const moment = this.lookingAt !== null && this.past ? this.past : this.live;
    this.shown = moment;
    this.drawPicture(moment);
    this.drawTimeline(moment);
    this.drawCurves(moment);
    this.fillFacts(moment);
    this.fillActions(moment);
    this.fillMeasured(moment);
  }

  drawPicture(moment) {
    const plot = this.picture;
    plot.begin(0, 0, 0, 0);
    const badge = this.find(".badge");
    badge.hidden = this.lookingAt === null || !moment;
    if (!moment) return;
    if (this.lookingAt !== null) badge.textContent = `looking back · step ${fixed(moment.step, 0)}`;
    if (moment.bitmap) {
      const factor = Math.min(plot.width / moment.bitmap.width, plot.height / moment.bitmap.height);
      const fill = (side, whole) => whole - side < 3 ? whole : side; // no hairline beside a picture that almost fits
      const width = fill(moment.bitmap.width * factor, plot.width), height = fill(moment.bitmap.height * factor, plot.height);
      plot.pen.imageSmoothingEnabled = moment.bitmap.width > 320;
      plot.pen.drawImage(moment.bitmap, (plot.width - width) / 2, (plot.height - height) / 2, width, height);
    }
    if (["playing", "paused"].includes(this.element.dataset.state)) {
      const over = { terminated: "The episode is over", truncated: "Cut off by the time limit" }[moment.ended];
      this.veil(over ? `${over} after ${fixed(moment.step, 0)} ${moment.step === 1 ? "step" : "steps"}: score ${formatted(moment.score, true)}` : this.status.picture_note ? `No picture: ${this.status.picture_note}.` : "");
    }
  }

  drawTimeline(moment) {
    const plot = this.timeline;
    plot.begin(44, 8, 6, 30);
    if (!moment || !this.points.length) return;
    const points = this.points, [low, high] = moment.start.interval;
    let least = Math.min(low, moment.start.mean), most = Math.max(high, moment.start.mean);
    for (const point of points) { least = Math.min(least, point[2], point[3]); most = Math.max(most, point[2], point[3]); }
    const margin = (most - least) * 0.08 || Math.abs(most) * 0.1 || 1, first = points[0][1];
    const last = points[points.length - 1][1], room = Math.max(20, 10 * Math.ceil((last - first) * 1.04 / 10));
    plot.scale(first, first + room, least - margin, most + margin);
    plot.band(first, first + room, low, high, colours.band);
    plot.axes(5, 4);
    plot.rule(plot.x0, plot.y(moment.start.mean), plot.x1, plot.y(moment.start.mean), colours.accent, 1.2, [4, 4]);
    plot.line(points.map((point) => [point[1], point[3]]), colours.bad, 1.6, [5, 3]);
    plot.line(points.map((point) => [point[1], point[2]]), colours.ink, 2.2);
    const width = Math.max((plot.x1 - plot.x0) / room, 1);
    for (const point of points) {
      if (point[4] < 0) continue;
      plot.pen.fillStyle = colourOf(point[4]);
      plot.pen.fillRect(plot.x(point[1]), plot.y0 + 20, width + 0.4, 7);
    }
    plot.text("action", plot.x0 - 6, plot.y0 + 23, "right");
    const here = moment === this.past ? moment.step : last;
    plot.rule(plot.x(here), plot.y1, plot.x(here), plot.y0 + 27, moment === this.past ? colours.ink : colours.soft, moment === this.past ? 1.5 : 1);
  }

  drawCurves(moment) {
    const plot = this.curvesPlot;
    plot.begin(50, 0, 10, 34);
    const source = moment && moment.actions.length ? moment : this.lastThought;
    if (!source) { plot.text("no prediction yet", plot.width / 2, plot.height / 2, "center"); return; }
    if (moment && moment.actions.length && moment !== this.past) this.lastThought = { ...moment, bitmap: null };
    const fade = moment && moment.actions.length ? 1 : 0.35; // after the end of an episode there is nothing to predict
    let least = Infinity, most = -Infinity;
    for (const action of source.actions) {
      for (const value of action.quantiles) { least = Math.min(least, value); most = Math.max(most, value); }
    }
    const audit = this.auditOf(moment);
    for (const row of audit ? audit.rows : []) {
      for (const value of row.returns) { least = Math.min(least, value); most = Math.max(most, value); }
    }
    this.returns.update(least, most);
    const { low, high } = this.returns, split = Math.round(plot.width * 0.66), many = source.actions.length > 6;
    plot.x1 = split - 14;
    plot.scale(0, 1, low, high);
    const risk = this.status.risk || {};
    if (risk.kind === "upper-cvar") plot.band(1 - risk.alpha, 1, low, high, colours.band);
    else plot.band(0, source.alpha, low, high, colours.band);
    plot.axes(5, 7);
    plot.text("fraction τ", (plot.x0 + plot.x1) / 2, plot.y0 + 26, "center");
    const share = risk.kind === "upper-cvar" ? risk.alpha : source.alpha;
    const words = `${risk.kind === "upper-cvar" ? "best" : "worst"} ${Math.round(share * 100)} %`;
    const wide = plot.pen.measureText(words).width;
    const band = risk.kind === "upper-cvar" ? Math.min(plot.x(1 - share), plot.x1 - wide - 4) : plot.x0 + 4;
    plot.text(words, band, plot.y1 + 6, "left");
    const order = source.actions.map((_, action) => action).sort((a, b) => (a === source.action) - (b === source.action));
    const count = source.fractions;
    for (const number of order) {
      const action = source.actions[number], chosen = number === source.action;
      const forbidden = source.allowed && !source.allowed[number];
      const curve = Array.from(action.quantiles, (value, index) => [(index + 0.5) / count, value]);
      const alpha = (forbidden ? 0.2 : chosen ? 1 : many ? 0.6 : 0.85) * fade;
      plot.line([[0, curve[0][1]], ...curve, [1, curve[count - 1][1]]], colourOf(number), chosen ? 3.6 : many ? 1.3 : 1.8, dashOf(number), alpha);
    }
    for (const row of audit ? audit.rows : []) {
      row.returns.forEach((value, rank) => this.dot(plot, (rank + 0.5) / row.returns.length, value, colourOf(row.action), row.action === source.action ? 3 : 2));
    }
    const left = split + 4, right = plot.width - 8;
    let peak = 0;
    for (const action of source.actions) for (const mass of action.density) peak = Math.max(peak, mass);
    this.peak = Math.max(peak, (this.peak || peak) * (1 - SHRINK));
    plot.rule(left, plot.y1, left, plot.y0, colours.soft);
    for (const number of order) {
      const action = source.actions[number], chosen = number === source.action, bins = action.density.length;
      const forbidden = source.allowed && !source.allowed[number], pen = plot.pen;
      pen.save();
      pen.beginPath();
      pen.rect(left, plot.y1 - 2, right - left + 8, plot.y0 - plot.y1 + 4);
      pen.clip();
      pen.globalAlpha = (forbidden ? 0.2 : chosen ? 1 : many ? 0.6 : 0.85) * fade;
      pen.strokeStyle = pen.fillStyle = colourOf(number);
      pen.lineWidth = chosen ? 2.6 : many ? 1.1 : 1.6;
      pen.setLineDash(dashOf(number));
      pen.beginPath();
      pen.moveTo(left, plot.y(source.low));
      action.density.forEach((mass, bin) => pen.lineTo(left + mass / this.peak * (right - left) * 0.94, plot.y(source.low + (bin + 0.5) / bins * (source.high - source.low))));
      pen.lineTo(left, plot.y(source.high));
      pen.stroke();
      if (chosen) { pen.globalAlpha = 0.16 * fade; pen.fill(); }
      pen.restore();
      pen.globalAlpha = fade;
      this.marker(plot, left, plot.y(action.mean), colourOf(number), chosen ? 6 : 4);
      pen.globalAlpha = 1;
    }
    plot.text("density   ▸ mean", (left + right) / 2, plot.y0 + 26, "center");
    if (this.status.gamma !== null) plot.text(`return discounted by ${this.status.gamma}${this.status.clip ? `, rewards clipped at ±${this.status.clip}` : ""}`, plot.x0 + 4, plot.y0 - 8);
  }

  // A measured return, with a rim that sets it off from the curve under it.
  dot(plot, fraction, value, colour, size) {
    const pen = plot.pen;
    pen.beginPath();
    pen.arc(plot.x(fraction), plot.y(value), size, 0, 7);
    pen.fillStyle = colour;
    pen.fill();
    pen.lineWidth = 1;
    pen.strokeStyle = colours.card;
    pen.stroke();
  }

  fillMeasured(moment) {
    const audit = this.auditOf(moment), share = this.status.audited_share, button = this.find(".audit");
    button.disabled = !moment || !moment.actions.length || share !== null;
    const line = this.find(".measured");
    if (share !== null && share !== undefined) { line.textContent = `Measuring: ${Math.round(share * 100)} % of the rollouts.`; return; }
    if (!audit) { line.textContent = "\u00a0"; return; }
    const chosen = audit.rows.find((row) => row.action === moment.action);
    const said = chosen && chosen.mean !== null
      ? ` ${this.status.actions[chosen.action]}: mean ${formatted(chosen.mean)} ± ${formatted(chosen.error)}, predicted ${formatted(moment.actions[chosen.action].mean)}.`
      : " The rollouts of the chosen action were cut off before rewards stopped counting.";
    line.textContent = `Dots: returns of ${audit.rollouts} rollouts of each action.${said}`;
  }

  marker(plot, x, y, colour, size) {
    if (y < plot.y1 || y > plot.y0) return;
    const pen = plot.pen;
    pen.fillStyle = colour;
    pen.beginPath();
    pen.moveTo(x - size - 2, y - size * 0.8);
    pen.lineTo(x, y);
    pen.lineTo(x - size - 2, y + size * 0.8);
    pen.fill();
  }

  buildActions() {
    const names = this.status.actions, area = this.find(".actions"), columns = names.length > 8 ? 2 : 1;
    area.replaceChildren();
    area.classList.toggle("many", columns === 2);
    this.rows = [];
    const each = Math.ceil(names.length / columns);
    for (let start = 0; start < names.length; start += each) {
      const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
      for (const words of ["action", "mean", "CVaR", "bonus"]) {
        const cell = document.createElement("th");
        cell.textContent = words;
        head.append(cell);
      }
      for (let action = start; action < Math.min(start + each, names.length); action += 1) {
        const row = body.insertRow(), name = row.insertCell();
        const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), line = document.createElementNS("http://www.w3.org/2000/svg", "line");
        svg.setAttribute("viewBox", "0 0 26 10");
        for (const [key, value] of Object.entries({ x1: 1, x2: 25, y1: 5, y2: 5, stroke: colourOf(action), "stroke-width": 3.4, "stroke-dasharray": dashOf(action).join(" ") })) line.setAttribute(key, value);
        svg.append(line);
        name.append(svg, names[action]);
        name.title = names[action];
        const cells = [row.insertCell(), row.insertCell(), row.insertCell()], bar = document.createElement("i");
        const bonus = document.createElement("span");
        cells[2].className = "bar";
        cells[2].append(bonus, bar);
        this.rows.push({ row, cells: [cells[0], cells[1], bonus], bar, head: head.cells });
      }
      area.append(table);
    }
  }

  fillActions(moment) {
    const source = moment && moment.actions.length ? moment : this.lastThought;
    if (!source || !this.rows || this.rows.length !== source.actions.length) return;
    const bonuses = source.actions.map((action) => action.bonus), largest = Math.max(...bonuses.filter(Number.isFinite), 1e-12);
    const { kind, alpha, eta } = this.status.risk, other = kind !== "mean" && kind !== "cvar"; // shown in place of CVaR
    const title = other ? `${kind.replace("cvar", "CVaR")} ${alpha ? `${Math.round(alpha * 100)} %` : formatted(eta)}` : `CVaR ${Math.round(source.alpha * 100)} %`;
    this.rows.forEach((row, number) => {
      const action = source.actions[number];
      row.head[1].classList.toggle("decides", kind === "mean");
      row.head[2].classList.toggle("decides", kind !== "mean");
      row.head[2].textContent = title;
      [action.mean, other ? action.score : action.cvar, action.bonus].forEach((value, index) => { row.cells[index].textContent = formatted(value); });
      row.bar.style.transform = `scaleX(${Number.isFinite(action.bonus) ? Math.max(action.bonus / largest, 0) : 0})`;
      row.row.classList.toggle("chosen", Boolean(moment && moment.actions.length) && number === source.action);
      row.row.classList.toggle("forbidden", Boolean(source.allowed && !source.allowed[number]));
    });
  }

  fillFacts(moment) {
    if (!moment) return;
    this.find(".f-step").textContent = fixed(moment.step, 0);
    this.find(".f-score").textContent = formatted(moment.score, true);
    this.find(".f-discounted").textContent = formatted(moment.discounted);
    const action = this.find(".f-action"), random = moment.action !== moment.best;
    action.textContent = moment.action === undefined ? "–" : this.status.actions[moment.action] + (random ? " (random)" : "");
    action.style.setProperty("--swatch", moment.action === undefined ? "transparent" : colourOf(moment.action));
    const [low, high] = moment.start.interval, verdict = this.find(".verdict"), strong = document.createElement("b");
    const place = moment.below >= 1 ? "above the whole predicted range" : moment.below <= 0 ? "below the whole predicted range" : `at the ${ordinal(Math.round(moment.below * 100))} percentile of the prediction`;
    strong.textContent = moment.ended === "terminated" ? `It came to ${formatted(moment.discounted)}` : `Now expected: ${formatted(moment.expected)}`;
    verdict.replaceChildren(`Predicted at the start: ${formatted(moment.start.mean)}, 90 % interval ${formatted(low)} to ${formatted(high)}. `, strong, `, ${place}.`);
  }

  drawLearning() {
    for (const plot of this.learning) {
      const name = plot.canvas.dataset.curve, series = this.curves ? this.curves[name] : null;
      const isShare = name === "crossing" || name === "dead_features";
      const main = series ? series[{ return: "eval.return_mean" }[name] || Object.keys(series)[0]] : [];
      const out = plot.canvas.parentElement.querySelector("output");
      const percent = (value) => `${formatted(value * 100)} %`;
      out.textContent = main.length ? (isShare ? percent : formatted)(main[main.length - 1][1]) : "";
      plot.begin(isShare ? 46 : 42, 8, 6, 20);
      const all = series ? Object.values(series).flat() : [];
      if (!all.length) { plot.text(this.curves ? "not measured in this run" : "no metrics yet", plot.width / 2, plot.height / 2, "center"); continue; }
      let [xHigh, low, high] = [1, Infinity, -Infinity];
      for (const [x, y] of all) { xHigh = Math.max(xHigh, x); low = Math.min(low, y); high = Math.max(high, y); }
      if (isShare || name === "bonus") low = Math.min(low, 0);
      const margin = (high - low) * 0.06 || (isShare ? 0.01 : Math.abs(high) * 0.1 || 1);
      plot.scale(0, xHigh, isShare || name === "bonus" ? low : low - margin, high + margin);
      plot.axes(3, 3, isShare ? (value, step) => tickText(value * 100, step * 100) + " %" : undefined);
      if (name === "return") {
        const lower = series["eval.return_min"], upper = series["eval.return_max"], pen = plot.pen;
        if (lower.length && lower.length === upper.length) {
          pen.fillStyle = colours.band;
          pen.beginPath();
          upper.forEach(([x, y]) => pen.lineTo(plot.x(x), plot.y(y)));
          [...lower].reverse().forEach(([x, y]) => pen.lineTo(plot.x(x), plot.y(y)));
          pen.fill();
        }
        plot.line(series["train.return_mean"], colours.soft, 1, [2, 2]);
      }
      plot.line(main, colours.accent, 2);
      if (main.length) {
        const [x, y] = main[main.length - 1];
        plot.pen.fillStyle = colours.accent;
        plot.pen.beginPath();
        plot.pen.arc(plot.x(x), plot.y(y), 3, 0, 7);
        plot.pen.fill();
      }
    }
    this.progressText();
  }
}

// Controls.

const RISKS = ["mean", "cvar", "upper-cvar", "wang", "power"];
const PARAMETERS = {
  cvar: { name: "alpha", min: 0.01, max: 1, start: 0.1 }, "upper-cvar": { name: "alpha", min: 0.01, max: 1, start: 0.1 },
  wang: { name: "eta", min: -2, max: 2, start: -0.75 }, power: { name: "eta", min: -4, max: 4, start: -2 },
};
const sendAll = (request) => runs.forEach((run) => run.send(request));
let playing = true;

function showControls(status) {
  playing = status.state !== "paused";
  byId("play").textContent = playing ? "Pause" : "Play";
  const set = (id, value) => { if (document.activeElement !== byId(id) && value !== null) byId(id).value = value; };
  set("speed", status.speed);
  byId("speed-out").textContent = `${status.speed} / s`;
  set("seed", status.seed);
  set("epsilon", status.epsilon ?? 0);
  byId("epsilon-out").textContent = (status.epsilon ?? 0).toFixed(status.epsilon && status.epsilon < 0.01 ? 3 : 2);
  byId("risk").value = status.risk.kind;
  showParameter(status.risk.kind, status.risk.alpha ?? status.risk.eta);
}
function showParameter(kind, value) {
  const about = PARAMETERS[kind];
  byId("parameter-field").classList.toggle("off", !about);
  if (!about) return;
  const slider = byId("parameter");
  byId("parameter-name").textContent = about.name;
  slider.min = about.min; slider.max = about.max;
  if (document.activeElement !== slider || slider.dataset.kind !== kind) slider.value = value ?? about.start;
  slider.dataset.kind = kind;
  byId("parameter-out").textContent = Number(slider.value).toFixed(2).replace("-", "−");
}
function sendRisk(kind, value) {
  const about = PARAMETERS[kind];
  sendAll(about ? { type: "risk", kind, [about.name]: Number(value ?? about.start) } : { type: "risk", kind });
}
function sendSeed() {
  const field = byId("seed");
  if (field.value && field.checkValidity()) sendAll({ type: "seed", value: Number(field.value) });
  else field.value = runs[0].status.seed;
}
function setSpeed(value) {
  byId("speed").value = value;
  sendAll({ type: "speed", value: Number(byId("speed").value) });
}
const actions = {
  play: () => sendAll({ type: playing ? "pause" : "play" }),
  step: () => sendAll({ type: "step" }),
  again: () => sendAll({ type: "again" }),
  next: () => sendAll({ type: "next" }),
  theme: () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"),
  help: () => { const list = byId("shortcuts"); if (list.open) list.close(); else list.showModal(); },
};
for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
byId("speed").addEventListener("input", () => setSpeed(byId("speed").value));
byId("epsilon").addEventListener("input", () => sendAll({ type: "epsilon", value: Number(byId("epsilon").value) }));
byId("seed").addEventListener("change", sendSeed);
byId("risk").addEventListener("change", () => sendRisk(byId("risk").value));
byId("parameter").addEventListener("input", () => sendRisk(byId("risk").value, byId("parameter").value));
document.addEventListener("visibilitychange", () => sendAll({ type: "visible", value: !document.hidden }));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || ["INPUT", "SELECT"].includes(event.target.tagName)) return;
  if (byId("shortcuts").open && event.key !== "?") return;
  const back = event.shiftKey ? -10 : -1;
  const keys = {
    " ": actions.play, n: actions.next, r: actions.again, t: actions.theme, "?": actions.help,
    ArrowLeft: () => runs.forEach((run) => run.lookBy(back)),
    ArrowRight: () => runs.some((run) => run.lookingAt !== null) ? runs.forEach((run) => run.lookingAt !== null && run.lookBy(-back)) : actions.step(),
    Escape: () => runs.forEach((run) => run.lookAt(null)),
    "+": () => setSpeed(Number(byId("speed").value) + 5), "=": () => setSpeed(Number(byId("speed").value) + 5), "-": () => setSpeed(Number(byId("speed").value) - 5),
    a: () => runs.forEach((run) => run.askForAudit()),
    m: () => sendRisk(RISKS[(RISKS.indexOf(byId("risk").value) + 1) % RISKS.length]),
  };
  const action = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action || (event.key === " " && event.target.tagName === "BUTTON")) return;
  event.preventDefault();
  action();
});

const latencies = [];
let runs = [];
root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
readColours();
byId("title").textContent = setup.runs.length === 1 ? "live view of a run" : `${setup.runs.length} runs side by side`;
document.title = `${setup.runs.join(", ")} – monotau watch`;
runs = setup.runs.map((name, number) => new Run(number, name));
