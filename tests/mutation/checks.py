"""Everything that should notice a flip: the tests, which lines each of them reaches, and simulated histories.

Tests are collected once, by a pytest session that stays open while forks of it run what a flip needs: those that
reach the flipped line, the cheapest first. A test that does not reach it cannot notice.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pytest

__all__ = [
    "ALL",
    "CONTROL_PLANE",
    "DEAR_KINDS",
    "KINDS",
    "Survey",
    "Test",
    "histories_hold",
    "is_about",
    "open_session",
    "passes",
    "room_of",
    "survey",
]

TESTS = Path(__file__).parents[1]

KINDS = {
    "scenarios": ("scenarios",),
    "unit tests": (
        *("unit/coordinator", "unit/agent/test_machine.py", "unit/agent/test_span.py"),
        *("unit/runtime/test_leases.py", "unit/runtime/test_kind.py"),
        *("unit/generation", "unit/cli/test_generation_graphs.py"),
        *("unit/migration/test_approvals.py", "unit/migration/test_copy_steps.py"),
        "unit/migration/test_decisions.py",
        *("unit/migration/test_events.py", "unit/migration/test_explain.py"),
        *("unit/migration/test_feed_seen.py", "unit/migration/test_progress_of_stages.py"),
        *("unit/migration/test_spec.py", "unit/migration/test_state.py", "unit/migration/test_transitions.py"),
        *("unit/migration/test_turns.py", "unit/migration/test_way_back.py"),
    ),
    "simulation": (
        *("simulation/test_switches.py", "simulation/test_timestamp_sets.py", "simulation/test_migrations.py"),
    ),
    "exhaustive search": ("simulation/test_exhaustive.py", "simulation/test_migrations_exhaustive.py"),
}
"""Kind of check → its tests, in the order in which they are tried."""

DEAR_KINDS = ("simulation", "exhaustive search")
"""Their tests reach about everything in their room, and cost minutes: the survey neither runs nor traces them."""

ROOMS = {
    "headgate.generation": ("simulation/test_switches.py", "simulation/test_timestamp_sets.py"),
    "headgate.migration": ("simulation/test_migrations.py", "simulation/test_migrations_exhaustive.py"),
    "headgate": ("simulation/test_exhaustive.py",),
}
"""Beginning of a module's name → the dear tests that can notice its flips; the first that fits counts."""

CONTROL_PLANE = "headgate"
"""The room that the histories of ``headgate sim`` are about."""

ALL = tuple(folder for folders in KINDS.values() for folder in folders)
"""Everything that is collected."""

WIDE_TESTS = "test_histories.py"
"""They reach about everything, and would cost thrice as much if they were looked at."""

SHELL_TESTS = (
    *("test_service.py", "test_effect_log.py", "test_timestamp_streams.py", "test_shared_tail.py"),
    *("generation/test_metrics.py", "test_change_checks.py"),
)
"""Real threads and real leases: on a busy machine they would notice what is not there. And the log, silent here."""

OPTIONS = (
    *("-qq", "-s", "--no-header", "--no-summary", "--timeout=0", "--hypothesis-seed=0"),
    *(f"-pno:{name}" for name in ("randomly", "cacheprovider")),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
"""Same order always, nothing written down, no alarms but ours; and pytest may come second in a process."""

Line = tuple[str, int]


@dataclass(frozen=True)
class Test:
    """One test, its cost in seconds of a core, and the lines of the machines that it reaches; None: nobody looked."""

    __test__ = False

    name: str
    kind: str
    seconds: float
    lines: frozenset[Line] | None


@dataclass(frozen=True)
class Survey:
    """All tests, cheapest first within a kind, and the lines that ran while modules were imported."""

    tests: tuple[Test, ...]
    imported: frozenset[Line]

    def reaching(self, kind: str, file: str, lines: range, function: range) -> list[Test]:
        """Tests of a kind that reach one of the lines; behind them those that at least enter the function."""
        wanted = [test for test in self.tests if test.kind == kind]
        at = {(file, line) for line in lines}
        around = {(file, line) for line in function} - at
        near = [test for test in wanted if test.lines is None or test.lines & at]
        return near + [test for test in wanted if test not in near and test.lines is not None and test.lines & around]


class _Session:
    """The pytest plugin: hands the collected tests to ``work`` in place of running them."""

    def __init__(self, work: Callable[[dict[str, pytest.Item]], None]) -> None:
        self._work = work

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise RuntimeError("the tests cannot be collected")
        self._work(
            {
                item.nodeid: item
                for item in session.items
                if not any(name in item.nodeid for name in SHELL_TESTS) and item.get_closest_marker("long") is None
            }
        )
        return True


def open_session(work: Callable[[dict[str, pytest.Item]], None], folders: Sequence[str]) -> None:
    """Collect the tests of ``folders`` and call ``work`` with them, by name."""
    os.chdir(TESTS.parent)
    code = pytest.main([*OPTIONS, *(str(TESTS / folder) for folder in folders)], plugins=[_Session(work)])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RuntimeError(f"pytest ended with {code}")


def kind_of(name: str) -> str:
    """The kind of check a test belongs to."""
    path = name.partition("::")[0].removeprefix("tests/")
    return next(kind for kind, folders in KINDS.items() if any(path.startswith(folder) for folder in folders))


def room_of(module: str) -> str:
    """The beginning of the module's name that ``ROOMS`` knows."""
    return next(room for room in ROOMS if module.startswith(room))


def is_about(test: str, module: str | None) -> bool:
    """Whether a dear test can notice flips of the module; None stands for every module."""
    return module is None or any(part in test for part in ROOMS[room_of(module)])


def passes(item: pytest.Item) -> bool:
    """Run one collected test, setup and teardown included."""
    from _pytest.runner import runtestprotocol

    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


class _Tracer:
    """Notes which lines of some files run."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = frozenset(files)
        self.lines: set[Line] = set()

    def __enter__(self) -> Self:
        if self._files:
            sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


def survey(files: Sequence[str]) -> Survey | str:
    """Import and run everything that ``KINDS`` names on the code as it stands: the survey, or a test that fails.

    Tests of ``DEAR_KINDS`` are only listed.
    """
    tests: list[Test] = []
    failed: list[str] = []

    def look(items: dict[str, pytest.Item]) -> None:
        sys.settrace(None)
        for name, item in items.items():
            kind = kind_of(name)
            if kind in DEAR_KINDS:
                tests.append(Test(name, kind, 0.0, None))
                continue
            is_wide = WIDE_TESTS in name
            began = time.process_time()
            with _Tracer(() if is_wide else files) as tracer:
                if not passes(item):
                    failed.append(name)
            lines = None if is_wide else frozenset(tracer.lines)
            tests.append(Test(name, kind, time.process_time() - began, lines))

    with _Tracer(files) as importing:
        open_session(look, ALL)
    return failed[0] if failed else Survey(tuple(sorted(tests, key=_cost)), frozenset(importing.lines))


def _cost(test: Test) -> float:
    return test.seconds


def histories_hold(seeds: int) -> bool:
    """Simulated histories of the first ``seeds`` seeds."""
    from headgate_lab.simulation.campaign import TICKS, play  # only now: the flip may have to come first
    from headgate_lab.simulation.profile import draw_profile

    return all(play(draw_profile(seed, ticks=TICKS)).finding is None for seed in range(seeds))
