"""Services as processes of their own, and what can happen to such a process: death, a freeze, a clean stop.

A service is a tree: an agent has a Spark JVM and Python workers under it. What dies or freezes with a machine is the
whole tree, so that is what is signalled here. Each service starts a session of its own, by which its processes
are found even when their parent has died before them; a Ctrl-C in the terminal reaches only us.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil

from headgate.provisioning.jvm import tail
from headgate.provisioning.killed import await_killed
from headgate.provisioning.time_scale import TIME_SCALE_VARIABLE, scaled_seconds
from headgate_lab.parts.orphans import marked

STOP_SECONDS_MAX: Final = 80.0
"""A service gives itself 10 s for a clean stop (settings.shutdown_seconds); then the tree is killed."""

VANISH_SECONDS_MAX: Final = 60.0
"""For the kernel to end a killed tree: a large JVM takes a second."""

POLL_SECONDS: Final = 0.05

HEADGATE: Final = (sys.executable, "-m", "headgate")

OUR_VARIABLES: Final = "HEADGATE_"
KEPT_VARIABLES: Final = ("HEADGATE_CACHE", TIME_SCALE_VARIABLE)


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Our environment with ``settings`` and our mark, without the user's settings, which are for another cluster."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(OUR_VARIABLES) or k in KEPT_VARIABLES}
    return kept | dict(settings) | {"PYTHONUNBUFFERED": "1"} | marked()


class ServiceError(Exception):
    """A service that ended or hangs; the message contains which, how, and the last lines of its log."""


class Fate(StrEnum):
    """What was done to a service on purpose; ``RUNNING`` means nothing was."""

    RUNNING = "running"
    KILLED = "killed"
    FROZEN = "frozen"
    THAWED = "thawed"
    STOPPED = "stopped"


class ServiceProcess:
    """One ``headgate …`` command running as a process, with whatever it starts. Made running."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        settings: Mapping[str, str],
        log_folder: Path,
        *,
        program: Sequence[str] = HEADGATE,
        home: Path | None = None,
    ) -> None:
        """``home``: the folder it runs in, ours if None."""
        self.name = name
        self.command = (*program, *arguments)
        self.fate = Fate.RUNNING
        self.log_file = log_folder / f"{name}.log"
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(settings),
                cwd=home,
                start_new_session=True,
            )
        self._seen: set[psutil.Process] = set()
        self._is_gone = False

    @property
    def kind(self) -> str:
        """Its name without its number, for example ``agent``."""
        return self.name.rpartition("-")[0] or self.name

    @property
    def pid(self) -> int:
        """Process id of the service itself."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How the service itself ended (negative: by that signal), None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raise ServiceError if it has ended though nothing was done to it."""
        if self.fate is Fate.RUNNING and self.exit_code is not None:
            raise ServiceError(self.explain(f"ended by itself with exit code {self.exit_code}"))

    def explain(self, what: str) -> str:
        """``what`` happened to the service, with the last lines of its log."""
        return f"{self.name} ({' '.join(self.command)}) {what}. End of {self.log_file}:\n{tail(self.log_file)}"

    def tree(self) -> list[psutil.Process]:
        """Every living process of the service, the service itself first.

        Once the service was collected its number may be reused, even for a thread; the number of its session not before
        the last of its members has ended.
        """
        if self._is_gone:
            return []
        members = set(self._seen)
        if self._process.returncode is None:
            with suppress(psutil.NoSuchProcess):
                root = psutil.Process(self.pid)
                members |= {root, *root.children(recursive=True)}
        for pid in psutil.pids():
            with suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
                if os.getsid(pid) == self.pid:
                    members.add(psutil.Process(pid))
        self._seen = {process for process in members if lives(process)}
        self._is_gone = not self._seen and self._process.returncode is not None
        return sorted(self._seen, key=lambda process: (process.pid != self.pid, process.pid))

    def freeze(self) -> None:
        """SIGSTOP the whole tree: nothing of it runs, everything it holds stays held."""
        self.fate = Fate.FROZEN
        self._signal_tree(signal.SIGSTOP)

    def thaw(self, head_start_seconds: float = 0.0) -> None:
        """SIGCONT a frozen tree; it continues in the middle of whatever it was doing.

        The children of the service wake up first and have a head start: nothing guarantees the service itself that it
        is the first to run again and to find out that its time is over.
        """
        self.fate = Fate.THAWED
        if head_start_seconds > 0:
            for process in self.tree():
                if process.pid != self.pid:
                    with suppress(psutil.NoSuchProcess):
                        process.send_signal(signal.SIGCONT)
            time.sleep(head_start_seconds)
        self._signal_tree(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL the whole tree at once, as a machine dies: stopped first, so that no part sees another part die."""
        self.fate = Fate.KILLED
        self._signal_tree(signal.SIGSTOP)
        self._kill_rest()

    def ask_to_stop(self) -> None:
        """SIGTERM the service itself (thawed if need be); it ends what it started. Idempotent."""
        if self.fate is Fate.FROZEN:
            self.thaw()
        self.fate = Fate.STOPPED
        self.tree()
        if self.exit_code is None:
            self._process.terminate()

    def await_stop(self, deadline: float) -> list[str]:
        """Wait until ``deadline`` (monotonic), then kill what is left of the tree; what that was."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        left = [f"{self.name}: {_describe(process)}" for process in self.tree()]
        self._kill_rest()
        return left

    def _signal_tree(self, number: signal.Signals) -> None:
        """Signal until no process is found that was not signalled: a tree can grow while it is being stopped."""
        done: set[psutil.Process] = set()
        while fresh := [process for process in self.tree() if process not in done]:
            for process in fresh:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
                done.add(process)

    def _kill_rest(self) -> None:
        deadline = time.monotonic() + scaled_seconds(VANISH_SECONDS_MAX)
        while members := self.tree():
            for process in members:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            if time.monotonic() > deadline:
                left = ", ".join(_describe(process) for process in members)
                raise ServiceError(f"{self.name}: killed processes do not end: {left}")
            self._process.poll()
            time.sleep(POLL_SECONDS)
        await_killed(self._process, self.name)
        self._is_gone = True


def stop_all(services: Iterable[ServiceProcess]) -> list[str]:
    """Stop all services side by side; what had to be killed because it had not ended in time."""
    stopping = list(services)
    for service in stopping:
        service.ask_to_stop()
    deadline = time.monotonic() + scaled_seconds(STOP_SECONDS_MAX)
    return [left for service in stopping for left in service.await_stop(deadline)]


@contextmanager
def terminated_as_interrupt() -> Iterator[list[int]]:
    """Within, SIGTERM and SIGHUP end the main thread as Ctrl-C does, so that one way of cleaning up serves them all.

    Gives the list of the signals that came: code that is interrupted may turn the interrupt into an error of its own
    (Py4J does, when it waits for Java).
    """
    noted: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        noted.append(number)
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield noted
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Within, Ctrl-C and SIGTERM are only recorded, and raise KeyboardInterrupt at the end.

    Between a process's start and the moment when other code is responsible for it, an interrupt would leave it behind.
    Signals interrupt the main thread only: other threads have nothing to defer, and a thread that waits for them waits
    first.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noted: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = {number: signal.signal(number, lambda caught, _frame: noted.append(caught)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if noted:
        raise KeyboardInterrupt


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Within, Ctrl-C and SIGTERM wait: cleaning up is bounded by its own deadlines and must be done whole."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def lives(process: psutil.Process) -> bool:
    """Whether it can still do something; a zombie only waits to be collected by its parent."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.name()}"
    except psutil.NoSuchProcess:
        return str(process.pid)
