"""Checks whether the disk has room for a copy, before anything is changed, if that can be known.

No server reports how much of its disk is free (MariaDB's plugin DISKS does, where it is installed). But it reports the
table's file; and if that file is here, on the owner's machine, the file's disk is the one that the copy will fill. A
server elsewhere, or one whose folders the owner may not enter, is not asked further.
"""

import shutil
from pathlib import Path
from typing import Final

from headgate.databases.address import THIS_MACHINE
from headgate.migration.strategies.contract import RefusedError, Stored

SPARE: Final = 1.1
"""A copy is as large as the table, packed better or worse; beside it the logs grow."""


def check_room(table: str, stored: Stored | None) -> None:
    """Raise RefusedError if it is known that a copy of the table has no room."""
    # A container behind a port of this machine has other files, which are not found here.
    if stored is None or not (stored.host in THIS_MACHINE or stored.host.startswith("/")):
        return
    try:
        if not Path(stored.file).is_file():
            return
        free = shutil.disk_usage(stored.file).free
    except OSError:
        return  # the owner may not read it
    needed = int(stored.bytes * SPARE)
    if needed > free:
        raise RefusedError(
            f"table {table} has {_mega(stored.bytes)} with its indexes; a copy needs about {_mega(needed)}, and the "
            f"disk of {stored.file} has {_mega(free)} free: make room, or use strategy direct (--prefer-instant copies "
            "nothing, where the server can do that)"
        )


def _mega(size: int) -> str:
    return f"{size / 1_000_000:,.1f} MB"
