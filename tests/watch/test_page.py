"""The page in a real browser. Without one these tests are skipped, with the reason."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from tests.support.browser import WHY_NOT, browser
from tests.support.watched import knowing_agent, served, tiny_agent

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

CARTPOLE, SPREADS = 0, 1
"""The runs on the page, from left to right."""


class Page:
    """The page, as a user and as a programmer sees it."""

    def __init__(self, driver, address):
        self.driver, self.address = driver, address
        driver.get(address)
        self.until("runs.every((run) => run.frames > 2)")

    def get(self, expression):
        return self.driver.execute_script(f"return {expression}")

    def until(self, expression, seconds=60.0):
        deadline = time.monotonic() + seconds
        while not self.get(expression):
            assert time.monotonic() < deadline, expression
            time.sleep(0.02)

    def click(self, identity):
        self.driver.find_element("id", identity).click()

    def press(self, key):
        self.driver.find_element("tag name", "body").send_keys(key)

    def pixels(self, selector):
        return self.get(f"runs[{CARTPOLE}].find('{selector}').toDataURL()")

    def pause(self):
        self.get("actions.play()") if self.get("playing") else None
        self.until("!playing && runs.every((run) => run.element.dataset.state === 'paused')")
        self.driver.execute_async_script("setTimeout(arguments[0], 300)")  # what is on its way arrives

    def play(self):
        if not self.get("playing"):
            self.get("actions.play()")
        self.until("playing")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    tiny_agent().save(folder / "cartpole")
    knowing_agent().save(folder / "spreads")
    with served(folder / "cartpole", folder / "spreads", folder=folder) as (address, process):
        yield address, process


@pytest.fixture(scope="module")
def page(server):
    with browser(1280, 1000) as driver:
        yield Page(driver, server[0])


def test_it_loads_without_errors_and_asks_nobody_else(page):
    assert [entry["message"] for entry in page.driver.get_log("browser")] == []
    events = [json.loads(entry["message"])["message"] for entry in page.driver.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    sockets = [event["params"]["url"] for event in events if event["method"] == "Network.webSocketCreated"]
    home = page.address.split("/?")[0]
    assert page.address in asked
    assert [url for url in asked if not url.startswith((f"{home}/?token=", "data:", "chrome"))] == []
    assert [url.split("?")[0] for url in sockets] == [f"{home}/watch/{run}".replace("http", "ws") for run in range(2)]


def test_pictures_and_curves_change_as_it_plays_and_stop_when_paused(page):
    page.play()
    before, frames = [page.pixels(each) for each in (".picture", ".curves", ".timeline")], page.get("runs[0].frames")
    page.until(f"runs[0].frames > {frames + 5}")
    assert all(one != page.pixels(each) for one, each in zip(before, (".picture", ".curves", ".timeline"), strict=True))
    page.pause()
    shown = page.get("runs[0].live.at"), page.pixels(".curves")
    page.driver.execute_async_script("setTimeout(arguments[0], 400)")
    assert (page.get("runs[0].live.at"), page.pixels(".curves")) == shown
    page.click("step")
    page.until(f"runs[0].live.at === {shown[0] + 1}")


def test_the_risk_measure_changes_the_chosen_action(page):
    page.pause()
    page.click("again")
    page.until(f"runs[{SPREADS}].live.step === 0 && runs[{SPREADS}].live.action === 0")
    heights = page.get("[...document.querySelectorAll('.card')].map((card) => card.offsetHeight)")
    chosen = f"runs[{SPREADS}].rows.findIndex((row) => row.row.classList.contains('chosen'))"
    assert page.get(chosen) == 0
    page.driver.execute_script("byId('risk').value = 'upper-cvar'; byId('risk').dispatchEvent(new Event('change'))")
    page.until(f"{chosen} === 1")
    assert page.get("runs[1].rows[0].head[2].textContent") == "upper-CVaR 10 %"
    page.driver.execute_script("byId('risk').value = 'cvar'; byId('risk').dispatchEvent(new Event('change'))")
    page.until(f"{chosen} === 0")
    assert page.get("[...document.querySelectorAll('.card')].map((card) => card.offsetHeight)") == heights


def test_pointing_at_the_time_line_shows_the_past(page):
    from selenium.webdriver import ActionChains

    page.pause()
    page.click("again")
    page.until("runs[0].live.step === 0")
    for _ in range(4):
        page.click("step")
    page.until("runs[0].live.step === 4")
    live = page.get("runs[0].live.at"), page.pixels(".curves")
    line = page.driver.find_element("css selector", ".timeline")
    x = page.get("runs[0].timeline.x(1) - runs[0].timeline.canvas.clientWidth / 2")
    ActionChains(page.driver).move_to_element_with_offset(line, int(x), 0).perform()
    page.until("runs[0].shown === runs[0].past && runs[0].past.step === 1")
    assert page.get("runs[0].find('.badge').textContent") == "looking back · step 1"
    assert page.pixels(".curves") != live[1]
    page.press("\ue00c")  # escape
    page.until(f"runs[0].lookingAt === null && runs[0].shown.at === {live[0]}")


def test_looking_back_ends_with_the_episode(page):
    page.pause()
    page.click("again")
    page.until("runs[0].live.step === 0")
    for _ in range(3):
        page.click("step")
    page.until("runs[0].live.step === 3")
    page.press("\ue012")  # left
    page.until("runs[0].shown === runs[0].past && runs[0].past.step === 2")
    page.click("next")
    page.until("runs[0].live.step === 0 && runs[0].lookingAt === null && runs[0].shown === runs[0].live")
    assert page.get("runs[0].points.length") == 1


@pytest.mark.parametrize("words", ["-5", "1.5", "99999999999", "", "1e400"])
def test_a_seed_that_is_not_allowed_is_put_back(page, words):
    page.pause()
    seed = page.get("runs[0].status.seed")
    page.driver.execute_script(
        "byId('seed').value = arguments[0]; byId('seed').dispatchEvent(new Event('change'))", words
    )
    assert page.get("byId('seed').value") == str(seed)


def test_a_seed_that_is_allowed_is_played(page):
    page.driver.execute_script("byId('seed').value = '17'; byId('seed').dispatchEvent(new Event('change'))")
    page.until("runs[0].status.seed === 17")


def test_numbers_are_written_alike_everywhere(page):
    values = [-1234.4, -0.001, 0, 12345, -1e6, 99.995, -0.00001]
    written = page.get(f"{values}.map((value) => formatted(value))")
    assert written == ["−1,234", "−0.0010", "0.00", "12,345", "−1.0e+6", "100.00", "0.0000"]  # noqa: RUF001
    assert page.get("[formatted(-20, true), formatted(1e5, true)]") == ["−20", "100,000"]  # noqa: RUF001
    ticks = page.get("[tickText(-5000, 1000), tickText(-20000, 1e4), tickText(-0.5, 0.1)]")
    assert ticks == ["−5,000", "−20k", "−0.5"]  # noqa: RUF001
    assert page.get("[1, 2, 3, 4, 11, 12, 13, 21, 42, 73, 100].map(ordinal).join(' ')") == (
        "1st 2nd 3rd 4th 11th 12th 13th 21st 42nd 73rd 100th"
    )


def test_the_header_names_the_agent_that_plays(page):
    page.driver.execute_script("runs[0].setStatus({...runs[0].status, agent: 'checkpoint of step 4,000'})")
    about = page.get("runs[0].find('.about').textContent")
    assert about == "ndqfn-dpe on CartPole-v1 · checkpoint of step 4,000"


def test_the_returns_of_the_shown_state_are_measured(page):
    page.pause()
    seeds = page.get("runs.map((run) => run.status.seed)")
    page.click("next")
    page.until(f"runs.every((run, i) => run.shown === run.live && run.live.seed === {seeds}[i] + 1)")
    before = page.pixels(".curves")
    page.press("a")
    page.until("runs.every((run) => run.auditOf(run.shown))", seconds=60)
    assert page.pixels(".curves") != before
    words = page.get(f"runs[{CARTPOLE}].find('.measured').textContent")
    assert re.fullmatch(
        r"Dots: returns of 32 rollouts of each action\. push \w+: mean \S+ ± \S+, predicted \S+\.", words
    )
    page.click("step")
    page.until("runs[0].live.step === 1")
    page.until("runs[0].find('.measured').textContent.trim() === ''")


def test_the_keyboard_works_and_a_phone_shows_everything(page):
    page.play()
    page.press(" ")
    page.until("!playing")
    seed = page.get("runs[0].status.seed")
    page.press("n")
    page.until(f"runs[0].status.seed === {seed + 1}")
    theme = page.get("root.dataset.theme")
    page.press("t")
    assert page.get("root.dataset.theme") != theme
    page.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    )
    page.until("runs[0].curvesPlot.width < 390 && runs[0].curvesPlot.width > 300")
    assert page.get("document.documentElement.scrollWidth") <= 390
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_killed_server_is_shown(page, server):
    """Comes last, because no other test can use the page after it."""
    server[1].kill()
    page.until("runs.every((run) => run.element.dataset.state === 'lost')")
    assert page.get("runs[0].find('.state').textContent") == "disconnected"
    assert "The server has stopped or cannot be reached" in page.driver.find_element("class name", "banner").text


def resident(pid: int) -> float:
    """Resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_half_an_hour_of_play_does_not_grow_the_memory(tmp_path):
    tiny_agent().save(tmp_path / "cartpole")
    with (
        served(tmp_path / "cartpole", folder=tmp_path, flags=("--speed", "60")) as (address, process),
        browser() as driver,
    ):
        page = Page(driver, address)

        def heap() -> float:
            driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
            driver.get_log("performance")  # which the driver would otherwise keep
            metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
            return next(each["value"] for each in metrics if each["name"] == "JSHeapUsedSize") / 1e6

        driver.execute_cdp_cmd("Performance.enable", {})
        sizes, seconds = [], float(os.environ.get("MONOTAU_WATCH_SECONDS", "1800"))
        for _ in range(10):
            deadline = time.monotonic() + seconds / 10
            while time.monotonic() < deadline:
                time.sleep(min(5.0, seconds / 10))
                driver.get_log("performance")
            sizes.append((heap(), resident(process.pid)))
        assert page.get("runs[0].frames") > seconds  # it has played all the time
        assert sizes[-1][0] < sizes[2][0] + 5, sizes
        assert sizes[-1][1] < sizes[2][1] + 30, sizes
