"""One trial: a fork in which one guard is flipped, and the checks that should notice, until the first that does.

The fork comes from a process that has imported and collected everything, so a trial costs what its checks cost. A
limit of processor time ends a flip that runs for ever; a busy machine does not count against it.
"""

import contextlib
import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType

import pytest

from mutation.checks import (
    ALL,
    CONTROL_PLANE,
    DEAR_KINDS,
    KINDS,
    Survey,
    Test,
    histories_hold,
    is_about,
    open_session,
    passes,
    room_of,
)
from mutation.guards import Guard, flipped
from mutation.patching import Place, flip_in_place, import_flipped

__all__ = ["HANGS", "Trial", "Trials", "in_a_fork"]

TRIAL_SECONDS_MAX = 600
"""Of one core. A flip may make a loop endless: a trial longer than this has been noticed. Thrice a survivor's."""

MEMORY_BYTES_MAX = 6 << 30
"""An endless loop that collects something must not take the machine with it."""

QUICK_SECONDS = 1.0
"""Dearer tests, under the survey's tracer, are left out of a quick look."""

HANGS = "time limit"

SIMULATION = "simulation"
"""The kind to which the histories of ``headgate sim`` belong, beside its tests."""


@dataclass(frozen=True)
class Trial:
    """A guard of a module, and the module's file and text."""

    module: str
    file: str
    source: str
    guard: Guard


@dataclass(frozen=True)
class Trials:
    """How trials are run: ``is_quick`` leaves out the search and whatever else is dear."""

    survey: Survey
    seeds: int
    is_quick: bool

    def is_early(self, trial: Trial) -> bool:
        """Whether the guard decides something while modules are imported, or stands in no function."""
        lines = range(trial.guard.line, trial.guard.last_line + 1)
        return trial.guard.function is None or any((trial.file, line) in self.survey.imported for line in lines)

    def late(
        self, trial: Trial, items: dict[str, pytest.Item], functions: dict[Place, list[FunctionType]]
    ) -> Callable[[], str | None]:
        """The trial in a fork of a process that has imported everything: who noticed."""

        def run() -> str | None:
            flip_in_place(flipped(trial.source, trial.guard), trial.file, functions)
            return self._noticed(trial, items)

        return run

    def early(self, trial: Trial) -> Callable[[], str | None]:
        """The trial in a fork of a process that has imported nothing of ours: who noticed."""

        def run() -> str | None:
            noticed: list[str | None] = []
            import_flipped(trial.module, flipped(trial.source, trial.guard))
            try:
                open_session(lambda items: noticed.append(self._noticed(None, items)), ALL)
            except RuntimeError:
                return "import"
            return noticed[0]

        return run

    def baseline(self, items: dict[str, pytest.Item]) -> Callable[[], str | None]:
        """All checks on the code as it stands: they have to pass in a fork, too."""
        return lambda: self._noticed(None, items)

    def _noticed(self, trial: Trial | None, items: dict[str, pytest.Item]) -> str | None:
        """Name of the kind and the test, the kinds in their order."""
        for kind in KINDS:
            if kind in DEAR_KINDS and self.is_quick:
                continue
            if kind == SIMULATION and self._plays_histories(trial) and not histories_hold(self.seeds):
                return SIMULATION
            for name in self._tests(trial, kind):
                if name in items and not passes(items[name]):
                    return f"{kind}: {name}"
        return None

    def _plays_histories(self, trial: Trial | None) -> bool:
        return trial is None or room_of(trial.module) == CONTROL_PLANE

    def _tests(self, trial: Trial | None, kind: str) -> list[str]:
        if kind in DEAR_KINDS:
            module = None if trial is None else trial.module
            return [test.name for test in self.survey.tests if test.kind == kind and is_about(test.name, module)]
        if trial is None:
            return [test.name for test in self.survey.tests if test.kind == kind and self._is_wanted(test)]
        function = trial.guard.function or range(0)
        lines = range(trial.guard.line, trial.guard.last_line + 1)
        reaching = self.survey.reaching(kind, trial.file, lines, function)
        return [test.name for test in reaching if self._is_wanted(test)]

    def _is_wanted(self, test: Test) -> bool:
        return not self.is_quick or test.seconds < QUICK_SECONDS


def in_a_fork(run: Callable[[], str | None]) -> tuple[int, int]:
    """Start ``run`` in a fork: its process id, and a file descriptor on which its answer comes as JSON."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, ours
    noticed_by: str | None = "error"
    try:
        os.close(ours)
        with _bounded():
            noticed_by = run()
    finally:
        os.write(theirs, json.dumps(noticed_by).encode())
        os._exit(0)


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Silence, and limits whose breach ends the process without a word: the parent then reads an empty answer."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, TRIAL_SECONDS_MAX)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    yield
