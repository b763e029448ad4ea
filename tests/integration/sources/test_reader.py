"""The log reader on a real broker: exactly from where it is told, whatever it has fetched before."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from headgate.sources import reader as reader_module
from headgate.sources.fetching import PACED_PARTITIONS, reader_properties
from headgate.sources.offsets import OffsetExpiredError
from headgate.sources.reader import ROW_SECONDS, STALL_SECONDS, Chunk, LogReader, Reading

pytestmark = pytest.mark.integration

READS_MAX = 500


class Log:
    """A topic of two partitions and a reader of it."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 2) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in self.admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result()
        self.reader = LogReader(reader_properties(bootstrap, {}))

    def write(self, partition: int, count: int, **properties: str) -> None:
        self.write_to_all([partition], count, **properties)

    def write_to_all(self, partitions: Iterable[int], count: int, **properties: str) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, **properties})
        for partition in partitions:
            for number in range(count):
                producer.produce(self.topic, b"v%d" % number, b"k", partition)
        producer.flush(30)

    @contextmanager
    def trickle(self, partition: int, rows_max: int, every_seconds: float) -> Iterator[Callable[[], bool]]:
        """Rows one by one, in the background; gives whether they still come."""
        producer, ending = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0}), threading.Event()

        def run() -> None:
            for _ in range(rows_max):
                producer.produce(self.topic, b"v", b"k", partition)
                producer.poll(0)
                if ending.wait(every_seconds):
                    return

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield thread.is_alive
        finally:
            ending.set()
            thread.join()
            producer.flush(30)

    def write_in_transaction(self, partition: int, count: int, *, commit: bool) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.topic})
        producer.init_transactions(30)
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(self.topic, b"t", b"k", partition)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)

    def read(self, starts: dict[int, int], until: dict[int, int], rows_max: int = 1_000_000) -> dict[int, list[int]]:
        """Offsets per partition of one read after another until all that ``until`` speaks of has come, or its end."""
        found: dict[int, list[int]] = {partition: [] for partition in starts}
        for _ in range(READS_MAX):
            at = {p: (found[p][-1] + 1 if found[p] else start) for p, start in starts.items()}
            for chunk in self._once(at, until, rows_max):
                assert chunk.error is None
                found[chunk.partition] += chunk.offsets
            ends = {p: self.reader.ends.get((self.topic, p), 0) for p in starts}
            if all((found[p] and found[p][-1] + 1 >= until[p]) or ends[p] >= until[p] for p in starts):
                return found
        pytest.fail(f"nothing more after {found}")

    def _once(self, starts: dict[int, int], until: dict[int, int], rows_max: int) -> list[Chunk]:
        readings = [Reading(self.topic, p, start, until[p]) for p, start in sorted(starts.items())]
        return list(self.reader.read(readings, rows_max, 0.2))

    def errors(self, starts: dict[int, int]) -> dict[int, Exception]:
        found: dict[int, Exception] = {}
        for _ in range(READS_MAX):
            for chunk in self._once(starts, {p: start + 1 for p, start in starts.items()}, 10):
                if chunk.error is not None:
                    found[chunk.partition] = chunk.error
            if found:
                return found
        pytest.fail("no error came")


@pytest.fixture
def log(kafka_bootstrap: str, kafka_prefix: str) -> Iterator[Log]:
    made = Log(kafka_bootstrap, f"{kafka_prefix}read")
    yield made
    made.reader.close()


def test_rows_come_from_the_named_offsets_in_order(log: Log) -> None:
    log.write(0, 50)
    log.write(1, 30)
    assert log.read({0: 7, 1: 0}, {0: 50, 1: 30}) == {0: [*range(7, 50)], 1: [*range(30)]}


