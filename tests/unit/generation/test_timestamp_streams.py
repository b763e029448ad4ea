"""TimestampStreams and TimestampReader on a log in memory: clocks that differ, rows that are missing, silence."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from headgate.eventlog.log import LogError, NewerSchemaError, Partition, Placed
from headgate.generation import TimestampReader, TimestampStreams
from headgate.generation.timestamps.core.descriptions import row_of
from headgate.generation.timestamps.core.rings import chunks_of_ring, topology_for
from headgate.generation.timestamps.core.timeline import (
    GenerationError,
    GenerationUnreadError,
    NoGenerationError,
    WriteTooNewError,
    WriteTooOldError,
)
from headgate.generation.timestamps.core.timestamp_views import GenerationLate
from headgate.generation.timestamps.shell import timestamp_streams
from headgate.generation.timestamps.shell.timestamp_streams import GenerationsUnheardError
from headgate.records.base import Fact, Key, Record
from headgate.records.generation import GenerationOwnerKey
from headgate.records.timestamps import (
    DescriptionKey,
    RingNode,
    StreamsKey,
    TimestampGeneration,
    TimestampKey,
    TimestampPublished,
    TimestampReaderKey,
    TimestampSetKey,
    TimestampSetRecorded,
)
from headgate.runtime.clocks import elapsed_seconds
from headgate_lab.memory_log.log import MemoryBroker, MemoryLog
from support import build
from support.waiting import eventually

SET = "s"
TOPIC = Partition("generation", 0)
A = (RingNode("a", 3, 12, (-50, 50)),)
B = (RingNode("b", 2, 12, (0,)),)
NOW = 1_700_000_000_000
TOKEN = 7


class World:
    """A topic that the test writes as an owner would; ``clock_ms`` is the writer's."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.log: MemoryLog = self.broker.client()
        self.clock_ms = NOW
        self.made: list[TimestampGeneration] = []
        announced = build.owner_announced(schema_version=2, level=2)
        self.broker.append(Placed(Partition("announce", 0), Fact(GenerationOwnerKey(0), announced)), 2)

    def put(self, key: Key, value: Record | None) -> None:
        self.broker.append(Placed(TOPIC, Fact(key, value)), 2)

    def announce(self, timestamp_ms: int) -> None:
        """A generation is known."""
        if self.made:
            self.made[-1] = TimestampGeneration(self.made[-1].timestamp_ms, 1, timestamp_ms, (), "")
        self.made.append(TimestampGeneration(timestamp_ms, 1, None, (), ""))
        self.put(TimestampSetKey(SET), TimestampSetRecorded(0, 1_000, 0, tuple(self.made)))

    def describe(self, timestamp_ms: int, ring: tuple[RingNode, ...]) -> None:
        """Its rows come, and its timestamp."""
        topology, chunks = topology_for(SET, timestamp_ms, ring), chunks_of_ring(ring)
        for key in (DescriptionKey(SET, timestamp_ms, 0), StreamsKey(SET, timestamp_ms, 0)):
            self.put(key, row_of(topology, chunks, key, 0))
        self.put(TimestampKey(SET, timestamp_ms), TimestampPublished(0, 1, None))

    def end(self, timestamp_ms: int, end_ms: int) -> None:
        self.put(TimestampKey(SET, timestamp_ms), TimestampPublished(0, 1, end_ms))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(timestamp_streams, "HEAR_SECONDS", 0.01)
    return World()


@pytest.fixture
def streams(world: World) -> Iterator[TimestampStreams]:
    with TimestampStreams(world.log, SET, now_ms=lambda: world.clock_ms) as found:
        yield found


def test_a_writer_waits_for_the_first_generation(world: World, streams: TimestampStreams) -> None:
    with pytest.raises(GenerationError, match="is timestamp set 's' created"):
        streams.wait(0.05)
    world.announce(NOW)
    eventually(lambda: streams.generations == {NOW: False})
    with pytest.raises(GenerationUnreadError):
        streams.stream_of(TOKEN, NOW * 1_000)
    with pytest.raises(GenerationError, match="s/description/1700000000000/0 does not exist on the topic"):
        streams.wait(0.05)
    world.describe(NOW, A)
    streams.wait(60)
    assert streams.stream_of(TOKEN, NOW * 1_000) == topology_for(SET, NOW, A).stream_of(TOKEN)
    assert streams.stream_of(b"key", NOW * 1_000) in topology_for(SET, NOW, A).streams
    with pytest.raises(NoGenerationError):
        streams.stream_of(TOKEN, NOW * 1_000 - 1)


