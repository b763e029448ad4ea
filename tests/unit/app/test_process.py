"""Parts of a process: how they end, by themselves and by a signal."""

import os
import signal
import subprocess
import threading

import pytest

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.app.process import Part, run_parts
from support.waiting import END_SECONDS_MAX


def _patient(name: str, ended: list[str]) -> Part:
    stop = threading.Event()

    def run() -> None:
        stop.wait()
        ended.append(name)

    return Part(name, run, stop.set)


def test_a_signal_stops_all_in_order_and_handlers_are_restored() -> None:
    ended: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    sender = Part("sender", lambda: os.kill(os.getpid(), signal.SIGTERM), lambda: None)
    run_parts([_patient("agent", ended), _patient("coordinator", ended), sender], 30)
    assert ended == ["agent", "coordinator"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_one_part_ending_ends_the_others_and_its_error_is_raised() -> None:
    ended: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        run_parts([_patient("agent", ended), Part("bad", fail, lambda: None)], 30)
    assert ended == ["agent"]


def test_a_part_that_does_not_end_is_named() -> None:
    never = threading.Event()
    stuck = Part("stuck", never.wait, lambda: None)
    with pytest.raises(CommandError, match=r"stuck: no clean stop within 0\.2 s") as late:
        run_parts([stuck, Part("done", lambda: None, lambda: None)], 0.2)
    assert late.value.code is ExitCode.STOPPED_HARD
    never.set()


def test_what_a_stuck_part_has_started_ends_with_it_and_nothing_else() -> None:
    never, begun, started = threading.Event(), threading.Event(), []
    stranger = subprocess.Popen(["sleep", "600"])

    def run() -> None:
        started.append(subprocess.Popen(["sleep", "600"]))
        begun.set()
        never.wait()

    try:
        with pytest.raises(CommandError, match="stuck"):
            run_parts([Part("stuck", run, lambda: None), Part("done", begun.wait, lambda: None)], 0.2)
        assert started[0].wait(END_SECONDS_MAX) == -signal.SIGKILL
        assert stranger.poll() is None
    finally:
        never.set()
        stranger.kill()
        stranger.wait()


def test_a_part_that_says_it_was_not_clean_is_named() -> None:
    with pytest.raises(CommandError, match="coordinator: no clean stop"):
        run_parts([Part("coordinator", lambda: False, lambda: None)], 5)
