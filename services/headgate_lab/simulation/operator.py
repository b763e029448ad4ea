"""A person that types ``headgate feed …``: random requests, made twice or taken back, about feeds that may be unknown.

All it knows it reads from the log's present state, like the CLI; what it asks for may long have changed.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from headgate.coordinator.core.effects import DiscoverTables, FeedResolved, ResolveFeed, TablesDiscovered
from headgate.coordinator.core.machine import State
from headgate.eventlog.log import Partition, Placed
from headgate.eventlog.sharding import shard_of
from headgate.records.base import Fact
from headgate.records.control import (
    FeedState,
    OperationKind,
    OperationRequested,
    OutcomeStatus,
    ReplicationState,
    SpanPlan,
    WantedState,
)
from headgate.records.keys import RequestKey
from headgate.records.levels import level_of
from headgate_lab.memory_log.log import MemoryBroker
from headgate_lab.simulation.executor import EXPIRED
from headgate_lab.simulation.profile import Profile
from headgate_lab.simulation.sink import HELD_OPEN
from headgate_lab.simulation.sink_audit import ts_of
from headgate_lab.simulation.source import SimulatedSource

KINDS: Final = (
    *[OperationKind.MOVE_TABLE] * 5,
    *[OperationKind.SPLIT_TABLE] * 3,
    *[OperationKind.MERGE_TABLE] * 2,
    *[OperationKind.PAUSE_FEED] * 2,
    *[OperationKind.RESUME_FEED] * 3,
    OperationKind.REMOVE_FEED,
    *[OperationKind.CREATE_FEED] * 3,
    *[OperationKind.UPDATE_FEED] * 2,
    OperationKind.REBALANCE_FEED,
    OperationKind.DRAIN_AGENT,
    OperationKind.RESIGN_OWNER,
)
"""Requests in the proportion in which they are drawn."""

ABOUT_NO_FEED: Final = (OperationKind.DRAIN_AGENT, OperationKind.RESIGN_OWNER)
"""Requests that go to a shard as such."""

REQUESTS_KEPT_MAX: Final = 12
"""Settled requests beyond this many are taken back, the oldest first, as operators do."""


ALL_FEEDS_SHARE: Final = 0.3
"""Share of requests to rebalance that name no feed."""

BAD_UPDATE_SHARE: Final = 0.1
LATER_TABLE_SHARE: Final = 0.3
"""Share of feeds that begin without their last table, which an update may add."""

ABANDON_SHARE: Final = 0.5
"""Share of requests to remove a feed that do without its sink. It is there all the same: so it is seen who writes."""

PATTERN_SHARE: Final = 0.2
"""Share of feeds that are made for a pattern: some of their tables, or all, join when a topic is added."""

TARGET_RATE: Final = 0.2
"""Share of feeds that are to end."""

TARGET_EVENTS_MAX: Final = 60
"""How far from the present ends of its source a feed's target is, at most: what some seconds bring."""


class _Spec(msgspec.Struct):
    tables: list[str]
    starts: list[dict[str, int]]
    target_ts: int | None = None
    pattern: bool = False


WHOLE: Final = '{"keys": null}'
"""Every row of a table, as a request names them."""


def resolve(effect: ResolveFeed) -> FeedResolved:
    """What the spec of one of these requests means."""
    spec = msgspec.json.decode(effect.spec, type=_Spec)
    plans = tuple(
        SpanPlan(table, f"db.{table}", table, {int(partition): offset for partition, offset in start.items()})
        for table, start in zip(spec.tables, spec.starts, strict=True)
    )
    return FeedResolved(
        effect.spec,
        plans,
        spec.target_ts,
        note="" if plans else "no topic is there yet",
        # Half of all tables, and no draw that would make every history another one.
        copies={plan.table: WHOLE for plan in plans if sum(plan.start.values()) % 2 and spec.target_ts is None},
    )


