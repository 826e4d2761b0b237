"""What a report consists of: sections of text, pictures and tables, which say nothing of how they are laid out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

Tell = Callable[[str], None]
"""Called with a few words on what is done now, for those who wait."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure with what its reader must know."""

    name: str
    """Name of its files, without ending."""
    figure: Figure
    caption: str
    """What is drawn, over which runs, and what intervals are."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells as they are to be read."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page under a title."""

    title: str
    text: str = ""
    warnings: Sequence[str] = ()
    """What a reader must not overlook, a sentence or two each."""
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