def test_a_read_goes_on_where_told_not_where_the_last_one_ended(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write(0, 50)
    assert log.read({0: 0}, {0: 50})[0] == [*range(50)]
    assert log.read({0: 20}, {0: 50})[0] == [*range(20, 50)], "back, when a transaction was rolled back"
    log.write(0, 50)
    assert log.read({0: 60}, {0: 100})[0] == [*range(60, 100)], "over a gap that another process has applied"
    monkeypatch.setattr(reader_module, "SKIP_ROWS_MAX", 5)
    log.write(0, 50)
    assert log.read({0: 140}, {0: 150})[0] == [*range(140, 150)], "over a large one"


def test_no_more_rows_than_asked_for_and_none_is_lost_between_two_reads(log: Log) -> None:
    log.write(0, 50)
    first = list(log.reader.read([Reading(log.topic, 0, 0, 50)], 20, 30.0))
    assert [offset for chunk in first for offset in chunk.offsets] == [*range(20)]
    assert log.read({0: 20}, {0: 50}, rows_max=7)[0] == [*range(20, 50)]


def test_a_read_that_is_broken_off_loses_nothing(log: Log) -> None:
    log.write(0, 20)
    log.write(1, 20)
    readings = [Reading(log.topic, 0, 0, 20), Reading(log.topic, 1, 0, 20)]
    next(log.reader.read(readings, 1_000, 30.0))
    assert log.read({0: 0, 1: 0}, {0: 20, 1: 20}) == {0: [*range(20)], 1: [*range(20)]}


def test_partitions_come_and_go_between_reads(log: Log) -> None:
    log.write(0, 10)
    log.write(1, 10)
    assert log.read({0: 0}, {0: 10}) == {0: [*range(10)]}
    assert log.read({1: 4}, {1: 10}) == {1: [*range(4, 10)]}
    log.write(0, 10)
    assert log.read({0: 10, 1: 10}, {0: 20, 1: 10}) == {0: [*range(10, 20)], 1: []}


def test_a_reader_that_gets_many_partitions_more_goes_on_exactly_where_it_was(
    kafka_bootstrap: str, kafka_prefix: str
) -> None:
    log = Log(kafka_bootstrap, f"{kafka_prefix}many", 3 * PACED_PARTITIONS)
    few, many = range(2), range(3 * PACED_PARTITIONS)
    log.write_to_all(many, 4)
    assert log.read(dict.fromkeys(few, 0), dict.fromkeys(few, 3), rows_max=4) == {p: [*range(4)] for p in few}
    starts = {partition: 2 if partition in few else 0 for partition in many}
    found = log.read(starts, dict.fromkeys(many, 4))
    assert found == {partition: [*range(start, 4)] for partition, start in starts.items()}
    log.write(7, 1)
    assert log.read(dict.fromkeys(many, 4), {p: 5 if p == 7 else 4 for p in many})[7] == [4], "one row alone comes too"


def test_a_reader_has_heard_how_far_the_log_goes_beyond_what_it_was_asked_for(log: Log) -> None:
    log.write(0, 30)
    assert log.reader.ahead([Reading(log.topic, 0, 0, 0)]) == {}, "it has read nothing"
    log.read({0: 0}, {0: 10}, rows_max=10)
    assert log.reader.ahead([Reading(log.topic, 0, 0, 0)]) == {(log.topic, 0): 30}
    log.read({0: 10}, {0: 30})
    assert log.reader.ahead([Reading(log.topic, 0, 0, 0)]) == {}


def test_much_that_is_known_to_be_there_is_waited_for_also_by_a_read_that_has_hardly_time(log: Log) -> None:
    log.write(0, 5)
    many = int(STALL_SECONDS / ROW_SECONDS)
    (chunk,) = log.reader.read([Reading(log.topic, 0, 0, many)], 5, 1e-6)
    assert list(chunk.offsets) == [0, 1, 2, 3, 4]


def test_a_partition_of_which_nothing_comes_does_not_hold_up_a_neighbour_that_goes_on_getting_rows(log: Log) -> None:
    log.write_to_all([0, 1], 1)
    log.read({0: 0, 1: 0}, {0: 1, 1: 1})
    log.reader._consumer.pause([TopicPartition(log.topic, 1)])
    log.reader.ends.clear()
    readings = [Reading(log.topic, 0, 1, 1), Reading(log.topic, 1, 1, int(STALL_SECONDS / ROW_SECONDS))]
    with log.trickle(0, rows_max=5_000, every_seconds=0.002) as is_trickling:
        chunks = list(log.reader.read(readings, 1_000_000, 0.02))
        assert is_trickling(), "it waited for as long as its neighbour got rows"
    assert {chunk.partition for chunk in chunks} <= {0}


@pytest.mark.parametrize("kept", [1, 2])
def test_a_topic_that_is_new_to_a_reader_has_its_leader_asked_for_once(
    log: Log, kafka_bootstrap: str, kafka_prefix: str, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    asked: list[str] = []

    class Asking(Consumer):
        def list_topics(self, topic: str, timeout: float) -> ClusterMetadata:
            asked.append(topic)
            return super().list_topics(topic, timeout=timeout)

    monkeypatch.setattr(reader_module, "Consumer", Asking)
    other = Log(kafka_bootstrap, f"{kafka_prefix}other")
    for each in (log, other):
        each.write_to_all(range(2), 3)
    log.read(dict.fromkeys(range(kept), 0), dict.fromkeys(range(kept), 3))
    other.reader = log.reader
    for _ in range(2):
        assert other.read({0: 0}, {0: 3}) == {0: [0, 1, 2]}
        assert asked == [other.topic]
        assert log.read({0: 0}, {0: 3}) == {0: [0, 1, 2]}


def test_only_committed_rows_are_seen_and_the_end_lies_behind_their_markers(log: Log) -> None:
    log.write_in_transaction(0, 5, commit=False)
    log.write_in_transaction(0, 5, commit=True)
    assert log.read({0: 0}, {0: 12})[0] == [*range(6, 11)]
    assert log.reader.ends[log.topic, 0] == 12


def test_an_offset_that_is_gone_is_an_error_of_its_partition(log: Log) -> None:
    log.write(0, 10)
    log.write(1, 10)
    for future in log.admin.delete_records([TopicPartition(log.topic, 0, 5)]).values():
        future.result()
    errors = log.errors({0: 2, 1: 0})
    assert list(errors) == [0]
    assert isinstance(errors[0], OffsetExpiredError)
    assert log.read({1: 0}, {1: 10})[1] == [*range(10)]
    assert list(log.errors({0: 2})) == [0], "asked again it is told again"


def test_a_partition_that_has_failed_begins_anew_while_its_neighbours_are_kept(log: Log) -> None:
    reader = LogReader(reader_properties(log.bootstrap, {}))
    other = Log(log.bootstrap, f"{log.topic}.other")
    for partition in (0, 1):
        log.write(partition, 10)
        other.write(partition, 10)
    for future in log.admin.delete_records([TopicPartition(log.topic, 0, 5)]).values():
        future.result()
    readings = [Reading(topic, partition, 2, 10) for topic in (log.topic, other.topic) for partition in (0, 1)]
    for _ in range(3):  # told each time
        errors: set[tuple[str, int]] = set()
        for _ in range(READS_MAX):
            errors |= {(c.topic, c.partition) for c in reader.read(readings, 100, 0.2) if c.error is not None}
            if errors:
                break
        assert errors == {(log.topic, 0)}
    reader.close()
