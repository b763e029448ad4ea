"""The faults of a campaign: what each does, which services it touches, when it is over, and how it is repaired.

A fault touches the services that may lose a lease by it. The others must come through: a slow network, a database that
restarts, or a worker that dies is not a reason to lose a session.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from random import Random
from typing import Final

import msgspec
import psutil

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.chaos.proxy import Link
from headgate_lab.chaos.victims import (
    an_agent,
    another_decides,
    elsewhere,
    held_by,
    jvm_of,
    part_of_agent,
    thaw,
    the_owner,
    worker_of,
)
from headgate_lab.chaos.world import CampaignParts, Server
from headgate_lab.demo.services import COORDINATORS, PASSWORD_FILE
from headgate_lab.demo.watch import Chronicle, WatchError

EVERYBODY: Final = "everybody"

FREEZE_LEASES: Final = 2.0
"""Past one's own lease, and past that of the process that looks after it; longer if others have not taken over yet."""

STALL_LEASES: Final = 1.5
"""For what costs no lease: long enough that a lease lost by it shows."""

DOWN_SECONDS: Final = 1.0
"""How long a killed server stays down before it is started again."""

STANDBY_SECONDS: Final = 3.0
"""Between a fail-over and the promotion: long enough that every table meets the standby."""

SECRET_SECONDS: Final = 3.0
"""How much later than the database the secret has the new password."""

SESSIONS_SECONDS_MAX: Final = 40.0
"""An operator pauses the feed for seconds; agents that replicate have sessions."""

POLL_SECONDS: Final = 0.2


class FaultKind(StrEnum):
    """What can happen."""

    AGENT_KILLED = "agent_killed"
    AGENT_FROZEN = "agent_frozen"
    JVM_KILLED = "jvm_killed"
    WORKER_KILLED = "worker_killed"
    WORKER_FROZEN = "worker_frozen"
    OWNER_KILLED = "owner_killed"
    OWNER_FROZEN = "owner_frozen"
    STANDBY_KILLED = "standby_killed"
    AGENT_CUT_OFF = "agent_cut_off"
    AGENT_SILENCED = "agent_silenced"
    AGENT_SLOWED = "agent_slowed"
    OWNER_SILENCED = "owner_silenced"
    SINK_CUT_OFF = "sink_cut_off"
    SINK_SILENCED = "sink_silenced"
    SINK_DEAFENED = "sink_deafened"
    BROKER_RESTARTED = "broker_restarted"
    DATABASE_RESTARTED = "database_restarted"
    DATABASE_FAILED_OVER = "database_failed_over"
    PASSWORD_ROTATED = "password_rotated"  # noqa: S105 - the name of a fault


class Wound(msgspec.Struct, frozen=True, kw_only=True):
    """A fault under way. ``victim`` is a service or server, ``touched`` the services that may lose their lease by it.

    ``over`` checks on the log whether others have taken over (None: no service can take over), ``heal`` repairs what
    was done, at the earliest ``hold_seconds`` after the strike (None: those struck do so themselves). ``recovered``
    asks the target whether those struck have recovered from it (None: the log shows it). ``tables`` are those that the
    victim ran. ``holds_up``: a campaign of the victim's may come late and depose a living owner.
    """

    name: str
    victim: str
    touched: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    holds_up: bool = False
    hold_seconds: float = 0.0
    heal: Callable[[], object] | None = None
    over: Callable[[Chronicle], bool] | None = None
    recovered: Callable[[], bool] | None = None


def strike(world: CampaignParts, kind: FaultKind, random: Random, busy: set[str]) -> Wound | None:
    """Strike a victim that is not ``busy`` with another fault, now; None if there is none."""
    struck = _STRIKES[kind](world, random, busy)
    if struck is not None:
        busy.add(struck.victim)
    return struck


Strike = Callable[[CampaignParts, Random, set[str]], Wound | None]


# --- processes --------------------------------------------------------------------------------------------------


def _agent_killed(world: CampaignParts, random: Random, busy: set[str]) -> Wound | None:
    agent = an_agent(world, random, busy)
    if agent is None:
        return None
    session, tables = held_by(world, agent)
    world.services.running[agent].kill()
    return Wound(
        name=FaultKind.AGENT_KILLED,
        victim=agent,
        touched=frozenset({agent}),
        tables=tables,
        hold_seconds=DOWN_SECONDS,
        heal=lambda: world.services.start_agent(agent),
        over=elsewhere(session, tables),
    )


