"""Whom a fault strikes: agents, their processes, the owner; and how the log shows that others have taken over."""

import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

import psutil

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.chaos.world import CampaignParts
from headgate_lab.demo.tables import busiest_agent, holders
from headgate_lab.demo.watch import Chronicle
from headgate_lab.parts.processes import Fate, ServiceProcess

HEAD_START_SECONDS: Final = 1.0
"""How long the writers of a thawed service run before the service itself, whose lease would stop them."""

WORKER_SECONDS_MAX: Final = 40.0
"""Spark starts Python workers with a lane's first batch."""


def an_agent(world: CampaignParts, random: Random, busy: set[str]) -> str | None:
    """The busiest agent, mostly, for its loss shows most; otherwise one that runs tables, if any does."""
    free = set(world.services.agents) - busy
    with world.watch.condition:
        busiest = busiest_agent(world.watch.seen.snapshot)
        working = {role.agent for role in holders(world.watch.seen.snapshot).values()}
    if not free:
        return None
    return busiest if busiest in free and random.random() < 0.7 else random.choice(sorted(free & working or free))


def held_by(world: CampaignParts, agent: str) -> tuple[str, frozenset[str]]:
    """The agent's session, and its tables."""
    with world.watch.condition:
        session = world.watch.seen.sessions[agent][-1]
        now = holders(world.watch.seen.snapshot)
    return session, frozenset(span for span, role in now.items() if role.session == session)


def elsewhere(session: str, tables: frozenset[str]) -> Callable[[Chronicle], bool] | None:
    """Whether all of the tables replicate under another session; None if there are none."""

    def over(seen: Chronicle) -> bool:
        now = holders(seen.snapshot)
        return all(table in now and now[table].session != session for table in tables)

    return over if tables else None


def the_owner(world: CampaignParts, busy: set[str]) -> tuple[ServiceProcess, int] | None:
    """The owner's process and its owner_rev; None while it is busy with another fault."""
    with world.watch.condition:
        term = world.watch.seen.terms[-1]
    service = world.services.owner_process(term.owner_id)
    return None if service.name in busy else (service, term.owner_rev)


def another_decides(former: int) -> Callable[[Chronicle], bool]:
    """Whether an owner after ``former`` (an owner_rev) has decided something."""

    def over(seen: Chronicle) -> bool:
        newest = seen.terms[-1].owner_rev
        return newest > former and newest in seen.decided_at

    return over


def part_of_agent(
    world: CampaignParts, random: Random, busy: set[str], find: Callable[[ServiceProcess], psutil.Process | None]
) -> tuple[str, psutil.Process, frozenset[str]] | None:
    """A process under an agent that runs tables."""
    deadline = time.monotonic() + scaled_seconds(WORKER_SECONDS_MAX)
    while time.monotonic() < deadline:
        agent = an_agent(world, random, busy)
        if agent is None:
            return None
        process = find(world.services.running[agent])
        if process is not None:
            return agent, process, held_by(world, agent)[1]
        time.sleep(0.2)
    return None


def jvm_of(service: ServiceProcess) -> psutil.Process | None:
    """An agent's Spark."""
    return next((one for one in service.tree() if _name(one) == "java"), None)


def worker_of(service: ServiceProcess) -> psutil.Process | None:
    """A forked worker: a child of Spark's daemon, which is itself a child of the JVM."""
    for one in service.tree():
        with suppress(psutil.NoSuchProcess):
            parent = one.parent()
            grandparent = parent.parent() if parent is not None else None
            if grandparent is not None and grandparent.name() == "java":
                return one
    return None


def _name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def thaw(service: ServiceProcess) -> None:
    """Wake up a frozen service, its writers first; it is for itself to find out that its time is over."""
    service.thaw(HEAD_START_SECONDS)
    service.fate = Fate.THAWED
