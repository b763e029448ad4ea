"""Every named point of the commit path, under every death and under an overtaking, in running agents.

A process is stopped at the point (``config/crash_points.py``): the agent itself where it claims or reports, a Python
worker where it writes. Then it is killed, or what it works for is, or the whole agent is stopped until others have
claimed its tables and written them, and it wakes up in the middle of what it was doing.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from random import Random
from typing import Final

import psutil

from headgate.config.crash_points import CrashPoint
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.chaos.faults import FREEZE_LEASES, Wound
from headgate_lab.chaos.victims import elsewhere, held_by, jvm_of, thaw
from headgate_lab.chaos.world import CampaignParts
from headgate_lab.demo.stack import FEED
from headgate_lab.demo.tables import busiest_agent, holders
from headgate_lab.parts.commands import run_command
from headgate_lab.parts.processes import ServiceError

REACHED_SECONDS_MAX: Final = 240.0
"""A moved table comes in seconds; where its agent has to start Spark first, on a busy machine, in minutes."""

MOVE_SECONDS: Final = "30"

CLAIMS: Final = (CrashPoint.BEFORE_CLAIM, CrashPoint.AFTER_CLAIM)
NOT_MET: Final = frozenset({CrashPoint.ALTERED, CrashPoint.COMPACTED})
"""Points that no process reaches: the feed's tables are created by hand, no column is added, and none is a lake's."""
OF_WORKERS: Final = (CrashPoint.ROWS_SENT, CrashPoint.BEFORE_COMMIT, CrashPoint.COMMITTED)


class Doom(StrEnum):
    """What happens to the process at a point."""

    WORKER_KILLED = "worker_killed"
    JVM_KILLED = "jvm_killed"
    """Its Spark is killed, then it continues: a worker without a master, a driver without workers."""
    AGENT_KILLED = "agent_killed"
    OVERTAKEN = "overtaken"
    """The whole agent is stopped until others have claimed and written, then continues."""


def all_cells() -> Iterator[tuple[CrashPoint, Doom]]:
    """Every point with every doom that can be met there."""
    for point in (point for point in CrashPoint if point not in NOT_MET):
        for doom in Doom:
            if doom is not Doom.WORKER_KILLED or point in OF_WORKERS:
                yield point, doom


def strike_at(world: CampaignParts, point: CrashPoint, doom: Doom, random: Random) -> Wound:
    """Stop an agent, or a worker of it, at ``point``, and let ``doom`` happen to it.

    Raises TimeoutError if no process reaches the point, though tables are written, and moved if the point needs a
    claim.
    """
    agent, tables = _victim(world, random, by_move=point in CLAIMS)
    world.points[agent].arm(point)
    if point in CLAIMS:
        _move(world, min(tables), agent)
    pid = world.points[agent].await_reached(point, scaled_seconds(REACHED_SECONDS_MAX))
    session, held = held_by(world, agent)
    tables |= held
    service = world.services.running[agent]
    name = f"{doom} {point}"
    match doom:
        case Doom.WORKER_KILLED:
            os.kill(pid, signal.SIGKILL)
            return _unnoticed(name, agent, tables)
        case Doom.JVM_KILLED:
            spark = jvm_of(service)
            if spark is not None:
                # Not waited for: if the agent itself is stopped, its exit status is not collected.
                with suppress(psutil.NoSuchProcess):
                    spark.kill()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            return _unnoticed(name, agent, tables)
        case Doom.AGENT_KILLED:
            service.kill()
            return Wound(
                name=name,
                victim=agent,
                touched=frozenset({agent}),
                tables=tables,
                heal=lambda: world.services.start_agent(agent),
                over=elsewhere(session, tables),
            )
        case Doom.OVERTAKEN:
            service.freeze()
            return Wound(
                name=name,
                victim=agent,
                touched=frozenset({agent}),
                tables=tables,
                hold_seconds=FREEZE_LEASES * world.lease_seconds,
                heal=lambda: thaw(service),
                over=elsewhere(session, tables),
            )


def _unnoticed(name: str, agent: str, tables: frozenset[str]) -> Wound:
    """No lease is lost by it: the agent puts it right within its session."""
    return Wound(name=name, victim=agent, tables=tables)


def _victim(world: CampaignParts, random: Random, *, by_move: bool) -> tuple[str, frozenset[str]]:
    """The agent that should reach the point, and its tables: the busiest, or the agent that a table is moved to."""
    with world.watch.condition:
        roles = holders(world.watch.seen.snapshot)
        busiest = busiest_agent(world.watch.seen.snapshot)
    if busiest is None:
        raise TimeoutError("no table replicates: no agent comes to any point")
    if not by_move:
        return busiest, frozenset(table for table, role in roles.items() if role.agent == busiest)
    table = random.choice(sorted(table for table, role in roles.items() if role.agent == busiest))
    return random.choice(sorted(set(world.services.agents) - {busiest})), frozenset({table})


def _move(world: CampaignParts, table: str, agent: str) -> None:
    """Ask for it and do not wait: the agent that would finish it is stopped."""

    def ask() -> None:
        with suppress(ServiceError):  # what becomes of the move is what the campaign makes of it
            run_command(
                world.services.settings, "table", "move", FEED, table, agent, "--timeout", MOVE_SECONDS, "-o", "json"
            )

    threading.Thread(target=ask, name="chaos-move", daemon=True).start()
