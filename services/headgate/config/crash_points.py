"""The named moments of the commit path at which a process may die or freeze, for tests that make it do so there.

A change goes this way: the span is claimed, its rows are sent to the sink, the positions move, the transaction commits,
the driver hears of it, and only then the agent reports the new position. What counts is what is true when a process
stops in between: nothing lost, nothing twice, and no write by a process that was replaced since.

``reach`` marks the moment in the code. It does nothing, at the cost of one comparison per claim or batch, unless the
process was started with ``HEADGATE_TEST_CRASH_POINTS`` naming a folder: then the first process that reaches an armed
point stops itself there (SIGSTOP). The test that armed it kills it, or lets others take over and wakes it up. No
setting, flag or feed leads here, and a service logs at its start that it can be stopped so.
"""

import os
import signal
import time
from enum import StrEnum
from pathlib import Path
from typing import Final

VARIABLE: Final = "HEADGATE_TEST_CRASH_POINTS"
"""Read here and not in the settings: Spark's Python workers inherit it, and have no settings."""

LOOK_SECONDS: Final = 0.02


class CrashPoint(StrEnum):
    """In the order in which a change passes them. The first three and the last two are the driver's."""

    BEFORE_CLAIM = "before_claim"
    AFTER_CLAIM = "after_claim"
    ALTERED = "altered"
    """The sink's table was altered for a change that has not been written yet."""
    ROWS_SENT = "rows_sent"
    BEFORE_COMMIT = "before_commit"
    COMMITTED = "committed"
    """The sink has committed and replied, but the driver has not got the reply."""
    COMPACTED = "compacted"
    """A lake's table has fewer files, and those that no version needs are not removed yet."""
    BEFORE_CHECKPOINT = "before_checkpoint"
    """The driver knows what was committed and has reported nothing."""


_FOLDER: Final = os.environ.get(VARIABLE)


def reach(point: CrashPoint) -> None:
    """The calling process is at ``point``. Returns at once or, if it is armed, after a SIGCONT."""
    if _FOLDER is not None:
        _stand_still(Path(_FOLDER), point)


def _stand_still(folder: Path, point: CrashPoint) -> None:
    try:
        # Of several processes that come by, one finds the file.
        (folder / point).rename(folder / f"{point}.{os.getpid()}")
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGSTOP)


class ArmedPoints:
    """The other side: arms points for the processes that were started with ``variables``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def variables(self) -> dict[str, str]:
        """Environment of the processes that are to heed it."""
        return {VARIABLE: str(self._folder)}

    def arm(self, point: CrashPoint) -> None:
        """The next process that reaches ``point`` stops there."""
        self.disarm()
        (self._folder / point).touch()

    def disarm(self) -> None:
        """No process stops any more; stopped ones stay stopped."""
        for file in self._folder.iterdir():
            file.unlink(missing_ok=True)

    def reached(self, point: CrashPoint) -> int | None:
        """Process id of who came to ``point`` since it was armed."""
        return next((int(file.suffix[1:]) for file in self._folder.glob(f"{point}.*")), None)

    def await_reached(self, point: CrashPoint, timeout_seconds: float) -> int:
        """Process id of the process that is stopped at ``point``. Raises TimeoutError, and the point is disarmed."""
        deadline = time.monotonic() + timeout_seconds
        while (pid := self.reached(point)) is None:
            if time.monotonic() > deadline:
                self.disarm()
                raise TimeoutError(f"no process reached {point} within {timeout_seconds:g} s")
            time.sleep(LOOK_SECONDS)
        while _state(pid) not in ("T", ""):
            time.sleep(LOOK_SECONDS)
        return pid


def _state(pid: int) -> str:
    """The kernel's letter for the process's state, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