def _agent_frozen(world: CampaignParts, random: Random, busy: set[str]) -> Wound | None:
    agent = an_agent(world, random, busy)
    if agent is None:
        return None
    session, tables = held_by(world, agent)
    service = world.services.running[agent]
    service.freeze()
    return Wound(
        name=FaultKind.AGENT_FROZEN,
        victim=agent,
        touched=frozenset({agent}),
        tables=tables,
        hold_seconds=FREEZE_LEASES * world.lease_seconds,
        heal=lambda: thaw(service),
        over=elsewhere(session, tables),
    )


def _jvm_killed(world: CampaignParts, random: Random, busy: set[str]) -> Wound | None:
    found = part_of_agent(world, random, busy, jvm_of)
    if found is None:
        return None
    agent, process, tables = found
    with suppress(psutil.NoSuchProcess):
        process.kill()
    return Wound(name=FaultKind.JVM_KILLED, victim=agent, tables=tables)


def _worker_killed(world: CampaignParts, random: Random, busy: set[str]) -> Wound | None:
    found = part_of_agent(world, random, busy, worker_of)
    if found is None:
        return None
    agent, process, tables = found
    with suppress(psutil.NoSuchProcess):
        process.kill()
    return Wound(name=FaultKind.WORKER_KILLED, victim=agent, tables=tables)


def _worker_frozen(world: CampaignParts, random: Random, busy: set[str]) -> Wound | None:
    found = part_of_agent(world, random, busy, worker_of)
    if found is None:
        return None
    agent, process, tables = found

    def heal() -> None:
        with suppress(psutil.NoSuchProcess):
            process.resume()

    with suppress(psutil.NoSuchProcess):
        process.suspend()
    return Wound(
        name=FaultKind.WORKER_FROZEN,
        victim=agent,
        tables=tables,
        hold_seconds=STALL_LEASES * world.lease_seconds,
        heal=heal,
    )


def _owner_killed(world: CampaignParts, _random: Random, busy: set[str]) -> Wound | None:
    found = the_owner(world, busy)
    if found is None:
        return None
    service, term = found
    service.kill()
    return Wound(
        name=FaultKind.OWNER_KILLED,
        victim=service.name,
        touched=frozenset({service.name}),
        hold_seconds=DOWN_SECONDS,
        heal=lambda: world.services.start_coordinator(service.name),
        over=another_decides(term),
    )


def _owner_frozen(world: CampaignParts, _random: Random, busy: set[str]) -> Wound | None:
    found = the_owner(world, busy)
    if found is None:
        return None
    service, term = found
    service.freeze()
    return Wound(
        name=FaultKind.OWNER_FROZEN,
        victim=service.name,
        touched=frozenset({service.name}),
        holds_up=True,
        hold_seconds=FREEZE_LEASES * world.lease_seconds,
        heal=lambda: thaw(service),
        over=another_decides(term),
    )


def _standby_killed(world: CampaignParts, _random: Random, busy: set[str]) -> Wound | None:
    owner = the_owner(world, set())
    standby = next(name for name in COORDINATORS if owner is None or name != owner[0].name)
    if standby in busy:
        return None
    world.services.running[standby].kill()
    return Wound(
        name=FaultKind.STANDBY_KILLED,
        victim=standby,
        touched=frozenset({standby}),
        hold_seconds=DOWN_SECONDS,
        heal=lambda: world.services.start_coordinator(standby),
    )


# --- links ------------------------------------------------------------------------------------------------------


def _link(kind: FaultKind, server: Server, link: Link, leases: float) -> Strike:
    """An agent's way to a server. Only the way to the broker carries its lease, and a slow one carries it still."""

    def struck(world: CampaignParts, random: Random, busy: set[str]) -> Wound | None:
        agent = an_agent(world, random, busy)
        if agent is None:
            return None
        loses_lease = server is Server.BROKER and link is not Link.SLOW
        session, tables = held_by(world, agent)
        proxy = world.links[agent, server]
        world.proxies.change(proxy, link)
        return Wound(
            name=kind,
            victim=agent,
            touched=frozenset({agent}) if loses_lease else frozenset(),
            tables=tables,
            hold_seconds=leases * world.lease_seconds,
            heal=lambda: world.proxies.change(proxy, Link.OPEN),
            over=elsewhere(session, tables) if loses_lease else None,
        )

    return struck


def _owner_silenced(world: CampaignParts, _random: Random, busy: set[str]) -> Wound | None:
    found = the_owner(world, busy)
    if found is None:
        return None
    service, term = found
    proxy = world.links[service.name, Server.BROKER]
    world.proxies.change(proxy, Link.SILENT)
    return Wound(
        name=FaultKind.OWNER_SILENCED,
        victim=service.name,
        touched=frozenset({service.name}),
        holds_up=True,
        hold_seconds=FREEZE_LEASES * world.lease_seconds,
        heal=lambda: world.proxies.change(proxy, Link.OPEN),
        over=another_decides(term),
    )


