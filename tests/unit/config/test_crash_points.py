"""A process stands still where it was told to, once, and only if it was started so."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.config.crash_points import VARIABLE, ArmedPoints, CrashPoint, reach
from headgate.provisioning.time_scale import scaled_seconds

SECONDS = scaled_seconds(120)
"""For a process to start and get somewhere."""

WALK = """
from headgate.config.crash_points import CrashPoint, reach
for point in (*CrashPoint, *CrashPoint):
    reach(point)
print('through')
"""


def walk(variables: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", WALK], env=os.environ | variables, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("point", CrashPoint)
def test_one_process_stands_still_at_an_armed_point_until_it_is_woken_up(tmp_path: Path, point: CrashPoint) -> None:
    armed = ArmedPoints(tmp_path)
    armed.arm(point)
    with walk(armed.variables) as first:
        assert armed.await_reached(point, SECONDS) == first.pid
        with walk(armed.variables) as second:
            assert second.communicate(timeout=SECONDS)[0] == "through\n"
        assert first.poll() is None
        first.send_signal(signal.SIGCONT)
        assert first.communicate(timeout=SECONDS)[0] == "through\n"


def test_nobody_stops_at_a_point_that_is_not_armed(tmp_path: Path) -> None:
    armed = ArmedPoints(tmp_path)
    armed.arm(CrashPoint.COMMITTED)
    armed.disarm()
    with walk(armed.variables) as process:
        assert process.communicate(timeout=SECONDS)[0] == "through\n"
    with pytest.raises(TimeoutError, match="committed"):
        armed.await_reached(CrashPoint.COMMITTED, 0)


def test_without_the_variable_there_are_no_points() -> None:
    assert VARIABLE not in os.environ
    for point in CrashPoint:
        reach(point)
