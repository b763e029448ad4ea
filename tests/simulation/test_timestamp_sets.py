"""Timestamp sets under any interleaving of two owners, crashes, commits without an answer, and compaction.

Whoever reads the log, record by record, and sees a timestamp, sees all streams of that generation, as they are for
ever; and once faults stop every generation is published and every request is answered.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.eventlog.log import Partition
from headgate.generation.core import timestamp_records
from headgate.generation.core.effects import CheckRows, MakeTopology, RowsChecked, TopologyMade
from headgate.generation.core.state import GenerationState
from headgate.generation.core.timestamp_records import TimestampRecords
from headgate.generation.owner.core.kind import GENERATION_KIND
from headgate.generation.owner.core.machine import GENERATION
from headgate.generation.timestamps.core import timestamp_publishing
from headgate.generation.timestamps.core.descriptions import described_topology, wrong_rows
from headgate.generation.timestamps.core.rings import topology_for
from headgate.generation.timestamps.core.timestamp_views import published_of
from headgate.records.control import OutcomeStatus
from headgate.records.generation import GenerationOutcomeKey
from headgate.records.timestamps import (
    RingNode,
    TimestampLeft,
    TimestampReaderKey,
    TimestampsRequested,
    TimestampsRequestKey,
    TimestampsRequestKind,
)
from headgate.runtime.machine import EffectFailed
from headgate_lab.memory_log.log import CommitFault
from headgate_lab.worlds.kernel import OwnerWorld

SET = "orders"
TOPIC = Partition("generation", 0)
ID = "generation-0"
KEPT_MS = 1_000

RINGS = [
    (RingNode("a", shards, 12, tuple(range(-100 * tokens, 100 * tokens, 200))), RingNode("b", 1, 0, (7,)))
    for tokens in (1, 2, 4)
    for shards in (1, 3)
]


class World(OwnerWorld[GenerationState]):
    """Two owners of one shard; every committed record is given to a reader at once."""

    def __init__(self) -> None:
        super().__init__(GENERATION_KIND, GENERATION, schema_version=2)
        self.broker.on_committed = self._committed
        self.asked = 0
        self.read = TimestampRecords()
        self.rings: dict[int, tuple[RingNode, ...]] = {}
        for name in ("o1", "o2"):
            self.start(name)

    # --- what may happen ---

    def take_turns(self, name: str, count: int) -> None:
        for _ in range(count):
            self.now += 0.25
            if not self.turn(name):
                self.start(name)

    def crash(self, name: str) -> None:
        self.kill(name)
        self.start(name)

    def fault(self, fault: CommitFault) -> None:
        self.broker.fail_commit(ID, fault)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def run_effects(self, outcome: str) -> None:
        self.answer_effects(self.result if outcome == "run" else lambda _effect: EffectFailed("no"))

    def result(self, effect: Any) -> Any:
        match effect:
            case MakeTopology():
                return TopologyMade(topology_for(effect.set, effect.timestamp_ms, effect.nodes))
            case CheckRows():
                return RowsChecked(wrong_rows(self.read, effect.set, effect.rings))
        raise TypeError(effect)

    def ask(self, kind: TimestampsRequestKind, ring: int) -> None:
        self.asked += 1
        nodes = RINGS[ring] if kind is not TimestampsRequestKind.CLEAN else ()
        request = TimestampsRequested(kind, nodes, 0, 1_000, KEPT_MS, "test", 0)
        self.write(TimestampsRequestKey(SET, f"r{self.asked}"), request)

    def left(self, number: int) -> None:
        """A reader leaves one of the generations that it sees."""
        seen = published_of(self.read, SET)
        if seen:
            self.write(TimestampReaderKey(SET, "r"), TimestampLeft(seen[number % len(seen)].timestamp_ms, 0))

    def compact(self) -> None:
        self.broker.compact(TOPIC)
        self.reread()

    # --- what is checked ---

    def _committed(self, partition: Partition, entry: Any) -> None:
        if partition == TOPIC and not isinstance(entry.key, str):
            self.adopt(self.read, entry)

    def adopt(self, records: TimestampRecords, entry: Any) -> None:
        records.evolve(entry.key, entry.value, entry.offset)
        for (name, timestamp_ms), ring in records.rings.items():
            assert self.rings.setdefault(timestamp_ms, ring.nodes) == ring.nodes, f"{name} had another ring"
        for seen in published_of(records, SET):  # raises where a timestamp is seen before all of its streams
            whole = topology_for(SET, seen.timestamp_ms, self.rings[seen.timestamp_ms])
            assert seen.streams == whole.streams
            if seen.timestamp_ms in {each.timestamp_ms for each in records.sets[SET].generations}:
                rows = records.descriptions[SET, seen.timestamp_ms]
                assert described_topology(SET, seen.timestamp_ms, len(rows), rows) == whole

    def reread(self) -> None:
        """Somebody begins to read now, from the beginning."""
        records = TimestampRecords()
        for entry in self.broker.entries(TOPIC, 0, self.broker.end_offset(TOPIC), 10**6):
            if entry.committed() and not isinstance(entry.key, str):
                records.evolve(entry.key, entry.value, entry.offset)
                published_of(records, SET)

    def calm_down(self) -> None:
        """Faults stop: one owner is left, and everything that was begun comes to its end."""
        self.broker.cancel_faults()
        self.kill("o2")
        for _ in range(400):
            self.take_turns("o1", 1)
            self.run_effects("run")
        record = self.read.sets.get(SET)
        for generation in () if record is None else record.generations:
            assert (SET, generation.timestamp_ms) in self.read.published
            assert generation.requests == ()
        state = self.owners["o1"].role.view
        for key in state.timestamps.requests:
            settled = state.outcomes.get(GenerationOutcomeKey(SET, key.request))
            assert settled is not None, key
            assert settled.status is not OutcomeStatus.ACCEPTED, settled
        self.reread()


KINDS = st.sampled_from(list(TimestampsRequestKind))
OWNERS = st.sampled_from(["o1", "o2"])
STEP: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
    st.tuples(st.just("take_turns"), OWNERS, st.integers(1, 12)),
    st.tuples(st.just("run_effects"), st.sampled_from(["run", "run", "fail"])),
    st.tuples(st.just("ask"), KINDS, st.integers(0, len(RINGS) - 1)),
    st.tuples(st.just("crash"), OWNERS),
    st.tuples(st.just("fault"), st.sampled_from(list(CommitFault))),
    st.tuples(st.just("sleep"), st.sampled_from([1.0, 6.0, 20.0])),
    st.tuples(st.just("left"), st.integers(0, 3)),
    st.tuples(st.just("compact")),
)


def run(steps: list[tuple[Any, ...]]) -> World:
    world = World()
    world.ask(TimestampsRequestKind.CREATE, 0)
    world.take_turns("o1", 30)
    for name, *given_to in steps:
        getattr(world, name)(*given_to)
    world.calm_down()
    return world


@pytest.fixture(autouse=True)
def _small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.generation.timestamps.core.rings.CHUNK_STREAMS", 3)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_who_sees_a_timestamp_sees_all_streams_whatever_dies(steps: list[tuple[Any, ...]]) -> None:
    run(steps)


@pytest.mark.parametrize("at", range(24))
def test_an_owner_that_dies_at_each_row_is_gone_on_with(at: int) -> None:
    steps: list[tuple[Any, ...]] = [("run_effects", "run"), ("take_turns", "o1", 12)]
    steps += [("ask", TimestampsRequestKind.SWITCH, 5), ("take_turns", "o1", 2), ("run_effects", "run")]
    steps += [("take_turns", "o1", at), ("crash", "o1"), ("sleep", 6.0), ("take_turns", "o2", 40)]
    world = run(steps)
    assert len(world.rings) == 2, "one generation for each ring, whoever made it"


def _the_timestamp_comes_first(patch: pytest.MonkeyPatch) -> None:
    missing = timestamp_records.missing_row

    def wrongly(records: Any, name: str, generation: Any) -> Any:
        key = timestamp_records.TimestampKey(name, generation.timestamp_ms)
        return missing(records, name, generation) if (name, generation.timestamp_ms) in records.published else key

    patch.setattr(timestamp_publishing, "missing_row", wrongly)


def _streams_are_deleted_first(patch: pytest.MonkeyPatch) -> None:
    remove = timestamp_publishing._remove

    def wrongly(draft: Any, name: str, record: Any, timestamp_ms: int) -> None:
        remove(draft, name, record, timestamp_ms)
        seen = timestamp_records.TimestampKey(name, timestamp_ms)
        draft._deletions[seen] = draft._deletions.pop(seen)

    patch.setattr(timestamp_publishing, "_remove", wrongly)


def _each_owner_draws_streams_of_its_own(patch: pytest.MonkeyPatch) -> None:
    made = iter(range(10**6))

    def drawn(_world: World, effect: Any) -> Any:
        if isinstance(effect, MakeTopology):
            return TopologyMade(topology_for(effect.set, next(made), effect.nodes))
        return RowsChecked(())

    patch.setattr(World, "result", drawn)


def _who_takes_over_does_not_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("headgate.generation.owner.core.machine._begin_timestamp_sets", lambda _draft: None)


@pytest.mark.parametrize(
    "remove",
    [
        _the_timestamp_comes_first,
        _streams_are_deleted_first,
        _each_owner_draws_streams_of_its_own,
        _who_takes_over_does_not_go_on,
    ],
    ids=lambda remove: remove.__name__.strip("_"),
)
def test_a_guard_that_is_missing_is_found_out(
    monkeypatch: pytest.MonkeyPatch, remove: Callable[[pytest.MonkeyPatch], None]
) -> None:
    remove(monkeypatch)
    steps: list[tuple[Any, ...]] = [("run_effects", "run"), ("take_turns", "o1", 12)]
    steps += [("ask", TimestampsRequestKind.SWITCH, 5), ("take_turns", "o1", 2), ("run_effects", "run")]

    def run_many() -> None:
        for at in range(24):
            run([*steps, ("take_turns", "o1", at), ("crash", "o1"), ("sleep", 20.0), ("take_turns", "o2", 40)])

    with pytest.raises((AssertionError, ValueError)):
        run_many()