# --- servers ----------------------------------------------------------------------------------------------------


def _broker_restarted(world: CampaignParts, _random: Random, busy: set[str]) -> Wound | None:
    if Server.BROKER in busy:
        return None
    world.kafka.kill()
    return Wound(
        name=FaultKind.BROKER_RESTARTED,
        victim=Server.BROKER,
        touched=frozenset({EVERYBODY}),
        hold_seconds=DOWN_SECONDS,
        heal=world.kafka.start,
    )


def _database_restarted(world: CampaignParts, _random: Random, busy: set[str]) -> Wound | None:
    if Server.DATABASE in busy:
        return None
    world.target.kill()
    return Wound(
        name=FaultKind.DATABASE_RESTARTED,
        victim=Server.DATABASE,
        hold_seconds=DOWN_SECONDS,
        heal=world.target.start,
    )


def _database_failed_over(world: CampaignParts, _random: Random, busy: set[str]) -> Wound | None:
    if Server.DATABASE in busy:
        return None
    world.target.step_down()
    return Wound(
        name=FaultKind.DATABASE_FAILED_OVER,
        victim=Server.DATABASE,
        hold_seconds=STANDBY_SECONDS,
        heal=world.target.step_up,
    )


def _password_rotated(world: CampaignParts, _random: Random, busy: set[str]) -> Wound | None:
    target = world.target
    if Server.DATABASE in busy or not _within_a_while(lambda: target.sessions() > 0):
        return None  # without a session the fault would have no effect
    password = target.rotate_password()

    def all_ended() -> bool:
        target.end_sessions()
        return target.sessions() == 0

    if not _within_a_while(all_ended):
        raise WatchError(f"{FaultKind.PASSWORD_ROTATED}: sessions with the old password do not end")

    def heal() -> None:
        still = target.sessions()
        (world.scratch.folder / PASSWORD_FILE).write_text(password, encoding="utf-8")
        if still:
            raise WatchError(f"{FaultKind.PASSWORD_ROTATED}: the target still takes the old password")

    return Wound(
        name=FaultKind.PASSWORD_ROTATED,
        victim=Server.DATABASE,
        hold_seconds=SECRET_SECONDS,
        heal=heal,
        recovered=lambda: target.sessions() > 0,  # only by the new secret
    )


def _within_a_while(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + scaled_seconds(SESSIONS_SECONDS_MAX)
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


_STRIKES: Final[dict[FaultKind, Strike]] = {
    FaultKind.AGENT_KILLED: _agent_killed,
    FaultKind.AGENT_FROZEN: _agent_frozen,
    FaultKind.JVM_KILLED: _jvm_killed,
    FaultKind.WORKER_KILLED: _worker_killed,
    FaultKind.WORKER_FROZEN: _worker_frozen,
    FaultKind.OWNER_KILLED: _owner_killed,
    FaultKind.OWNER_FROZEN: _owner_frozen,
    FaultKind.STANDBY_KILLED: _standby_killed,
    FaultKind.AGENT_CUT_OFF: _link(FaultKind.AGENT_CUT_OFF, Server.BROKER, Link.CUT, FREEZE_LEASES),
    FaultKind.AGENT_SILENCED: _link(FaultKind.AGENT_SILENCED, Server.BROKER, Link.SILENT, FREEZE_LEASES),
    FaultKind.AGENT_SLOWED: _link(FaultKind.AGENT_SLOWED, Server.BROKER, Link.SLOW, STALL_LEASES),
    FaultKind.OWNER_SILENCED: _owner_silenced,
    FaultKind.SINK_CUT_OFF: _link(FaultKind.SINK_CUT_OFF, Server.DATABASE, Link.CUT, STALL_LEASES),
    FaultKind.SINK_SILENCED: _link(FaultKind.SINK_SILENCED, Server.DATABASE, Link.SILENT, STALL_LEASES),
    FaultKind.SINK_DEAFENED: _link(FaultKind.SINK_DEAFENED, Server.DATABASE, Link.DEAF, STALL_LEASES),
    FaultKind.BROKER_RESTARTED: _broker_restarted,
    FaultKind.DATABASE_RESTARTED: _database_restarted,
    FaultKind.DATABASE_FAILED_OVER: _database_failed_over,
    FaultKind.PASSWORD_ROTATED: _password_rotated,
}
