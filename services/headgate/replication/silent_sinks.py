"""What a process remembers about database servers that do not answer, so that nobody else waits for them.

To find out that a server is silent takes a call 10 to 40 seconds (databases/network_timeouts.py), in which it holds a
thread or a core. After one call has found out, all others fail at once, until one of them tries again.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import msgspec

from headgate.sinks.contract import SinkSilentError, SinkUnavailableError

__all__ = ["SILENT_SECONDS", "SilentSinks"]

SILENT_SECONDS: Final = 2.0
"""A call that fails sooner has had an answer, or costs nobody anything: it says nothing about the next one."""

PAUSE_SECONDS: Final = 5.0
"""Between two attempts. Tables of the sink are tried again about as often, so this delays none of them by much."""


class _Silence(msgspec.Struct):
    """``since`` is when the first call that was not answered began, ``until`` when the next may be made (monotonic).

    ``began`` is ``since`` for people, in UTC.
    """

    text: str
    began: str
    since: float
    until: float
    is_tried: bool = False


class SilentSinks:
    """By server (sinks.registry.server_of). Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._silent: dict[str, _Silence] = {}

    @contextmanager
    def asked(self, server: str) -> Iterator[None]:
        """Around every call to a sink of ``server``. SinkUnavailableError at once if it is known to be silent."""
        self._admit(server)
        began = self._clock()
        try:
            yield
        except SinkSilentError as error:
            seconds = self._clock() - began
            if seconds < SILENT_SECONDS:
                self._answered(server)
            self.failed(server, str(error), seconds)
            raise
        except BaseException:
            self._answered(server)
            raise
        else:
            self._answered(server)

    def failed(self, server: str, text: str, seconds: float) -> None:
        """A call has had no answer (SinkSilentError) for so many seconds, in this process or another."""
        if seconds < SILENT_SECONDS:
            return
        now = self._clock()
        with self._lock:
            known = self._silent.get(server)
            if known is None:
                began = datetime.fromtimestamp(time.time() - seconds, UTC).strftime("%H:%M:%S UTC")
                known = _Silence(text, began, now - seconds, now)
            self._silent[server] = msgspec.structs.replace(known, until=now + PAUSE_SECONDS, is_tried=False)

    def why(self, server: str) -> str | None:
        """Why a call to ``server`` would fail at once; None if it may be made."""
        with self._lock:
            known = self._silent.get(server)
            return None if known is None or self._is_due(known) else self._described(server, known)

    def servers(self) -> dict[str, float]:
        """The servers that do not answer, and for how many seconds they have not."""
        with self._lock:
            return {server: self._clock() - known.since for server, known in sorted(self._silent.items())}

    def _is_due(self, known: _Silence) -> bool:
        return not known.is_tried and self._clock() >= known.until

    @staticmethod
    def _described(server: str, known: _Silence) -> str:
        # The same text for as long as it lasts: each other one is a record on the log for each table.
        return (
            f"the sink server {server} has not answered since {known.began} ({known.text}). Its tables are not written "
            "until it answers; it is tried again every few seconds. Check the server and the network between it and "
            "this agent"
        )

    def _admit(self, server: str) -> None:
        with self._lock:
            known = self._silent.get(server)
            if known is None:
                return
            if not self._is_due(known):
                raise SinkUnavailableError(self._described(server, known))
            known.is_tried = True

    def _answered(self, server: str) -> None:
        with self._lock:
            self._silent.pop(server, None)
