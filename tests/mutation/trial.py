"""One trial: a process of its own in which one guard is flipped, and everything that should notice it.

The checks go from cheap to dear and stop at the first that notices: scenarios, simulated histories, unit tests of the
machines, the exhaustive search. The flipped module is put in place by an import hook; no file is touched.
The process is forked from one that has imported everything but Headgate, which saves most of a trial's start.
"""

import ast
import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

__all__ = ["SEEDS", "run_checks", "warm_up", "with_module"]

TESTS = Path(__file__).parents[1]

SEEDS = 150
"""Simulated histories a flip must survive to count as a survivor: about twenty seconds of one core."""

SCENARIOS = ("scenarios",)
UNIT = ("unit/coordinator", "unit/agent/test_machine.py", "unit/agent/test_service.py")
EXHAUSTIVE = ("simulation/test_exhaustive.py",)

_TWICE = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""pytest says that it comes second in a process; every warning is an error here."""


class _Flipped(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, name: str, tree: ast.Module) -> None:
        self._name = name
        self._tree = tree

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(fullname)
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__file__ is not None
        exec(compile(self._tree, module.__file__, "exec"), module.__dict__)  # noqa: S102 - this is what a trial is


def with_module(name: str, tree: ast.Module) -> None:
    """From now on this process imports ``tree`` as module ``name``; refuses if it has been imported already."""
    if name in sys.modules:
        raise RuntimeError(f"{name} is imported already: the trial would test the unflipped module")
    sys.meta_path.insert(0, _Flipped(name, tree))


def warm_up() -> None:
    """Import what every check needs and no module under trial: a fork then starts with it."""
    for name in ("msgspec", "fastavro", "confluent_kafka", "structlog", "orjson", "yaml", "pydantic"):
        importlib.import_module(name)
    gc.freeze()


def run_checks(seeds: int = SEEDS, *, is_quick: bool = False) -> str | None:
    """Run the checks in this process, in order: the name of the first that noticed, None if none did.

    ``is_quick`` leaves out the search, which costs a minute: for a first look at new guards.
    """
    os.chdir(TESTS.parent)
    logging.getLogger("headgate").setLevel(logging.CRITICAL)
    checks: dict[str, Callable[[], bool]] = {
        "scenarios": lambda: _passes(SCENARIOS),
        "simulation": lambda: _histories_hold(seeds),
        "unit tests": lambda: _passes(UNIT),
        "exhaustive search": lambda: _passes(EXHAUSTIVE),
    }
    if is_quick:
        del checks["exhaustive search"]
    return next((name for name, holds in checks.items() if not holds()), None)


def _passes(folders: tuple[str, ...]) -> bool:
    arguments = [
        "-x",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "--no-header",
        "--hypothesis-seed=0",
        *_TWICE,
    ]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return pytest.main([*arguments, *(str(TESTS / folder) for folder in folders)]) == pytest.ExitCode.OK


def _histories_hold(seeds: int) -> bool:
    from headgate.simulation.campaign import TICKS, play  # only now, after the flip
    from headgate.simulation.profile import draw_profile

    return all(play(draw_profile(seed, ticks=TICKS)).finding is None for seed in range(seeds))
