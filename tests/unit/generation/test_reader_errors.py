"""ChangeReader over a consumer that fails in the middle of a poll: what was fetched is returned, nothing is skipped."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec
from msgspec.structs import replace

from headgate.eventlog import partition_reader
from headgate.eventlog.log import LogError, Partition
from headgate.generation import BadRecordError, ChangeLogNotFoundError, ChangeReader, Gap, ReaderError
from headgate.generation.changelog.shell import reader as shell
from headgate.generation.changelog.shell.wire import change_headers
from headgate.generation.core.state import evolve
from headgate.records.base import Fact
from headgate.records.generation import SetKey

from .test_reader_progress import ONE, A, B, told

Headers = list[tuple[str, bytes]] | None


class Message:
    def __init__(self, at: tuple[int, int], headers: Headers = None, error: KafkaError | None = None) -> None:
        self._at, self._headers, self._error = at, headers, error

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._at[0]

    def offset(self) -> int:
        return self._at[1]

    def error(self) -> KafkaError | None:
        return self._error

    def headers(self) -> Headers:
        return self._headers

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_000 + self._at[1])


LOOKUP_FAILED = KafkaError(KafkaError._AUTO_OFFSET_RESET, "failed to query logical offset: Broker: Not leader")
OUT_OF_RANGE = KafkaError(KafkaError._AUTO_OFFSET_RESET, "fetch failed: Broker: Offset out of range (broker 1)")


class Topic:
    """Records by partition, and errors that the next clients to read a partition get, once."""

    def __init__(self) -> None:
        self.records: dict[int, list[Headers]] = defaultdict(list)
        self.failing: list[tuple[int, KafkaError]] = []


class Consumer:
    """Gives all it has of its assigned partitions in one poll."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.at: dict[int, int] = {}
        self._rest: list[Message] = []

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.at |= {each.partition: each.offset for each in partitions}

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            del self.at[each.partition]

    def poll(self, _timeout: float) -> Message | None:
        self._rest = []
        for partition in sorted(self.at):
            errors = [error for number, error in self.topic.failing if number == partition]
            self.topic.failing = [each for each in self.topic.failing if each[0] != partition]
            self._rest += [Message((partition, self.at[partition]), error=error) for error in errors]
            if not errors:
                found = self.topic.records[partition]
                self._rest += [Message((partition, n), found[n]) for n in range(self.at[partition], len(found))]
                self.at[partition] = len(found)
        return self._rest.pop(0) if self._rest else None

    def consume(self, _count: int, _timeout: float) -> list[Message]:
        return self._rest

    def close(self) -> None:
        self.at = {}


class Tail:
    stopped: str | None = None

    def __init__(self, *_given: object) -> None:
        self.state = told(ONE)
        self.said: list[Fact] = []

    def read_to_end(self) -> None: ...

    def follow(self, _timeout: float) -> bool:
        return False

    def say(self, fact: Fact) -> None:
        self.said.append(fact)

    def close(self) -> None: ...


@pytest.fixture
def topic() -> Topic:
    made = Topic()
    for partition in (0, 1):
        made.records[partition] = [change_headers("w", 10 * partition + offset) for offset in range(4)]  # type: ignore[misc]
    return made


def _nobody_answers(*_asked: object) -> None:
    raise LogError("no answer")


@pytest.fixture
def reader(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> ChangeReader:
    monkeypatch.setattr(shell, "GenerationTail", Tail)
    monkeypatch.setattr(partition_reader, "AskedStableEnds", _nobody_answers)
    connection = SimpleNamespace(
        client=lambda *_given, **_how: Consumer(topic),
        failed=lambda what, error: LogError(f"{what}: {error}"),
        note=lambda _error: None,
        bootstrap_servers="b:9092",
    )
    return ChangeReader(SimpleNamespace(connection=connection, cluster="c"), "s", "r")  # type: ignore[arg-type]


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Where every partition begins and ends, by the broker's word."""
    said = {"earliest": 0, "latest": 4}

    def ask(_connection: object, asked: list[Partition], spec: OffsetSpec, *_more: object) -> dict[Partition, int]:
        words = {OffsetSpec.earliest(): "earliest", OffsetSpec.latest(): "latest"}
        return dict.fromkeys(asked, said[words[spec]])

    monkeypatch.setattr(shell, "offsets_of", ask)
    return said


def positions(reader: ChangeReader) -> list[int]:
    return [change.position for change in reader.poll(0.0)]


def test_an_error_of_one_partition_is_raised_after_what_was_fetched_of_the_others(
    reader: ChangeReader, topic: Topic
) -> None:
    topic.failing = [(0, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))]
    assert positions(reader) == [10, 11, 12, 13]
    with pytest.raises(LogError, match="reading t/0"):
        reader.poll(0.0)
    assert positions(reader) == [0, 1, 2, 3], "it is fetched again from where it was"
    assert reader.gaps == []


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.LEADER_NOT_AVAILABLE])
def test_what_passes_is_not_raised(reader: ChangeReader, topic: Topic, code: int) -> None:
    topic.failing = [(0, KafkaError(code))]
    assert positions(reader) == [10, 11, 12, 13]
    assert positions(reader) == [0, 1, 2, 3]


