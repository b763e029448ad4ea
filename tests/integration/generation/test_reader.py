"""ChangeReader on a real broker: what it continues from, what it reports, what it says of what it cannot read."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition

from headgate.eventlog.kafka import KafkaLog
from headgate.generation import (
    BadRecordError,
    ChangeLogNotFoundError,
    ChangeReader,
    ChangeWriter,
    Gap,
    PlaceError,
    PositionsError,
    ReadChange,
    ReaderError,
)
from headgate.generation.core.state import current_of
from headgate.generation.core.tokens import token_of_key
from headgate.records.control import OutcomeStatus
from headgate.records.generation import GenerationRequestKind, StreamsRecut
from support.kafka_cluster import ANSWER_SECONDS, Cluster
from support.waiting import eventually

from .test_change_log import SET, Operator

pytestmark = pytest.mark.integration

LEFT = [key for key in (b"l%d" % number for number in range(40)) if token_of_key(key) < 0]
RIGHT = [key for key in (b"r%d" % number for number in range(40)) if token_of_key(key) > 0]


@pytest.fixture
def operator(log: KafkaLog, owner: Any) -> Operator:
    return Operator(log)


@pytest.fixture
def writer(log: KafkaLog, operator: Operator) -> Iterator[ChangeWriter]:
    operator.create(partitions=6, streams=2)
    with ChangeWriter(log, SET, "w1") as opened:
        yield opened


def write(writer: ChangeWriter, keys: Sequence[bytes], count: int) -> None:
    """``count`` changes, numbered behind those before."""
    first = writer.position + 1
    for number in range(count):
        writer.write(keys[number % len(keys)], b"%d" % (first + number), first + number)
    writer.flush()


def read(reader: ChangeReader, count: int) -> list[int]:
    """The positions of the next ``count`` changes, as they come."""
    found: list[ReadChange] = []

    def has_all() -> bool:
        found.extend(reader.poll(0.2))
        return len(found) >= count

    eventually(has_all, f"{count} changes")
    assert len(found) == count
    return [change.position for change in found]


def read_for_ever(reader: ChangeReader, found: list[int]) -> None:
    while True:
        found += [change.position for change in reader.poll(0.2)]


def nothing_more(reader: ChangeReader) -> bool:
    return reader.poll(1.0) == []


def split(operator: Operator, which: int) -> None:
    """Divide a stream of the current generation in its middle."""
    operator.tail.read_to_end()
    current = current_of(operator.tail.state.sets[SET])
    assert current is not None
    stream = operator.tail.state.map_of(SET, current.epoch).streams[which]
    change = StreamsRecut((str(stream.id),), ((stream.start + stream.end) // 2,))
    done = operator.ask(GenerationRequestKind.SWITCH, epoch=current.epoch, changes=(change,))
    assert done.status is OutcomeStatus.DONE, done.reason


def delete_all(log: KafkaLog, topic: str, partition: int) -> int:
    """Retention deletes all that the partition has; where it begins now."""
    (future,) = log.connection.admin.delete_records([TopicPartition(topic, partition, -1)]).values()
    return int(future.result(ANSWER_SECONDS).low_watermark)


def reported(operator: Operator, reader: str) -> int:
    operator.tail.read_to_end()
    return operator.tail.state.readers[SET][reader].read_epoch


def as_json(positions: dict[str, int]) -> dict[str, int]:
    return json.loads(json.dumps(positions))  # type: ignore[no-any-return]


def as_msgpack(positions: dict[str, int]) -> dict[str, int]:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(positions), type=dict[str, int])


@pytest.mark.parametrize("through", [as_json, as_msgpack])
def test_a_reader_continues_from_stored_positions(
    log: KafkaLog, writer: ChangeWriter, through: Callable[[dict[str, int]], dict[str, int]]
) -> None:
    write(writer, LEFT + RIGHT, 100)
    with ChangeReader(log, SET, "r") as reader:
        first = reader.poll(30)
        rest = 100 - len(first)
        assert sorted([change.position for change in first] + (read(reader, rest) if rest else [])) == list(range(100))
        per_change = {change.stream: change.next_offset for change in first}
        assert per_change.keys() <= reader.positions.keys()
        assert all(isinstance(change.timestamp_ms, int) for change in first)
        stored = through(reader.positions)
    write(writer, LEFT + RIGHT, 10)
    with ChangeReader(log, SET, "r", positions=stored) as reader:
        assert sorted(read(reader, 10)) == list(range(100, 110))
    with ChangeReader(log, SET, "r", positions=through(per_change)) as reader:
        assert sorted(read(reader, 10 + rest))[-10:] == list(range(100, 110))
    for wrong in ({"0": 3}, {next(iter(stored)): 1.5}):
        with pytest.raises(PositionsError):
            ChangeReader(log, SET, "r", positions=wrong)  # type: ignore[arg-type]


def test_what_retention_deleted_whole_while_a_reader_was_away_is_a_gap(
    log: KafkaLog, operator: Operator, writer: ChangeWriter
) -> None:
    write(writer, LEFT, 30)
    with ChangeReader(log, SET, "r") as reader:
        read(reader, 30)
        stored = reader.positions
    write(writer, LEFT, 100)
    partition = next(change for change in _changes_of(log, 1)).partition
    begins = delete_all(log, operator.topic, partition)
    (stream,) = (stream for stream, at in stored.items() if at > 0)
    for positions, first in ((stored, stored[stream]), ({}, 0)):
        with ChangeReader(log, SET, "r", positions=positions) as reader:
            eventually(lambda reader=reader: reader.poll(0.2) == [] and bool(reader.gaps), "the gap")  # type: ignore[misc]
            assert reader.gaps == [Gap(stream, partition, first, begins, "deleted by retention before it was read")]
            assert reader.positions[stream] == begins
            assert nothing_more(reader)
            assert len(reader.gaps) == 1, "it is told once"
    with ChangeReader(log, SET, "r", positions=stored) as reader:
        write(writer, LEFT, 5)
        assert read(reader, 5) == list(range(130, 135)), "and what comes then is read"


def _changes_of(log: KafkaLog, count: int) -> list[ReadChange]:
    with ChangeReader(log, SET, "probe") as probe:
        found: list[ReadChange] = []
        while len(found) < count:
            found += probe.poll(1.0)
        probe.forget()
    return found


def test_a_reader_that_begins_after_a_partition_was_used_again_reads_everything_in_order(
    log: KafkaLog, operator: Operator, writer: ChangeWriter
) -> None:
    with ChangeReader(log, SET, "old") as old:
        write(writer, LEFT, 5)
        write(writer, RIGHT, 3_000)
        early = old.positions
        total = 3_005
        read(old, total)
        split(operator, 1)
        write(writer, RIGHT, 100)
        read(old, 100)

        def is_drained() -> bool:
            old.poll(0.2)
            old.commit()
            return operator.phases()[1] == "drained"

        eventually(is_drained, "the partition is free")
        split(operator, 0)
        write(writer, LEFT, 10)
        write(writer, RIGHT, 10)
        total += 120
        state = operator.tail.state
        used = [(each.partition, each.id) for epoch in state.sets[SET].generations for each in
                state.map_of(SET, epoch.epoch).streams]  # fmt: skip
        assert len({partition for partition, _ in set(used)}) < len(set(used)), "a partition was used again"
    for reader, positions in (("new", {}), ("restored", early)):
        with ChangeReader(log, SET, reader, positions=positions) as opened:
            by_key: dict[bytes | None, list[int]] = {}
            found = 0
            while found < total:
                for change in opened.poll(30):
                    by_key.setdefault(change.key, []).append(change.position)
                    found += 1
            assert found == total
            assert opened.gaps == []
        assert all(positions == sorted(positions) for positions in by_key.values())


def test_a_bad_record_is_named_loses_nothing_and_can_be_left_out(
    log: KafkaLog, operator: Operator, writer: ChangeWriter
) -> None:
    write(writer, LEFT, 20)
    partition = _changes_of(log, 1)[0].partition
    place: list[int] = []
    with Producer({"bootstrap.servers": log.connection.bootstrap_servers}) as producer:
        producer.produce(
            *(operator.topic, b"y", b"x", partition), on_delivery=lambda _error, message: place.append(message.offset())
        )
        assert producer.flush(ANSWER_SECONDS) == 0
    name = f"{operator.topic}/{partition}/{place[0]}"
    write(writer, LEFT, 20)
    write(writer, RIGHT, 20)
    found: list[int] = []

    said = re.escape(f"partition {partition}, offset {place[0]}: the record does not have the headers headgate-writer")
    with ChangeReader(log, SET, "r") as reader:
        with pytest.raises(BadRecordError, match=said) as raised:
            read_for_ever(reader, found)
        assert raised.value.place == name
        assert set(range(20)) <= set(found) <= {*range(20), *range(40, 60)}, "what comes before it is not thrown away"
        with pytest.raises(BadRecordError):
            reader.poll(0.2)
        stored, rest = reader.positions, 60 - len(found)
        with pytest.raises(ReaderError, match="is not a record of change log"):
            reader.skip("other/0/1")
        with pytest.raises(PlaceError):
            reader.skip("other")
        reader.skip(name)
        assert sorted(found + read(reader, rest)) == list(range(60))
    with ChangeReader(log, SET, "r", positions=stored, skip=[name]) as reader:
        assert sorted(found + read(reader, rest)) == list(range(60)), "also from the start"
        assert nothing_more(reader)


def test_only_what_is_committed_is_reported(log: KafkaLog, operator: Operator, writer: ChangeWriter) -> None:
    write(writer, LEFT + RIGHT, 20)
    with ChangeReader(log, SET, "r") as reader:
        assert reported(operator, "r") == 0, "it is registered as soon as it is open"
        assert len(reader.moved) == 2
        assert operator.resize(4).status is OutcomeStatus.DONE
        write(writer, LEFT + RIGHT, 20)
        read(reader, 40)
        assert reported(operator, "r") == 0
        before = reader.positions
        assert reader.moved == before
        reader.commit()
        assert reported(operator, "r") == 2
        assert reader.moved == {}
        split(operator, 0)

        def has_passed_the_end() -> bool:
            reader.poll(0.2)
            return len(reader.moved) >= 3

        eventually(has_passed_the_end, "the end of the stream, although no change came")
        reader.commit(before)
        assert reported(operator, "r") == 2, "positions as they were"
        reader.commit()
        assert reported(operator, "r") == 3
        with pytest.raises(PositionsError):
            reader.commit({"x": 1})
        stored = reader.positions
    with ChangeReader(log, SET, "r", positions=before):
        assert reported(operator, "r") == 2, "it continues from older positions, and says so"
    with ChangeReader(log, SET, "r", positions=stored) as reader:
        assert reported(operator, "r") == 3
        reader.forget()
    operator.tail.read_to_end()
    assert "r" not in operator.tail.state.readers.get(SET, {})


def test_a_reader_begins_at_the_end_or_at_a_time(log: KafkaLog, operator: Operator, writer: ChangeWriter) -> None:
    write(writer, LEFT + RIGHT, 20)
    middle = datetime.fromtimestamp((max(each.timestamp_ms or 0 for each in _changes_of(log, 20)) + 1) / 1000, UTC)
    eventually(lambda: datetime.now(UTC) > middle, "a later time")
    assert operator.resize(4).status is OutcomeStatus.DONE
    write(writer, LEFT + RIGHT, 20)
    with (
        ChangeReader(log, SET, "end", start="latest") as at_the_end,
        ChangeReader(log, SET, "time", start=middle) as at_a_time,
        ChangeReader(log, SET, "future", start=datetime.now(UTC) + timedelta(days=1)) as in_the_future,
    ):
        assert sorted(read(at_a_time, 20)) == list(range(20, 40))
        assert nothing_more(at_the_end)
        assert sum(each.lag for each in at_the_end.lag()) == 0
        write(writer, LEFT + RIGHT, 8)
        for reader in (at_the_end, in_the_future):
            assert sorted(read(reader, 8)) == list(range(40, 48))
        stored = at_the_end.positions
    write(writer, LEFT + RIGHT, 2)
    with ChangeReader(log, SET, "end", start="oldest", positions=stored) as reader:
        lags = reader.lag()
        assert sum(each.lag for each in lags) >= 2
        assert {each.stream for each in lags} == {stream for stream, at in reader.positions.items() if at >= 0}
        assert sorted(read(reader, 2)) == [48, 49], "positions count, not where it began once"
    for wrong in (datetime(2026, 1, 1), "earliest"):
        with pytest.raises(ValueError, match="'oldest', 'latest' or a datetime with a time zone"):
            ChangeReader(log, SET, "r", start=wrong)  # type: ignore[arg-type]


def test_a_change_log_that_does_not_exist_is_said(log: KafkaLog, cluster: Cluster) -> None:
    with pytest.raises(ChangeLogNotFoundError, match=r"'no-such' does not exist in cluster .* generation create"):
        ChangeReader.open("no-such", "r", bootstrap=cluster.bootstrap, cluster=cluster.cluster)
