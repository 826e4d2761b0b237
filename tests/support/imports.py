"""Undoes what naming a module of the user's own did to this process."""

import sys

from monotau.config import imports


def forget(name: str) -> None:
    """Return to the state of a process in which the user has not named a module."""
    sys.modules.pop(name, None)
    imports._imported.pop(name)
    for table, key in [place for place, origin in imports._origins.items() if origin == name]:
        del imports.TABLES[table][1][key], imports._origins[table, key]
