"""The owner's thread that fills a copy: its progress, and whether it is running.

It belongs to one migration and one term of an owner. Effects read its fields and return at once; what it does is
``CopyWork.run``.
"""

import datetime
import threading
import time
from abc import ABC, abstractmethod
from typing import Any, Final

from headgate.migration.core.spec import MigrationSpec
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.pace import CopyPace, Lags
from headgate.supervision.threads import BackgroundThread

COPYING: Final = "copying"


class CopyWork(ABC):
    """The thread; all others only read its fields. ``rows_before`` were copied by an earlier owner."""

    def __init__(
        self, server: Any, spec: MigrationSpec, throttle_ratio: float, *, rows_before: int, lags: Lags | None
    ) -> None:
        """The thread begins with ``start``."""
        self._stage, self._stage_begun = "beginning", time.monotonic()
        self.percent = -1
        """How much of the stage is done; -1 if that is not known."""
        self.is_ready = False
        self.error: Exception | None = None
        self.stopping = threading.Event()
        self.pace = CopyPace(server, spec, throttle_ratio, self.stopping, lags)
        self._rows_before = rows_before
        self._thread = BackgroundThread(self.run, name="copy", on_crash=self._on_crash)

    @property
    def stage(self) -> str:
        """What is done now, in words."""
        return self._stage

    @stage.setter
    def stage(self, stage: str) -> None:
        if stage != self._stage:
            self._stage, self._stage_begun, self.percent = stage, time.monotonic(), -1

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _on_crash(self, error: BaseException) -> None:
        self.error = RefusedError(f"internal error in the copy: {type(error).__name__}: {error}")

    @abstractmethod
    def run(self) -> None:
        """Do all of it, on the thread: until it is done, ``stopping`` is set, or ``error`` has the reason."""

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def join(self, seconds: float | None = None) -> None:
        """Wait for its end."""
        self._thread.join(seconds)

    @property
    def is_over_in_vain(self) -> bool:
        """It has ended because of something that may pass: it is started again, from what is seen then."""
        return not self.is_alive() and not self.is_ready and not isinstance(self.error, RefusedError)

    def stop(self) -> None:
        """End it; ranges that are under way are finished."""
        self.stopping.set()
        self.join()

    def eta_seconds(self, rows: int, table_rows: int) -> int:
        """Time to the end of the stage, by its speed so far; -1 if that cannot be estimated."""
        took = time.monotonic() - self._stage_begun
        if self.is_ready:
            return 0
        if self.stage == COPYING:
            done, left = rows - self._rows_before, table_rows - rows
            return -1 if done <= 0 or left < 0 else round(took * left / done)
        return round(took * (100 - self.percent) / self.percent) if self.percent > 0 else -1


def noted_key(key: tuple[Any, ...]) -> list[Any]:
    """A row's key as it is stored on the log: JSON, with values that the server accepts for the columns again."""
    return [_noted(value) for value in key]


def read_key(noted: list[Any] | None) -> tuple[Any, ...] | None:
    """The key that ``noted_key`` has recorded."""
    if noted is None:
        return None
    return tuple(bytes.fromhex(value["hex"]) if isinstance(value, dict) else value for value in noted)


def _noted(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, datetime.timedelta):
        # MariaDB's TIME goes beyond a day, which str() would write in words.
        seconds, rest = divmod(abs(value), datetime.timedelta(seconds=1))
        sign = "-" if value < datetime.timedelta(0) else ""
        return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest.microseconds:06}"
    return str(value)
