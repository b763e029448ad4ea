"""Threads for calls that may block, so that one holder's calls cannot block all others.

A holder is what calls wait for together, such as a database server. When it does not answer, its calls fill its own
share of the threads and queue up behind each other; calls to other holders continue.
"""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from headgate.runtime.shares import Shares
from headgate.supervision.threads import BackgroundThread


class SharedPool:
    """Runs calls in threads: ``each`` at a time per holder, and beyond ``usual`` in total one more per holder."""

    def __init__(self, name: str, *, threads: int, usual: int, each: int, is_fatal: bool = False) -> None:
        """``name`` is the threads'. Each call has one of its own, which the end of the process does not wait for.

        ``is_fatal``: a call that crashes ends the process; else it is logged and counted, and others continue.
        """
        self._name = name
        self._on_crash = None if is_fatal else _borne
        self._lock = threading.Lock()
        self._shares = Shares(threads, usual, each)
        self._waiting: dict[str, deque[Callable[[], object]]] = {}
        """Calls that wait for a place, by holder, the holder that was served last at the end."""
        self._is_over = False

    def submit(self, holder: str, call: Callable[..., object], *arguments: object) -> None:
        """Run ``call`` when the holder has a place. Nothing is run after ``shutdown``."""
        with self._lock:
            if not self._is_over:
                self._waiting.setdefault(holder, deque()).append(partial(call, *arguments))
                self._start()

    def shutdown(self) -> None:
        """Drop waiting calls, and wait for nothing. Idempotent."""
        with self._lock:
            self._is_over = True
            self._waiting.clear()

    @property
    def waiting(self) -> int:
        """How many calls wait for a place."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def _start(self) -> None:
        """Start what has a place, one call of each holder in turn. With the lock held."""
        for holder in list(self._waiting):
            if self._shares.take(holder, 1):
                calls = self._waiting.pop(holder)
                call = calls.popleft()
                BackgroundThread(self._run, holder, call, name=self._name, on_crash=self._on_crash).start()
                if calls:
                    self._waiting[holder] = calls

    def _run(self, holder: str, call: Callable[[], object]) -> None:
        try:
            call()
        finally:
            with self._lock:
                self._shares.give_back(holder, 1)
                if not self._is_over:
                    self._start()


def _borne(_error: BaseException) -> None:
    """The place has been given back, and other calls continue."""
