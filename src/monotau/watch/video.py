"""Films of an agent: the picture of the page, the environment beside the predicted returns, as MP4, WebM or GIF."""

import io
import itertools
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from PIL import Image

from monotau.distributions import Risk
from monotau.errors import ConfigError, StorageFault
from monotau.report.plotting import DASHES, LINE_COLOURS, label
from monotau.watch.messages import png
from monotau.watch.scene import TAUS, Moment, Player, densities
from monotau.watch.world import LARGEST_SEED

CODECS = {
    ".mp4": ("-c:v", "libx264", "-crf", "21", "-pix_fmt", "yuv420p", "-movflags", "+faststart"),
    ".webm": ("-c:v", "libvpx-vp9", "-crf", "32", "-b:v", "0", "-deadline", "realtime", "-cpu-used", "5"),
}
"""Arguments of ffmpeg for each format."""
SUFFIXES = (*CODECS, ".gif")
INCHES = (9.6, 4.2)
"""Size of the drawing, whose width in pixels is chosen."""
NARROWEST, WIDEST = 320, 3840
LAST_SECONDS = 1.0
"""How long the last moment of an episode is shown."""
LARGEST_PICTURE = 640
"""Width to which larger pictures of environments are reduced."""
GIF_COLOURS, SAMPLES = 64, 8
"""Colours of a GIF that are chosen from frames, and the number of these frames."""
TINTS = (1.0, 0.65, 0.4, 0.25, 0.15)
"""Strengths in which the palette of a GIF holds the colour of each action: lines are thin, faint, or edges of both."""
GIF_FASTEST = 50
"""Most frames per second of a GIF; browsers show shorter ones for a tenth of a second."""
MOST_NAMED = 8
"""Largest number of actions that are all named in the picture."""

Frame = UInt8[np.ndarray, "H W 3"]
Report = Callable[[int, int | None], None]
"""Called with the number of finished steps and of all steps, which may be unknown."""


@final
@dataclass(frozen=True)
class Take:
    """A moment of a film; its picture is kept compressed."""

    moment: Moment
    picture: bytes
    trail: int
    """Index of the first take of its episode."""


def film(
    player: Player, *, episodes: int, seed: int, most_steps: int, every_steps: int, report: Report = lambda *_: None
) -> list[Take]:
    """Play episodes, with consecutive seeds, and return every `every_steps`-th moment, the first and the last one.

    An episode is cut after `most_steps`.
    """
    takes: list[Take] = []
    played = 0
    for episode in range(episodes):
        moment, first = player.start((seed + episode) % (LARGEST_SEED + 1)), len(takes)
        while True:
            last = bool(moment.ended) or moment.step >= most_steps
            if last or moment.step % every_steps == 0:
                takes.append(Take(replace(moment, picture=None), _compressed(moment), first))
            report(played := played + 1, None)
            if last:
                break
            moment = player.advance()
    return takes


def _compressed(moment: Moment) -> bytes:
    if moment.picture is None:
        return b""
    if moment.picture.shape[1] <= LARGEST_PICTURE:
        return png(moment.picture)
    image = Image.fromarray(moment.picture)
    height = max(round(image.height * LARGEST_PICTURE / image.width), 1)
    return png(np.asarray(image.resize((LARGEST_PICTURE, height))))


