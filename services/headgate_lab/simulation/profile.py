"""What a seed decides before anything happens: how large the world is, how it is paced, and which faults it has.

Swarm testing (Groce et al., 2012): every seed draws which kinds of fault exist at all and how often they
strike, because a history in which everything fails at once never comes to the deep states.
"""

import math
import random
from typing import Final

import msgspec

__all__ = ["FAULT_RATES", "Profile", "draw_profile"]

FAULT_RATES: Final[dict[str, tuple[float, float]]] = {
    # Per tick and process.
    "kill": (0.0005, 0.006),
    "freeze": (0.0005, 0.006),
    "cut": (0.0005, 0.004),
    "hold": (0.002, 0.02),
    "leave": (0.0003, 0.002),
    # Per tick.
    "outage": (0.0003, 0.003),
    "both_movers": (0.005, 0.05),
    "commit_refused": (0.001, 0.02),
    "commit_uncertain": (0.001, 0.02),
    "commit_left_open": (0.001, 0.01),
    "fence": (0.0005, 0.005),
    "dangling": (0.0005, 0.005),
    "compact": (0.002, 0.1),
    "garbage": (0.0005, 0.01),
    # Per passage of a crash point.
    "killed_between": (0.0002, 0.003),
    "frozen_between": (0.0002, 0.004),
    "write_unacknowledged": (0.001, 0.02),
    # Per request to the sink, and per step of a task.
    "reply_lost": (0.005, 0.08),
    "request_lost": (0.005, 0.08),
    "request_late": (0.005, 0.08),
    "task_failure": (0.001, 0.02),
    # Per effect of a coordinator.
    "effect_failed": (0.02, 0.3),
    "effect_refused": (0.02, 0.2),
    # Per tick.
    "clock_step": (0.0005, 0.02),
    "retention": (0.0005, 0.005),
    "upgrade": (0.005, 0.05),
    # Per step of a task that is to seal, and per tick and agent.
    "drain_hung": (0.005, 0.1),
    "turns_hung": (0.0003, 0.003),
    # Per tick and process.
    "reading_stopped": (0.001, 0.01),
    # Per tick: an operator pauses a table, or resumes one.
    "table_paused": (0.002, 0.02),
    # Per tick: an operator has rows of a table copied.
    "rows_copied": (0.002, 0.02),
}
"""Kind of fault → least and greatest probability; what each does is in faults.py, processes and executor.py."""

DRAWN_APART: Final = frozenset({"reading_stopped", "table_paused", "rows_copied"})
"""Kinds that came later: each draws from a chance of its own, so that a seed's world is what it was before them."""

FAULT_KINDS_SHARE: Final = 0.5
"""Share of the kinds that a seed has: FoundationDB's and TigerBeetle's runs draw about as many."""

QUIET_SHARE: Final = 0.04
"""Share of seeds without any fault: what breaks there needs none."""

UPGRADED_SHARE: Final = 0.15
"""Share of seeds that begin with the version before, and are upgraded process by process."""

SICK_SHARE: Final = 0.015
"""Share of seeds in which a table fails for longer than an owner tries it again: long, so the world is small."""

SICK_TICKS: Final = 4_000
SICK_TICK_SECONDS: Final = 0.5
"""Together 2 000 s, beyond the half-hour after which a feed is failed (coordinator/core/feeds/feed_lifecycle.py)."""


LEASE_DIFFERS_SHARE: Final = 0.1
"""Share of seeds whose coordinators have another lease in their settings than the agents."""

LEASE_GUESS_SECONDS: Final = 0.5
"""Less than an agent's heartbeats are apart: judged by it, every session would be written dead, without an end."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One seed's world. Times in seconds of its own clock; ``rates`` holds the kinds of fault that exist."""

    seed: int
    shards: int
    coordinators: int
    agents: int
    feeds: int
    tables: int
    partitions: int
    capacity: int
    tick_seconds: float
    ticks: int
    pace: float
    """Probability that a task, the sink or an effect gets on in a tick: low makes everything slow and overlap."""
    request_rate: float
    event_rate: float
    lease_seconds: float
    agent_lease_seconds: float
    rates: dict[str, float]
    lease_guess_seconds: float | None = None
    """What coordinators take the agents' lease for until it is announced; None: their settings are the agents'."""
    is_upgraded: bool = False
    """Every process begins with the version before (upgrades.py)."""
    sick_table: str | None = None
    """Every step of this table's tasks fails, until the faults stop."""

    def rate(self, kind: str) -> float:
        """Probability of a fault; 0 if this seed has none of that kind."""
        return self.rates.get(kind, 0.0)


def draw_profile(seed: int, *, ticks: int, without: frozenset[str] = frozenset()) -> Profile:
    """The profile of ``seed``; ``without`` takes kinds of fault away and leaves everything else as it is drawn."""
    chance = random.Random(f"profile {seed}")  # noqa: S311 - it decides what is tried, nothing secret
    rates = {}
    for kind, (low, high) in FAULT_RATES.items():
        drawn = random.Random(f"profile {seed} {kind}") if kind in DRAWN_APART else chance  # noqa: S311 - as above
        rate = math.exp(drawn.uniform(math.log(low), math.log(high)))
        if drawn.random() < FAULT_KINDS_SHARE and kind not in without:
            rates[kind] = rate
    if chance.random() < QUIET_SHARE:
        rates = {}
    agents, feeds, tables = chance.choice((2, 2, 3)), chance.choice((1, 1, 2)), chance.choice((1, 2, 3, 4, 6))
    several, many = chance.random(), chance.random()
    partitions = chance.choice((1, 2, 3))
    profile = Profile(
        seed=seed,
        shards=4 if several < 0.05 else 2 if several < 0.2 else 1,
        coordinators=1 if many < 0.2 else 3 if many < 0.35 else 2,
        agents=agents,
        feeds=feeds,
        tables=tables,
        partitions=partitions,
        # Small: just enough for all, divided as far as can be, while all are there.
        capacity=100 if chance.random() < 0.8 else -(-feeds * tables * partitions // agents) + 1,
        tick_seconds=chance.choice((0.1, 0.25, 0.5)),
        ticks=ticks,
        pace=chance.choice((0.15, 0.4, 0.9)),
        request_rate=chance.choice((0.01, 0.03, 0.1)),
        event_rate=chance.choice((0.1, 0.5, 1.0)),
        lease_seconds=chance.choice((2.0, 5.0)),
        agent_lease_seconds=chance.choice((3.0, 5.0, 10.0)),
        rates=rates,
        is_upgraded=chance.random() < UPGRADED_SHARE,
    )
    is_sick = chance.random() < SICK_SHARE
    if not profile.is_upgraded and chance.random() < LEASE_DIFFERS_SHARE:
        profile = msgspec.structs.replace(profile, lease_guess_seconds=LEASE_GUESS_SECONDS)
    return _sick(profile) if is_sick else profile


def _sick(profile: Profile) -> Profile:
    """The same world made small and long, with one table that does not get on."""
    return msgspec.structs.replace(
        profile,
        shards=1,
        coordinators=1,
        agents=2,
        feeds=1,
        tables=2,
        capacity=100,
        tick_seconds=SICK_TICK_SECONDS,
        ticks=max(profile.ticks, SICK_TICKS),
        request_rate=0.0,
        event_rate=0.1,
        rates={},
        sick_table="f1t1",
    )