def test_a_bad_record_stops_the_reader_until_it_is_left_out(reader: ChangeReader, topic: Topic) -> None:
    topic.records[0][2] = [("other", b"x")]
    assert positions(reader) == [0, 1, 10, 11, 12, 13]
    for _ in range(2):
        with pytest.raises(BadRecordError) as raised:
            reader.poll(0.0)
        assert raised.value.place == "t/0/2"
    reader.skip("t/0/1")
    with pytest.raises(BadRecordError):
        reader.poll(0.0)
    reader.skip("t/0/2")
    assert positions(reader) == [3]
    assert reader.positions == {str(A.id): 4, str(B.id): 4}


def test_a_record_that_can_be_read_is_never_left_out(reader: ChangeReader) -> None:
    reader.skip("t/0/1")
    assert positions(reader) == [0, 1, 2, 3, 10, 11, 12, 13]


@pytest.mark.parametrize("error", [OUT_OF_RANGE, KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)], ids=str)
def test_offsets_that_are_gone_are_a_gap_and_the_rest_is_read(
    reader: ChangeReader, topic: Topic, ranges: dict[str, int], error: KafkaError
) -> None:
    topic.failing, ranges["earliest"] = [(0, error)], 3
    assert positions(reader) == [10, 11, 12, 13]
    assert positions(reader) == [3]
    assert reader.gaps == [Gap(str(A.id), 0, 0, 3, "deleted by retention before it was read")]


def test_a_lookup_that_failed_for_another_reason_is_done_again(
    reader: ChangeReader, topic: Topic, ranges: dict[str, int]
) -> None:
    topic.failing, ranges["earliest"] = [(0, LOOKUP_FAILED)], 3
    assert positions(reader) == [10, 11, 12, 13]
    assert positions(reader) == [], "the client is replaced at the next poll"
    assert "looking up where to begin failed" in str(reader.stopped)
    assert (positions(reader), reader.gaps) == ([0, 1, 2, 3], [])


def test_a_position_behind_the_end_of_its_partition_is_an_error(
    reader: ChangeReader, topic: Topic, ranges: dict[str, int]
) -> None:
    positions(reader)
    topic.failing, ranges["latest"] = [(0, OUT_OF_RANGE)], 2
    with pytest.raises(ReaderError, match=f"ends at offset 2, before the reader's position 4 of stream {A.id}"):
        reader.poll(0.0)


def test_a_change_log_that_is_deleted_or_created_again_ends_its_readers(reader: ChangeReader) -> None:
    tail: Any = reader._tail
    record = tail.state.sets["s"]
    positions(reader)
    evolve(tail.state, SetKey("s"), replace(record, topic_id="first"), 0)
    assert positions(reader) == [], "its id was not known before"
    reader._topic_id = "first"
    for new in (replace(record, topic_id="second"), replace(record, topic="other", topic_id="first")):
        evolve(tail.state, SetKey("s"), new, 0)
        with pytest.raises(ChangeLogNotFoundError, match="another one of this name was created"):
            reader.poll(0.0)
    evolve(tail.state, SetKey("s"), replace(record, topic=""), 0)
    with pytest.raises(ChangeLogNotFoundError, match="'s' was deleted while it was read"):
        reader.poll(0.0)


def test_a_retry_of_the_report_follows_a_commit_that_failed(
    reader: ChangeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail: Any = reader._tail
    assert [fact.value.read_epoch for fact in tail.said] == [0]

    def fail(_fact: Fact) -> None:
        raise LogError("not now")

    reader._progress.committed_epoch = 3
    monkeypatch.setattr(tail, "say", fail)
    with pytest.raises(LogError):
        reader.commit()
    monkeypatch.undo()
    reader.commit()
    assert [fact.value.read_epoch for fact in tail.said] == [0, 3]
