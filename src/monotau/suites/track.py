"""What is known of one cell of a suite while the suite runs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, final

from monotau.results.read import Progress

State = Literal["waiting", "running", "elsewhere", "finished", "failed"]


@final
@dataclass(kw_only=True)
class Track:
    """What is known of one cell."""

    index: int
    name: str
    directory: Path
    state: State = "waiting"
    tries: int = 0
    excused: int = 0
    """Tries that a machine cut off after the run had got further than ever before."""
    reason: str = ""
    """Why it failed the last time."""
    place: str = ""
    """The machine on which it runs, or ran last, where there are several."""
    progress: Progress = field(default_factory=Progress)
    started: float = 0.0
    """When its process was started, by the clock of the pool."""
    started_step: int = 0
    furthest: int = 0
    """The furthest step of all tries that are over, and of what was there before."""
    seconds: float | None = None
    """How long its last process took."""

    def eta_seconds(self, now: float) -> float | None:
        """Return how long it will still take at the rate it has had."""
        done, left = self.progress.step - self.started_step, self.progress.total - self.progress.step
        if self.state != "running" or done <= 0 or left < 0:
            return None
        return (now - self.started) / done * left
