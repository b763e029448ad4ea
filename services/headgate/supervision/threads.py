"""Every background thread of the product is started here. An unexpected exception in one is never silent.

An exception that leaves a thread's target is a bug. Without this module Python would print a traceback and the process
would run on without the thread, with healthy probes. Here each such *crash* is

- logged as critical, with the name of the thread and the traceback,
- counted in ``headgate_thread_crashes_total``,
- and either passed to ``on_crash``, for threads whose creator can report the failure to its own callers, or *fatal*:
  ``/readyz`` fails, and a service process ends (app/process.py), so that its platform starts a new one.

Tasks of a BackgroundPool are logged and counted, and the exception stays in the task's Future. The thread that ran the
task continues, so one task's failure is not fatal to the process.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import msgspec

P = ParamSpec("P")
T = TypeVar("T")

FATAL_MAX: Final = 100
"""Fatal crashes that are kept for probes. The process ends at the first; the rest are in the log."""

_log = logging.getLogger("headgate.threads")


class Crash(msgspec.Struct, frozen=True):
    """A thread that ended with an unexpected exception."""

    thread: str
    error: str

    def __str__(self) -> str:
        return f"thread {self.thread} ended with an unexpected error: {self.error}"


class Supervisor:
    """The crashes of a process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._fatal: list[Crash] = []

    @property
    def fatal(self) -> tuple[Crash, ...]:
        """Unhandled crashes, the oldest first. A process that has one must end."""
        with self._lock:
            return tuple(self._fatal)

    @property
    def counts(self) -> Mapping[str, int]:
        """Crashes by the name of the thread or pool."""
        with self._lock:
            return dict(self._counts)

    def record(self, name: str, title: str, error: BaseException, *, is_fatal: bool) -> None:
        """Log and count a crash. ``name`` is one of few; ``title`` may also name the table or writer it was for."""
        _log.critical("thread %s ended with an unexpected error: %s", title, _said(error), exc_info=error)
        with self._lock:
            self._counts[name] += 1
            if is_fatal and len(self._fatal) < FATAL_MAX:
                self._fatal.append(Crash(title, _said(error)))

    def reset(self) -> None:
        """Forget all crashes. For tests that cause them on purpose."""
        with self._lock:
            self._counts.clear()
            self._fatal.clear()


SUPERVISOR: Final = Supervisor()
"""Of this process, as logging's root is."""


class BackgroundThread(threading.Thread):
    """A daemon thread whose crash is logged, counted and reported. See the module's docstring."""

    def __init__(
        self,
        target: Callable[..., object],
        *args: Any,
        name: str,
        detail: str = "",
        on_crash: Callable[[BaseException], None] | None = None,
    ) -> None:
        """``name`` is the label of the metric, so it is one of few. ``detail`` describes this thread."""
        super().__init__(name=f"{name} {detail}".strip(), daemon=True)
        self._call = (target, args)
        self._kind = name
        self._on_crash = on_crash

    def run(self) -> None:
        """Call the target, and report what it raises."""
        target, args = self._call
        try:
            target(*args)
        except BaseException as error:  # noqa: BLE001 - the last resort: it would be lost otherwise
            SUPERVISOR.record(self._kind, self.name, error, is_fatal=self._on_crash is None)
            if self._on_crash is not None:
                self._on_crash(error)
        finally:
            del self._call, self._on_crash  # a finished thread must not keep its target alive


class BackgroundPool:
    """A thread pool whose tasks' unexpected exceptions are logged and counted even if their Futures are not read."""

    def __init__(self, threads: int, name: str) -> None:
        self._name = name
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def submit(self, task: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Run ``task`` on one of the threads."""
        return self._pool.submit(self._watched, partial(task, *args, **kwargs))

    def shutdown(self) -> None:
        """Start no further task and drop those that wait. Does not wait for tasks that run."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _watched(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except BaseException as error:
            SUPERVISOR.record(self._name, threading.current_thread().name, error, is_fatal=False)
            raise


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