@final
class Canvas:
    """Draws takes. What does not change is drawn once; the rest over a copy of it, which is several times as fast."""

    def __init__(self, takes: Sequence[Take], names: Sequence[str], title: str, risk: Risk, width: int) -> None:
        self._takes, self._names, self._risk = takes, names, risk
        self._figure = figure = Figure(figsize=INCHES, dpi=width / INCHES[0], facecolor="white")
        self._canvas = FigureCanvasAgg(figure)
        grid = figure.add_gridspec(
            2, 3, width_ratios=[4.6, 4.6, 2.0], height_ratios=[3, 1.15], left=0.055, right=0.985, top=0.83,
            bottom=0.115, wspace=0.2, hspace=0.28,
        )  # fmt: skip
        figure.text(0.012, 0.955, label(title, 90, 1), fontsize=11, weight="bold", va="center")
        self._stage, self._line = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0])
        self._curves = figure.add_subplot(grid[:, 1])
        self._shapes = figure.add_subplot(grid[:, 2], sharey=self._curves)
        self._moving: list[tuple[Any, Any]] = []  # axes (None: the figure) and artist
        self._draw_stage()
        self._draw_line()
        self._draw_curves()
        self._canvas.draw()
        self._still = self._canvas.copy_from_bbox(figure.bbox)

    def _moves(self, axes: Any, artist: Any) -> Any:
        artist.set_animated(True)
        self._moving.append((axes, artist))
        return artist

    def _draw_stage(self) -> None:
        stage = self._stage
        stage.set(xticks=[], yticks=[], facecolor="#11161d")
        for spine in stage.spines.values():
            spine.set_visible(False)
        first = _picture(self._takes[0])
        self._image = self._moves(stage, stage.imshow(first, interpolation="nearest" if first.shape[1] < 320 else None))
        if not self._takes[0].picture:
            stage.text(0.5, 0.5, "no picture", color="white", ha="center", va="center", transform=stage.transAxes)
            self._image.set_visible(False)
        self._caption = self._moves(None, self._figure.text(0.012, 0.895, "", fontsize=9, va="center", color="0.3"))

    def _draw_line(self) -> None:
        ax, moments = self._line, [take.moment for take in self._takes]
        numbers = [number for m in moments for number in (m.discounted, m.expected, *m.start.interval)]
        low, high = min(numbers), max(numbers)
        margin = 0.08 * (high - low) or 1.0
        last = max(max(m.step for m in moments), 1)
        ax.set(xlim=(0, last), ylim=(low - margin, high + margin))
        ax.tick_params(labelsize=7, length=2)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlabel("step", fontsize=7.5, labelpad=1)
        ax.set_title("return so far (black), with the rest as predicted (orange)", fontsize=7.5, pad=3, loc="left")
        self._band = self._moves(ax, ax.add_patch(Rectangle((0, 0), last, 1, color=LINE_COLOURS[0], alpha=0.15, lw=0)))
        self._start = self._moves(ax, ax.plot([0, last], [0, 0], ":", color=LINE_COLOURS[0], lw=1)[0])
        self._expected = self._moves(ax, ax.plot([], [], "--", color=LINE_COLOURS[1], lw=1.2)[0])
        self._so_far = self._moves(ax, ax.plot([], [], "-", color="black", lw=1.8)[0])

    def _draw_curves(self) -> None:
        ax, shapes, count = self._curves, self._shapes, len(self._names)
        thoughts = [take.moment.thought for take in self._takes if take.moment.thought is not None]
        every = np.concatenate([thought.quantiles.ravel() for thought in thoughts])
        low, high = np.percentile(every, 0.3), every.max()
        margin = 0.08 * (high - low) or max(abs(high) * 0.1, 1e-3)
        ax.set(xlim=(0, 1), ylim=(low - margin, high + margin))
        ax.set_xlabel("fraction $\\tau$", fontsize=8, labelpad=1)
        ax.set_title("predicted return of each action", fontsize=8.5, pad=4, loc="left")
        shapes.set_title("density", fontsize=8.5, pad=4, loc="left")
        ax.tick_params(labelsize=7.5, length=2)
        ax.grid(True, alpha=0.25, lw=0.6)
        shapes.set(xlim=(0, 1), xticks=[])
        shapes.tick_params(labelleft=False, length=0)
        for axes in (ax, shapes):
            axes.spines[["top", "right"]].set_visible(False)
        alpha = thoughts[0].cvar_alpha
        upper = self._risk.kind == "upper-cvar"
        ax.axvspan(*((1 - (self._risk.alpha or alpha), 1) if upper else (0, alpha)), color="0.5", alpha=0.1, lw=0)
        kinds = [(colour, dash) for dash in DASHES for colour in LINE_COLOURS]
        styles = [kinds[action % len(kinds)] for action in range(count)]
        self._colours = [colour for colour, _ in styles]
        lines = [(ax.plot([], [], c=c, ls=s)[0], shapes.plot([], [], c=c, ls=s)[0]) for c, s in styles]
        self._actions = [(self._moves(ax, line), self._moves(shapes, shape)) for line, shape in lines]
        self._filled = self._moves(shapes, shapes.add_patch(Polygon([(0, 0), (0, 1)], alpha=0.18, lw=0)))
        self._chosen = self._moves(None, self._figure.text(0.985, 0.955, "", fontsize=9.5, ha="right", va="center"))
        if count <= MOST_NAMED:
            self._figure.legend(
                [line for line, _ in lines],
                [label(name, 18, 1) for name in self._names],
                loc="center right",
                bbox_to_anchor=(0.992, 0.9),
                ncols=count,
                frameon=False,
                fontsize=8,
                handlelength=1.6,
                columnspacing=1.4,
            )

    def draw(self, number: int) -> Frame:
        """Draw a take."""
        take = self._takes[number]
        moment = take.moment
        if take.picture:
            self._image.set_data(_picture(take))
        ended = {"terminated": "the episode is over", "truncated": "cut off by the time limit"}.get(moment.ended, "")
        self._caption.set_text(f"seed {moment.seed}   step {moment.step}   score {moment.score:g}   {ended}")
        trail = [each.moment for each in self._takes[take.trail : number + 1]]
        low, high = moment.start.interval
        self._band.set(y=low, height=high - low)
        self._start.set_ydata([moment.start.mean] * 2)
        steps = [each.step for each in trail]
        self._so_far.set_data(steps, [each.discounted for each in trail])
        self._expected.set_data(steps, [each.expected for each in trail])
        self._draw_thought(moment)
        self._canvas.restore_region(self._still)
        for axes, artist in sorted(self._moving, key=lambda pair: pair[1].get_zorder()):
            (axes or self._figure).draw_artist(artist)
        drawn = np.asarray(self._canvas.buffer_rgba())[..., :3]
        height, width = (side // 2 * 2 for side in drawn.shape[:2])  # codecs need even sizes
        return np.ascontiguousarray(drawn[:height, :width])

    def samples(self) -> list[Frame]:
        """Draw a few takes, from which the colours of a GIF are chosen."""
        return [self.draw(number) for number in range(0, len(self._takes), math.ceil(len(self._takes) / SAMPLES))]

    def thin_colours(self) -> list[str]:
        """Return the colours of lines and text, which cover too little of a frame to be chosen from samples."""
        return ["white", "black", *dict.fromkeys(self._colours)]

    def _draw_thought(self, moment: Moment) -> None:
        thought = moment.thought
        if thought is None:  # after the last step the last prediction stays, faint
            for artist in (artist for pair in self._actions for artist in pair):
                artist.set_alpha(0.25)
            self._filled.set_alpha(0.05)
            self._chosen.set_text("")
            return
        low, high, masses = densities(thought.quantiles)
        levels = low + (np.arange(masses.shape[1]) + 0.5) / masses.shape[1] * (high - low)
        sizes, many = masses / masses.max(), len(self._names) > MOST_NAMED
        for number, (line, shape) in enumerate(self._actions):
            chosen = number == thought.action
            quantiles = thought.quantiles[number]
            line.set_data([0, *TAUS, 1], [quantiles[0], *quantiles, quantiles[-1]])
            shape.set_data(0.95 * sizes[number], levels)
            for artist in (line, shape):
                artist.set(lw=3.0 if chosen else 1.0 if many else 1.5)
                artist.set(alpha=1.0 if chosen else 0.65, zorder=3 if chosen else 2)
        outline = np.column_stack([0.95 * sizes[thought.action], levels])
        self._filled.set_xy(np.vstack([(0, low), outline, (0, high)]))
        self._filled.set(facecolor=self._colours[thought.action], alpha=0.18)
        bonus = "" if thought.bonuses is None else f"   bonus {thought.bonuses[thought.action]:.3g}"
        share = f"{100 * thought.cvar_alpha:g} %"
        mean, cvar = thought.means[thought.action], thought.cvars[thought.action]
        name = label(self._names[thought.action], 24, 1)
        random = "" if thought.action == thought.best else " (random)"
        self._chosen.set(
            text=f"{name}{random}   mean {mean:.4g}   CVaR {share} {cvar:.4g}{bonus}",
            color=self._colours[thought.action],
        )


def _picture(take: Take) -> Frame:
    if not take.picture:
        return np.zeros((2, 3, 3), np.uint8)
    return np.asarray(Image.open(io.BytesIO(take.picture)))


def frames_of(canvas: Canvas, takes: Sequence[Take], speed: int, report: Report) -> Iterator[Frame]:
    """Yield the frames of a film; the last one of each episode is repeated."""
    for number, take in enumerate(takes):
        frame = canvas.draw(number)
        ends = number + 1 == len(takes) or takes[number + 1].trail != take.trail
        for _ in range(math.ceil(LAST_SECONDS * speed) if ends else 1):
            yield frame
        report(number + 1, len(takes))


def check_path(path: Path) -> None:
    """Raise for a file that no film can be written to."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"--out is {path}, but must end with {', '.join(CODECS)} or .gif: the ending decides the format."
        )
    if not os.path.isdir(path.parent):
        raise ConfigError(f"--out is {path}, but there is no directory {path.parent}.")


def write_film(
    path: Path, frames: Iterator[Frame], speed: int, samples: Sequence[Frame], colours: Sequence[str]
) -> None:
    """Write a film; a file that is there already is replaced only by a complete one.

    A GIF has the named colours, and others that are chosen from the samples.
    """
    partial = path.with_name(f".{path.stem}.partial{path.suffix.lower()}")
    try:
        if partial.suffix == ".gif":
            _write_gif(partial, frames, speed, samples, colours)
        else:
            _write_compressed(partial, frames, speed)
        os.replace(partial, path)
    except OSError as error:
        raise StorageFault(f"the film cannot be written to {path}: {error}.") from None
    finally:
        with suppress(OSError):
            partial.unlink()


def _write_gif(
    path: Path, frames: Iterator[Frame], speed: int, samples: Sequence[Frame], colours: Sequence[str]
) -> None:
    """Write a GIF with one palette for all frames, so that unchanged pixels stay the same and compress well.

    Times are in hundredths of a second. They are rounded so that the film as a whole has the speed that was asked for.
    """
    palette, stride = _palette(samples, colours), math.ceil(speed / GIF_FASTEST)

    def images() -> Iterator[Image.Image]:
        shown = 0
        for number, frame in enumerate(itertools.islice(frames, 0, None, stride), start=1):
            image = Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
            due = round(100 * stride * number / speed)
            image.info["duration"], shown = 10 * (due - shown), due
            yield image

    paletted = images()
    next(paletted).save(path, save_all=True, append_images=paletted, loop=0, optimize=True)


def _palette(samples: Sequence[Frame], colours: Sequence[str]) -> Image.Image:
    chosen = Image.fromarray(np.vstack(samples)).quantize(GIF_COLOURS).getpalette() or []
    tints = [tint * np.array(to_rgb(colour)) + 1 - tint for colour in colours for tint in TINTS]  # on white
    palette = Image.new("P", (1, 1))
    palette.putpalette([*np.rint(255 * np.concatenate(tints)).astype(int).tolist(), *chosen[: 3 * GIF_COLOURS]])
    return palette


def _write_compressed(path: Path, frames: Iterator[Frame], speed: int) -> None:
    """Write a film with the ffmpeg that comes with the extra."""
    import imageio_ffmpeg

    first = next(frames)
    size = f"{first.shape[1]}x{first.shape[0]}"
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(speed), "-i", "-"]
    words = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *given, *CODECS[path.suffix], str(path)]
    with tempfile.TemporaryFile() as complaints:
        with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=complaints) as encoder:  # noqa: S603  # no shell
            assert encoder.stdin is not None  # noqa: S101  # it is a pipe
            with suppress(BrokenPipeError):  # it has ended early, and has said why
                for frame in itertools.chain([first], frames):
                    encoder.stdin.write(frame.data)
                encoder.stdin.close()
        if encoder.returncode:
            complaints.seek(0)
            raise OSError(" ".join(complaints.read(1_000).decode(errors="replace").split()) or "ffmpeg failed")
