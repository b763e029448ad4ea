"""Whether the loops of a process are alive and ready, for its operations endpoints (http.py)."""

import threading
import time
from collections.abc import Callable

from headgate.supervision.threads import SUPERVISOR


class PortTakenError(OSError):
    """The HTTP port is not available; the message names it and how to choose another."""


class Probes:
    """The state that the loops of a process report; safe to call from any thread.

    ``silence_seconds`` is how long a loop may go without a turn before the process counts as hung; ``clock`` is
    monotonic seconds.
    """

    def __init__(self, silence_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._silence_seconds = silence_seconds
        self._clock = clock
        self._turned: dict[str, float] = {}
        self._unready: dict[str, str] = {}
        self._lock = threading.Lock()

    def expect(self, loop: str, unready: str = "starting") -> None:
        """A loop exists from now on, and is not ready, for the reason given."""
        with self._lock:
            self._turned[loop] = self._clock()
            self._unready[loop] = unready

    def turned(self, loop: str) -> None:
        """The loop has turned now."""
        with self._lock:
            self._turned[loop] = self._clock()

    def ready(self, loop: str) -> None:
        """The loop has replayed and knows its role."""
        with self._lock:
            self._unready.pop(loop, None)

    def unready(self, loop: str, reason: str) -> None:
        """The loop cannot serve now."""
        with self._lock:
            self._unready[loop] = reason

    def forget(self, loop: str) -> None:
        """The loop has ended as it should."""
        with self._lock:
            self._turned.pop(loop, None)
            self._unready.pop(loop, None)

    def hung(self) -> list[str]:
        """One line per loop that has not turned in time."""
        now = self._clock()
        with self._lock:
            silent = {loop: now - at for loop, at in sorted(self._turned.items())}
        return [
            f"{loop}: no turn for {seconds:.1f} s, allowed are {self._silence_seconds:g}"
            for loop, seconds in silent.items()
            if seconds > self._silence_seconds
        ]

    def waiting(self) -> list[str]:
        """One line per loop that is not ready and per thread that crashed.

        A process without any loop is not ready either.
        """
        crashed = [str(crash) for crash in SUPERVISOR.fatal]
        with self._lock:
            if not self._turned:
                return [*crashed, "no loop has been started"]
            return [*crashed, *(f"{loop}: {reason}" for loop, reason in sorted(self._unready.items()))]