class SimulatedOperator:
    """Makes requests; ``states`` is the log's present state by shard."""

    def __init__(
        self,
        profile: Profile,
        chance: random.Random,
        broker: MemoryBroker,
        *,
        states: dict[int, State],
        source: SimulatedSource,
        wall_ms: Callable[[], int],
    ) -> None:
        self._profile, self._chance, self._broker, self._states = profile, chance, broker, states
        self._source, self._wall_ms = source, wall_ms
        self._added: set[str] = set()
        self._count = 0
        self._last: tuple[RequestKey, Any, int] | None = None

    def ask_something(self) -> None:
        """One random request, or an earlier one again, or one taken back."""
        draw = self._chance.random()
        if draw < 0.05 and self._last is not None:
            self._put(*self._last)
        elif draw < 0.1 and self._last is not None:
            key, _, shard = self._last
            self._put(key, None, shard)
        elif draw < 0.2:
            feed = f"f{self._chance.randint(1, self._profile.feeds)}"
            self._added.add(self._chance.choice(self._tables(feed)))
        else:
            feed = f"f{self._chance.randint(1, self._profile.feeds)}"
            self.ask(self._chance.choice(KINDS), feed)
        self._tidy()

    def pause_or_resume_a_table(self) -> None:
        """Drawn apart from the other requests (profile.py)."""
        feed = f"f{self._chance.randint(1, self._profile.feeds)}"
        self.ask(self._chance.choice((OperationKind.PAUSE_TABLE, OperationKind.RESUME_TABLE)), feed)
        self._tidy()

    def copy_rows(self) -> None:
        """Drawn apart from the other requests, too."""
        self.ask(OperationKind.RESYNC_TABLE, f"f{self._chance.randint(1, self._profile.feeds)}")
        self._tidy()

    def ask(self, kind: OperationKind, feed: str) -> None:
        """A request of this kind."""
        spec = table = agent = parts = None
        if kind is OperationKind.CREATE_FEED:
            spec = self._spec(feed)
        elif kind is OperationKind.UPDATE_FEED:
            spec = self._changed_spec(feed)
        elif kind is OperationKind.MOVE_TABLE:
            table = self._chance.choice(self._spans(feed))
            agent = f"a{self._chance.randint(1, self._profile.agents)}"
        elif kind in (OperationKind.SPLIT_TABLE, OperationKind.MERGE_TABLE):
            table = self._chance.choice(self._tables(feed))
            parts = self._chance.choice((None, 2, 2, 2, 3)) if kind is OperationKind.SPLIT_TABLE else None
        elif kind in (OperationKind.PAUSE_TABLE, OperationKind.RESUME_TABLE):
            table = self._chance.choice(self._tables(feed))
        elif kind is OperationKind.RESYNC_TABLE:
            table, spec = self._chance.choice(self._tables(feed)), '{"keys": [["1"]]}'
        elif kind is OperationKind.DRAIN_AGENT:
            agent = f"a{self._chance.randint(1, self._profile.agents)}"
        shard = shard_of(feed, self._broker.shards)
        is_about_all = kind is OperationKind.REBALANCE_FEED and self._chance.random() < ALL_FEEDS_SHARE
        if kind in ABOUT_NO_FEED or is_about_all:
            feed, shard = "", self._chance.randrange(self._broker.shards)
        self._count += 1
        abandon_sink = kind is OperationKind.REMOVE_FEED and self._chance.random() < ABANDON_SHARE
        value = OperationRequested(kind, feed, spec, table, agent, "operator", self._wall_ms(), parts, abandon_sink)
        if level_of(value) > self._states[shard].level:
            return  # the command refuses it: some process could not read the request
        self._last = (RequestKey(f"r{self._count:05}"), value, shard)
        self._put(*self._last)

    def unseen(self, name: str, feed_spec: str, spans: Sequence[SpanPlan]) -> list[str]:
        """Tables of the feed whose topics were added and match its pattern, and which it has not yet."""
        if not msgspec.json.decode(feed_spec, type=_Spec).pattern:
            return []
        known = {plan.table for plan in spans}
        return [table for table in self._tables(name) if table in self._added and table not in known]

    def discover(self, effect: DiscoverTables) -> TablesDiscovered:
        """What a look at a feed's source finds."""
        joined = []
        for table in self.unseen(effect.feed, effect.spec, effect.spans):
            topic = f"db.{table}"
            start = {partition: self._source.begin(topic, partition) for partition in range(self._profile.partitions)}
            joined.append(SpanPlan(table, topic, table, start))
        return TablesDiscovered(tuple(joined))

    def create_all(self) -> None:
        """The beginning of every history: each feed once."""
        for number in range(1, self._profile.feeds + 1):
            self.ask(OperationKind.CREATE_FEED, f"f{number}")

    def repair(self) -> None:
        """Resume what waits for a person, and take back what cannot be: see the three rules."""
        for shard, state in sorted(self._states.items()):
            self._take_back_hopeless_drains(shard, state)
            for name, feed in sorted(state.feeds.items()):
                if feed.paused and feed.target_ts is not None:
                    self.ask(OperationKind.RESUME_TABLE, name)  # its end needs every table; one at a time, drawn
                # Tables whose error is not retried by itself.
                is_waiting = any(
                    record.state is ReplicationState.ABSENT and record.failures
                    for key, record in state.spans.items()
                    if key.feed == name
                )
                is_sick = feed.state in (FeedState.WARNING, FeedState.FAILED)
                if feed.wanted is not WantedState.RUNNING or not is_sick or not is_waiting:
                    continue
                errors = [record.last_error or "" for key, record in state.spans.items() if key.feed == name]
                # Nothing brings back what the source has deleted: the table is copied again, under a new feed.
                is_hopeless = any(EXPIRED in error or self._is_of_another(error) for error in errors)
                self.ask(OperationKind.REMOVE_FEED if is_hopeless else OperationKind.RESUME_FEED, name)

    def _is_of_another(self, error: str) -> bool:
        """The table is written by a feed of another shard, and will be: one of the two has to go.

        No shard knows the other's feeds, so both were accepted; the command asks all shards, this operator does not.
        """
        holder = error.partition(HELD_OPEN)[2].partition(" ")[0]
        return any(
            feed.feed_id == holder and feed.wanted is WantedState.RUNNING
            for state in self._states.values()
            for feed in state.feeds.values()
        )

    def _take_back_hopeless_drains(self, shard: int, state: State) -> None:
        """An agent cannot be emptied while the others do not have capacity for all."""
        profile = self._profile
        if profile.capacity * (profile.agents - 1) >= profile.feeds * profile.tables * profile.partitions:
            return
        for name, placed in sorted(state.requests.items()):
            if placed.request.kind is OperationKind.DRAIN_AGENT:
                self._put(RequestKey(name), None, shard)

    def _tables(self, feed: str) -> list[str]:
        return [f"{feed}t{number}" for number in range(1, self._profile.tables + 1)]

    def _changed_spec(self, feed: str) -> str:
        """The feed with all its tables, so that some may join; now and then with what cannot be changed."""
        states = [state for _, state in sorted(self._states.items()) if feed in state.feeds]
        if not states:
            return self._spec(feed)
        spec = msgspec.json.decode(states[0].feeds[feed].spec)
        for table in self._tables(feed):
            if table not in spec["tables"]:
                spec["tables"].append(table)
                spec["starts"].append(self._start(table))
        if self._chance.random() < BAD_UPDATE_SHARE:
            spec["sink"]["dsn"] = "elsewhere"
        return msgspec.json.encode(spec).decode()

    def _spans(self, feed: str) -> list[str]:
        """Tables, and what they are divided into now."""
        record = self._states[shard_of(feed, self._broker.shards)].feeds.get(feed)
        return self._tables(feed) if record is None or not record.spans else [plan.span for plan in record.spans]

    def _spec(self, feed: str) -> str:
        tables = self._tables(feed)
        if len(tables) > 1 and self._chance.random() < LATER_TABLE_SHARE:
            tables = tables[:-1]
        is_pattern = self._chance.random() < PATTERN_SHARE
        if is_pattern:
            tables = tables[: self._chance.randrange(len(tables) + 1)]
        if self._chance.random() < 0.1:
            tables = [*tables[1:], "f1t1"] if feed != "f1" else tables
        starts, newest = [], 0
        for table in tables:
            starts.append(self._start(table))
            newest = max(newest, *(self._source.end(f"db.{table}", p) for p in range(self._profile.partitions)))
        spec: dict[str, Any] = {
            "feed": feed,
            "sink": {"type": "memory", "dsn": "here"},
            "tables": tables,
            "starts": starts,
        }
        if is_pattern:
            spec["pattern"] = True  # and no target: an end needs a table that comes to it
        elif self._chance.random() < TARGET_RATE:
            spec["target_ts"] = ts_of(newest + self._chance.randint(-TARGET_EVENTS_MAX, TARGET_EVENTS_MAX))
        return msgspec.json.encode(spec).decode()

    def _start(self, table: str) -> dict[str, int]:
        """From the earliest change that is there, or from the latest on."""
        look = self._source.end if self._chance.random() < 0.3 else self._source.begin
        return {str(partition): look(f"db.{table}", partition) for partition in range(self._profile.partitions)}

    def _tidy(self) -> None:
        for shard, state in sorted(self._states.items()):
            settled = sorted(
                name
                for name in state.requests
                if (outcome := state.outcomes.get(name)) is not None and outcome.status is not OutcomeStatus.ACCEPTED
            )
            for name in settled[: max(0, len(settled) - REQUESTS_KEPT_MAX)]:
                self._put(RequestKey(name), None, shard)

    def _put(self, key: RequestKey, value: Any, shard: int) -> None:
        self._broker.append(Placed(Partition("changefeed", shard), Fact(key, value)))