def test_a_write_goes_by_its_own_time_whatever_this_clock_says(world: World, streams: TimestampStreams) -> None:
    later = NOW + 7_000
    for timestamp_ms, ring in ((NOW, A), (later, B)):
        world.announce(timestamp_ms)
        world.describe(timestamp_ms, ring)
    eventually(lambda: streams.generations == {NOW: True, later: True})
    first, second = topology_for(SET, NOW, A), topology_for(SET, later, B)
    with pytest.raises(WriteTooNewError):
        streams.stream_of(TOKEN, later * 1_000)
    world.clock_ms = later - 5_000
    assert streams.stream_of(TOKEN, later * 1_000) == second.stream_of(TOKEN)
    assert streams.stream_of(TOKEN, later * 1_000 - 1) == first.stream_of(TOKEN)
    world.clock_ms = later + 4_999
    assert streams.stream_of(TOKEN, later * 1_000 - 1) == first.stream_of(TOKEN)
    world.clock_ms = later + 5_000
    with pytest.raises(WriteTooOldError):
        streams.stream_of(TOKEN, later * 1_000 - 1)
    assert streams.late == ()


def test_what_is_heard_of_too_late_is_told(world: World, streams: TimestampStreams) -> None:
    world.announce(NOW - 60_000)
    world.describe(NOW - 60_000, A)
    streams.wait(60)
    streams.stream_of(TOKEN, (NOW + 10) * 1_000)
    world.announce(NOW + 9)
    eventually(lambda: streams.late != ())
    assert streams.late == (GenerationLate(NOW + 9, (NOW + 10) * 1_000),)


def test_who_does_not_hear_of_generations_gets_no_stream(
    world: World, streams: TimestampStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.announce(NOW)
    world.describe(NOW, A)
    streams.wait(60)

    def out_of_reach() -> int:
        raise LogError("no broker answers")

    with monkeypatch.context() as silenced:
        silenced.setattr(streams._tail, "stable_end", out_of_reach)
        eventually(lambda: is_refused(streams))
        with pytest.raises(GenerationsUnheardError, match=r"were not heard of for .* no broker answers"):
            streams.stream_of(TOKEN, NOW * 1_000)
    eventually(lambda: not is_refused(streams))


def test_after_the_machine_was_suspended_no_stream_is_named_before_the_topic_was_read_again(world: World) -> None:
    """The monotonic clock stands still while a machine is suspended, so it would not notice."""
    suspended = 0.0
    with TimestampStreams(
        world.log, SET, now_ms=lambda: world.clock_ms, elapsed=lambda: elapsed_seconds() + suspended
    ) as streams:
        world.announce(NOW)
        world.describe(NOW, A)
        streams.wait(60)
        eventually(lambda: not is_refused(streams))
        with streams._changed:  # so that the thread does not hear from the topic in between
            suspended = 3_600.0
            assert is_refused(streams)
        eventually(lambda: not is_refused(streams))


def is_refused(streams: TimestampStreams) -> bool:
    try:
        streams.stream_of(TOKEN, NOW * 1_000)
    except GenerationsUnheardError:
        return True
    return False


def test_who_meets_a_newer_headgate_ends(world: World, streams: TimestampStreams) -> None:
    world.announce(NOW)
    world.describe(NOW, A)
    streams.wait(60)
    world.broker.append_newer(TOPIC, "s/timestamps", "newer")
    eventually(lambda: streams._fatal is not None)
    for ask in (lambda: streams.stream_of(TOKEN, NOW * 1_000), lambda: streams.wait(1)):
        with pytest.raises(NewerSchemaError):
            ask()


def test_a_reader_sees_whole_generations_until_it_has_left_them(world: World) -> None:
    with TimestampReader(world.log, SET, "r", now_ms=lambda: world.clock_ms) as reader:
        assert reader.generations() == ()
        world.announce(NOW)
        assert reader.generations() == (), "known to writers only"
        world.describe(NOW, A)
        (first,) = reader.generations()
        assert (first.timestamp_ms, first.end_ms, first.over_ms) == (NOW, None, None)
        assert first.streams == topology_for(SET, NOW, A).streams
        with pytest.raises(GenerationError, match="still operates"):
            reader.left(NOW)
        with pytest.raises(GenerationError, match=f"no published generation {NOW + 5}"):
            reader.left(NOW + 5)
        world.announce(NOW + 10)
        world.end(NOW, NOW + 10)
        world.describe(NOW + 10, B)
        assert [(each.timestamp_ms, each.end_ms) for each in reader.generations()] == [
            (NOW, NOW + 10),
            (NOW + 10, None),
        ]
        (first, second) = reader.generations()
        assert first.over_ms is not None
        world.clock_ms = first.over_ms - 1
        assert not reader.is_over(first)
        with pytest.raises(GenerationError, match=r"cannot be left yet: .* another 0\.0 s"):
            reader.left(NOW)
        world.clock_ms = first.over_ms
        assert (reader.is_over(first), reader.is_over(second)) == (True, False)
        reader.left(NOW)
        assert [each.timestamp_ms for each in reader.generations()] == [NOW + 10]
        reader.left(NOW - 5)
        assert reader.left_ms == NOW, "never back"
    with closing(TimestampReader(world.log, SET, "r")) as reader:
        assert reader.left_ms == NOW
        assert [each.timestamp_ms for each in reader.generations()] == [NOW + 10]
        reader.forget()
    last = [
        entry for entry in world.broker.entries(TOPIC, 0, 10**6, 10**6) if entry.key == TimestampReaderKey(SET, "r")
    ][-1]
    assert last.value is None
