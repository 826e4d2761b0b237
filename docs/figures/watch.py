"""Takes the picture of the page in the documentation, of a run that is named; needs chromium and its driver.

PYTHONPATH=. python docs/figures/watch.py RUN
"""

import sys
import time
from pathlib import Path

from benchmarks.watching import watching

SECONDS = 9.0


def main() -> None:
    """Watch a run for some seconds, and save what the browser shows."""
    with watching(Path(sys.argv[1])) as (driver, _):
        size = {"width": 1280, "height": 1040, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        time.sleep(SECONDS)
        driver.save_screenshot(str(Path(__file__).with_suffix(".png")))


if __name__ == "__main__":
    main()
