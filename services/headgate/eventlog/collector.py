"""Settings of Python's cyclic garbage collector for a state of a million records.

A role's state is large, lives as long as its term, and has no cycles; what dies of it dies by its reference count. The
collector does not know that: by default it looks through the young objects at every 700th one that is made, and through
everything whenever a quarter as much has been added. At 65 536 spans that was a fifth of all processor time of a first
dispatch, and a third of a second in one turn (``headgate bench control``).
"""

import gc
from typing import Final

YOUNG_OBJECTS: Final = 200_000
"""New objects before a look: some tens of MB, should all of them be garbage in cycles (errors with their frames)."""

YOUNG_LOOKS: Final = 20
"""Looks at the young before one at those that have survived one."""

MIDDLE_LOOKS: Final = 100
"""The same before one at everything: rarely, but a leak of cycles in a process that runs for months is still found."""


def collect_rarely() -> None:
    """For processes that hold a role's state: let the cyclic collector look seldom. Once per process."""
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_LOOKS, MIDDLE_LOOKS)
