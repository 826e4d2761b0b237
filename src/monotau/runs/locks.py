"""Locks on open files, held until the file is closed or the process ends: by flock, or on Windows by msvcrt."""

import sys
from typing import IO, Any

BEYOND_THE_TEXT = 2**30
"""Position of the byte that Windows locks: its locks also keep other processes from reading what they cover."""

if sys.platform == "win32":
    import msvcrt

    def try_lock(file: IO[Any], *, shared: bool = False) -> bool:
        """Lock an open file for this process; return False if another one holds the lock. No lock is shared here."""
        place = file.tell()
        file.seek(BEYOND_THE_TEXT)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            file.seek(place)
        return True
else:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock

    def try_lock(file: IO[Any], *, shared: bool = False) -> bool:
        """Lock an open file for this process, or for all that share the lock; return False if another one holds it."""
        try:
            flock(file, (LOCK_SH if shared else LOCK_EX) | LOCK_NB)
        except BlockingIOError:
            return False
        return True
