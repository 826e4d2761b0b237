"""A real browser, without a window, for tests of the page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DRIVER = shutil.which("chromedriver")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

WHY_NOT = "" if DRIVER and BROWSER else "there is no browser: chromium and chromedriver are not on PATH"
"""Why tests that need a browser are skipped; empty if there is one."""


@contextmanager
def browser(width: int = 1280, height: int = 900) -> Iterator[Any]:
    """Open a browser that logs its console and its requests."""
    from selenium import webdriver  # takes a while to import, and is of no use without a browser

    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", f"window-size={width},{height}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()
