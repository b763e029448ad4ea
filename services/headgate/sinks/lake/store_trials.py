"""Which places in object stores this process has tried (lake/store.py). An idle sink is closed and opened again."""

import threading
from typing import Final

import msgspec

__all__ = ["PassedTrials", "Trial"]

PLACES_MAX: Final = 1024
"""More than the lakes that one process writes to. A place that was forgotten costs 11 requests again."""


class Trial(msgspec.Struct, frozen=True):
    """What was tried: a place on a server, and whether files must be created only where there is none."""

    endpoint: str
    place: str
    is_exclusive: bool


class PassedTrials:
    """Trials that ended well. Safe to use from several threads."""

    def __init__(self) -> None:
        self._passed: dict[Trial, None] = {}
        self._lock = threading.Lock()

    def __contains__(self, trial: Trial) -> bool:
        return trial in self._passed

    def add(self, trial: Trial) -> None:
        """Remember it, and forget the oldest one if there are too many."""
        with self._lock:
            self._passed[trial] = None
            if len(self._passed) > PLACES_MAX:
                del self._passed[next(iter(self._passed))]
