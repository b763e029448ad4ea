"""Somebody is met at a crash point: what becomes of him must not become of the campaign."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace

import psutil
import pytest

from headgate.config.crash_points import CrashPoint
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.chaos import points
from headgate_lab.chaos.points import Doom, all_cells, strike_at
from headgate_lab.parts.processes import ServiceProcess
from support.waiting import eventually

PARENT = "import subprocess, sys, time; subprocess.Popen([sys.argv[1], '1000']); time.sleep(1000)"
DEADLINE_SECONDS = scaled_seconds(60)


def test_workers_die_only_where_workers_come_by() -> None:
    cells = list(all_cells())
    assert len(cells) == len(set(cells)) == 21
    assert [point for point, doom in cells if doom is Doom.WORKER_KILLED] == [
        CrashPoint.ROWS_SENT, CrashPoint.BEFORE_COMMIT, CrashPoint.COMMITTED,
    ]  # fmt: skip


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A process with a child called java under it, as an agent has."""
    java = tmp_path / "java"
    shutil.copy(str(shutil.which("sleep")), java)
    service = ServiceProcess("agent-1", ("-c", PARENT, str(java)), {}, tmp_path, program=(sys.executable,))
    try:
        eventually(lambda: any(one.name() == "java" for one in service.tree()))
        yield service
    finally:
        service.kill()


def states(service: ServiceProcess) -> list[str]:
    return [one.status() for one in service.tree()]


@pytest.mark.timeout(DEADLINE_SECONDS * 2)
def test_nobody_waits_for_the_spark_of_an_agent_that_stands_still(
    agent: ServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed child stays until its parent has looked at it, which a stopped parent does not."""

    def stands(_point: CrashPoint, _seconds: float) -> int:
        os.kill(agent.pid, signal.SIGSTOP)
        eventually(lambda: psutil.Process(agent.pid).status() == psutil.STATUS_STOPPED)
        return agent.pid

    armed: list[CrashPoint] = []
    world = SimpleNamespace(
        points={"agent-1": SimpleNamespace(arm=armed.append, await_reached=stands)},
        services=SimpleNamespace(running={"agent-1": agent}),
    )
    monkeypatch.setattr(points, "_victim", lambda *_, **__: ("agent-1", frozenset({"public.orders"})))
    monkeypatch.setattr(points, "held_by", lambda *_: ("session", frozenset()))
    wound = strike_at(world, CrashPoint.BEFORE_CHECKPOINT, Doom.JVM_KILLED, Random(0))  # type: ignore[arg-type]  # noqa: S311
    assert (armed, wound.victim, wound.touched) == ([CrashPoint.BEFORE_CHECKPOINT], "agent-1", frozenset())
    eventually(lambda: psutil.STATUS_STOPPED not in states(agent))
    eventually(lambda: points.jvm_of(agent) is None, "the agent goes on without its Spark")
