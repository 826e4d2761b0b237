"""The state of one run of a suite while the suite is running."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, final

from monotau.results.read import Progress

State = Literal["waiting", "running", "elsewhere", "finished", "failed"]


@final
@dataclass(kw_only=True)
class Track:
    """The state of one run."""

    index: int
    name: str
    directory: Path
    state: State = "waiting"
    tries: int = 0
    excused: int = 0
    """Tries that ended with a lost machine after the run had made progress; they do not count as retries."""
    reason: str = ""
    """Why the last try failed."""
    node: str = ""
    """The machine of the last try, if there are several machines."""
    progress: Progress = field(default_factory=Progress)
    started: float = 0.0
    """When its process started, by the pool's monotonic clock."""
    started_step: int = 0
    furthest: int = 0
    """The furthest step that any earlier try has reached."""
    seconds: float | None = None
    """Duration of its last process."""

    def eta_seconds(self, now: float) -> float | None:
        """Return the remaining time at the rate of this try."""
        done, left = self.progress.step - self.started_step, self.progress.total - self.progress.step
        if self.state != "running" or done <= 0 or left < 0:
            return None
        return (now - self.started) / done * left
