"""Trials side by side, each in a fork of a process that has done what all of them need."""

import gc
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from mutation.checks import ALL, open_session
from mutation.patching import live_functions
from mutation.trial import HANGS, Trial, Trials, in_a_fork
from mutation.verdicts import Verdict

__all__ = ["BrokenCodeError", "campaign"]

Run = Callable[[], str | None]


class BrokenCodeError(Exception):
    """A check fails on the code as it stands."""


@dataclass(frozen=True)
class _Running:
    trial: Trial | None
    began: float
    answer: int


def campaign(wanted: list[Trial], trials: Trials, jobs: int, tell: Callable[[Verdict], None]) -> None:
    """Try all, ``jobs`` at a time, and tell every verdict when it is known. Raises BrokenCodeError.

    Guards that work while modules are imported come first, as long as this process has imported none.
    """
    early = [trial for trial in wanted if trials.is_early(trial)]
    late = [trial for trial in wanted if trial not in early]
    _run([(trial, trials.early(trial)) for trial in early], jobs, tell)

    def work(items: dict[str, pytest.Item]) -> None:
        gc.unfreeze()  # tests/conftest.py has frozen what was collected, and what is frozen cannot be listed
        functions = live_functions(sorted({trial.file for trial in late}))
        if late and not functions:
            raise BrokenCodeError(
                "flipping in place: no function of the machines can be found, so nothing would be flipped"
            )
        gc.collect()
        gc.freeze()
        runs: list[tuple[Trial | None, Run]] = [(None, trials.baseline(items))]
        _run([*runs, *((trial, trials.late(trial, items, functions)) for trial in late)], jobs, tell)

    open_session(work, ALL)


def _run(runs: Iterable[tuple[Trial | None, Run]], jobs: int, tell: Callable[[Verdict], None]) -> None:
    """A run without a trial is of the code as it stands: whatever it notices ends the campaign."""
    waiting = list(runs)[::-1]
    running: dict[int, _Running] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            trial, run = waiting.pop()
            pid, answer = in_a_fork(run)
            running[pid] = _Running(trial, time.monotonic(), answer)
        pid, _status = os.wait()
        ended = running.pop(pid)
        with os.fdopen(ended.answer) as pipe:
            said = pipe.read()
        noticed_by = HANGS if said == "" else (json.loads(said) or None)
        if ended.trial is not None:
            guard, seconds = ended.trial.guard, round(time.monotonic() - ended.began, 1)
            tell(Verdict(ended.trial.module, guard.name, guard.line, noticed_by, seconds))
        elif noticed_by is not None:
            raise BrokenCodeError(noticed_by)
