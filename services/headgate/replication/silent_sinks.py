"""A process's memory of database servers that do not answer, so that other calls do not wait for them too.

To find out that a server is silent takes a call 10 to 40 seconds (databases/network_timeouts.py), in which it holds a
thread or a core. After one call has found out, all others fail at once, until one of them tries again. Calls that have
waited for some seconds are named before that.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import msgspec

from headgate.eventlog.clock import wall_ms
from headgate.sinks.contract import SinkSilentError, SinkUnavailableError

__all__ = ["SILENT_SECONDS", "WAITING_SECONDS", "SilentSinks"]

SILENT_SECONDS: Final = 2.0
"""A call that fails sooner has had an answer, or holds nothing up: it predicts nothing about the next one."""

PAUSE_SECONDS: Final = 5.0
"""Between two attempts. Tables of the sink are retried about as often, so this hardly delays them."""


WAITING_SECONDS: Final = 5.0
"""A call that has taken longer is reported. Most take milliseconds; a claim on a busy machine may take a second."""


class _Call(msgspec.Struct, eq=False):
    """A call under way: ``since`` is when it began (monotonic seconds), ``began`` the same for people, in UTC."""

    since: float
    began: str
    is_reported: bool = False


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
        self._calls: dict[str, list[_Call]] = {}
        self._recovered: set[str] = set()

    @contextmanager
    def asked(self, server: str) -> Iterator[None]:
        """Around every call to a sink of ``server``. SinkUnavailableError at once if it is known to be silent."""
        call = self._admit(server)
        try:
            yield
        except SinkSilentError as error:
            seconds = self._clock() - call.since
            if seconds < SILENT_SECONDS:
                self._answered(server)
            self.failed(server, str(error), seconds)
            raise
        except BaseException:
            self._answered(server)
            raise
        else:
            self._answered(server)
        finally:
            with self._lock:
                self._calls[server].remove(call)
                if not self._calls[server]:
                    del self._calls[server]

    def failed(self, server: str, text: str, seconds: float) -> None:
        """A call has had no answer (SinkSilentError) for so many seconds, in this process or another."""
        if seconds < SILENT_SECONDS:
            return
        now = self._clock()
        with self._lock:
            known = self._silent.get(server)
            if known is None:
                known = _Silence(text, _time_of_day(seconds), now - seconds, now)
            self._silent[server] = msgspec.structs.replace(known, until=now + PAUSE_SECONDS, is_tried=False)

    def why(self, server: str) -> str | None:
        """Why a call to ``server`` would fail at once; None if it may be made."""
        with self._lock:
            known = self._silent.get(server)
            return None if known is None or self._is_due(known) else self._described(server, known)

    def why_waiting(self, server: str) -> str | None:
        """Which call to ``server`` has waited for longer than WAITING_SECONDS; None if there is none."""
        with self._lock:
            call = self._longest(server)
            return None if call is None else self._waiting(server, call)

    def reports(self) -> list[str]:
        """The calls that have waited for longer than WAITING_SECONDS by now, each once: for the log."""
        with self._lock:
            waiting = [(server, self._longest(server)) for server in self._calls]
            new = [(server, call) for server, call in waiting if call is not None and not call.is_reported]
            for _, call in new:
                call.is_reported = True
            return [self._waiting(server, call) for server, call in new]

    def is_asked(self, server: str) -> bool:
        """Whether a call to ``server`` is under way."""
        with self._lock:
            return bool(self._calls.get(server))

    def servers(self) -> dict[str, float]:
        """The servers that do not answer, and for how many seconds they have not."""
        with self._lock:
            waiting = {server: call.since for server in self._calls if (call := self._longest(server)) is not None}
            silent = {server: known.since for server, known in self._silent.items()}
            return {server: self._clock() - since for server, since in sorted((waiting | silent).items())}

    def recovered(self) -> set[str]:
        """The servers that have answered again since this was last asked."""
        with self._lock:
            recovered, self._recovered = self._recovered, set()
            return recovered

    def due(self) -> set[str]:
        """The silent servers that the next call may try."""
        with self._lock:
            return {server for server, known in self._silent.items() if self._is_due(known)}

    def _longest(self, server: str) -> _Call | None:
        latest = self._clock() - WAITING_SECONDS
        waiting = (call for call in self._calls.get(server, ()) if call.since <= latest)
        return min(waiting, key=lambda call: call.since, default=None)

    @staticmethod
    def _waiting(server: str, call: _Call) -> str:
        return (
            f"the sink server {server} has not answered a call since {call.began}. It may be busy, or wait for a lock. "
            "Its tables are not written until it answers. Check the server and the network between it and this agent"
        )

    def _is_due(self, known: _Silence) -> bool:
        return not known.is_tried and self._clock() >= known.until

    @staticmethod
    def _described(server: str, known: _Silence) -> str:
        # The same text for as long as it lasts: each other one is a record on the log for each table.
        return (
            f"the sink server {server} has not answered since {known.began} ({known.text}). Its tables are not written "
            "until it answers; it is retried every few seconds. Check the server and the network between it and "
            "this agent"
        )

    def _admit(self, server: str) -> _Call:
        with self._lock:
            known = self._silent.get(server)
            if known is not None:
                if not self._is_due(known):
                    raise SinkUnavailableError(self._described(server, known))
                known.is_tried = True
            call = _Call(self._clock(), _time_of_day(0.0))
            self._calls.setdefault(server, []).append(call)
            return call

    def _answered(self, server: str) -> None:
        with self._lock:
            if self._silent.pop(server, None) is not None:
                self._recovered.add(server)


def _time_of_day(seconds_ago: float) -> str:
    return datetime.fromtimestamp(wall_ms() / 1000 - seconds_ago, UTC).strftime("%H:%M:%S UTC")
