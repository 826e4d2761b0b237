"""The built-in suites."""

from pathlib import Path

from monotau.config.parse import read_settings

BUILT_IN = Path(__file__).parent / "builtin"


def built_in() -> dict[str, str]:
    """Return the names and descriptions of the built-in suites."""
    return {path.stem: str(read_settings(path)["about"]) for path in sorted(BUILT_IN.glob("*.yaml"))}
