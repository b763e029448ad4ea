"""Lanes that read a change log of generations: per key in order, whatever is split or merged under them."""

import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from headgate.agent.core.executor import SpanId, SpanTask
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.topics import create_topics, topic_name
from headgate.generation import ChangeWriter
from headgate.generation.changelog.core.planning import resize
from headgate.generation.changelog.shell.feeds import FeedChangeLogs
from headgate.generation.core.state import current_of
from headgate.generation.shell.tail import GenerationTail
from headgate.records.base import Fact
from headgate.records.control import Epoch, OutcomeStatus, SpanPlan, TaskState
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    StreamsRecut,
)
from headgate.records.spans import divide, unite
from headgate.replication.executor import SparkExecutor
from headgate.replication.queries import ExecutorSettings
from headgate.sources.change_logs import reader_of_feed
from support.generation_owner import running_owner
from support.kafka_cluster import ANSWER_SECONDS, Cluster
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

SET = "goods"
KEYS = 40
PARTITIONS = 12


class ChangeLogBed:
    """A change log with its owner on a thread, a table that remembers every write, and executors over them."""

    def __init__(self, bed: Bed, log: KafkaLog) -> None:
        self.bed, self.log = bed, log
        self.topic = f"{log.cluster}.public.goods"
        self.tail = GenerationTail(log, SET, "operator")
        self.change_logs = FeedChangeLogs(log)
        self._requests = 0
        bed.database.execute("CREATE TABLE goods (id bigint PRIMARY KEY, name text, qty int)")
        bed.database.execute("CREATE TABLE history (number bigserial, id bigint, qty int)")
        bed.database.execute(
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO public.history (id, qty) VALUES (NEW.id, NEW.qty); RETURN NEW; END $$"
        )
        bed.database.execute("CREATE TRIGGER note AFTER INSERT OR UPDATE ON goods FOR EACH ROW EXECUTE FUNCTION note()")

    def ask(self, kind: GenerationRequestKind, **fields: Any) -> None:
        self._requests += 1
        key = GenerationRequestKey(SET, f"r{self._requests}")
        given = {"topic": "", "partitions": 0, "streams": 0, "epoch": 0, "changes": (), **fields}
        self.tail.say(Fact(key, GenerationRequested(kind=kind, requested_by="test", requested_ms=0, **given)))
        outcome = GenerationOutcomeKey(SET, key.request)

        def done() -> bool:
            self.tail.follow(0.1)
            found = self.tail.state.outcomes.get(outcome)
            assert found is None or found.status in (OutcomeStatus.ACCEPTED, OutcomeStatus.DONE), found
            return found is not None and found.status is OutcomeStatus.DONE

        eventually(done, f"an outcome of {kind}")

    def create(self, streams: int = 1) -> None:
        self.ask(GenerationRequestKind.CREATE, topic=self.topic, partitions=PARTITIONS, streams=streams)

    def resize(self, streams: int) -> None:
        self.tail.read_to_end()
        current = current_of(self.tail.state.sets[SET])
        assert current is not None
        recut = resize(self.tail.state.map_of(SET, current.epoch), streams)
        changes = tuple(StreamsRecut(tuple(map(str, change.streams)), change.cuts) for change in recut)
        self.ask(GenerationRequestKind.SWITCH, epoch=current.epoch, changes=changes)

    def writer(self, name: str) -> ChangeWriter:
        return ChangeWriter(self.log, SET, name)

    def write(self, writer: ChangeWriter, first: int, count: int) -> None:
        """Change n sets row n mod KEYS to n."""
        for number in range(first, first + count):
            row = {"id": number % KEYS, "name": "x", "qty": number}
            event = {"before": None, "after": row, "source": {"ts_ms": 1_700_000_000_000}, "op": "c"}
            writer.write(msgspec.json.encode({"id": row["id"]}), msgspec.json.encode(event), number)
        writer.flush()

    def executor(self) -> SparkExecutor:
        settings = ExecutorSettings(self.bed.bootstrap, "test/headgate.", log=self.log)
        self.bed.executors.append(SparkExecutor(self.bed.runtime, settings))
        return self.bed.executors[-1]

    def plan(self) -> SpanPlan:
        return SpanPlan(
            span="public.goods", topic=self.topic, table="public.goods", start=dict.fromkeys(range(PARTITIONS), 0)
        )

    def task(self, plan: SpanPlan, n: int, **source: object) -> SpanTask:
        spec = {
            "feed": self.bed.feed,
            "source": {"change_log": SET, **source},
            "sink": {"type": "postgresql", "dsn": self.bed.dsn},
        }
        return SpanTask(
            id=SpanId(self.bed.feed, plan.span),
            feed_id="0-7",
            incarnation=1,
            epoch=Epoch(3, n),
            plan=plan,
            spec=msgspec.json.encode(spec).decode(),
        )

    def report(self, *executors: SparkExecutor) -> None:
        """As the feed's coordinator does, from the positions that agents checkpoint."""
        positions = {}
        for executor in executors:
            for span in executor.all_spans():
                status = executor.status(span)
                positions |= {} if status is None else status.positions
        self.change_logs.report(SET, reader_of_feed(self.bed.feed), positions)

    def rows(self) -> dict[int, int]:
        return dict(self.bed.database.execute("SELECT id, qty FROM goods").fetchall())

    def history(self) -> dict[int, list[int]]:
        """What each row was set to, in the order in which it became visible."""
        found: dict[int, list[int]] = {}
        for key, value in self.bed.database.execute("SELECT id, qty FROM history ORDER BY number").fetchall():
            found.setdefault(key, []).append(value)
        return found

    def await_rows(self, count: int) -> None:
        wanted = {number % KEYS: number for number in range(count)}
        eventually(lambda: self.rows() == wanted, f"all {count} changes")
        for key, values in self.history().items():
            assert values == sorted(set(values)), f"row {key} went back, or was set twice: {values}"

    def phases(self) -> dict[int, str]:
        self.tail.read_to_end()
        return {each.epoch: each.phase.value for each in self.tail.state.sets[SET].generations}


@pytest.fixture
def log(kafka_bootstrap: str) -> Iterator[KafkaLog]:
    cluster = Cluster(kafka_bootstrap, f"lanes-{uuid.uuid4().hex[:10]}", shards=1)
    create_topics(cluster)
    opened = open_log(cluster)
    with running_owner(opened, cluster):
        yield opened
    opened.close()


@pytest.fixture
def world(bed: Bed, log: KafkaLog) -> ChangeLogBed:
    return ChangeLogBed(bed, log)


@pytest.mark.parametrize("strict", [False, True])
def test_one_then_four_then_two_streams_under_a_running_feed(world: ChangeLogBed, strict: bool) -> None:
    world.create()
    world.report()
    executor, task = world.executor(), world.task(world.plan(), 1, strict_generations=strict)
    executor.add_table(task, prepare=False)
    with world.writer("w") as writer:
        world.write(writer, 0, 200)
        reached(executor, task.id, TaskState.REPLICATING)
        world.await_rows(200)
        written = 200
        for streams in (4, 2, 4, 1):
            world.resize(streams)
            world.write(writer, written, 300)
            written += 300
            world.await_rows(written)
            world.report(executor)
    eventually(
        lambda: world.report(executor) or "superseded" not in world.phases().values(), "all streams are reported"
    )
    # A row is visible before its batch is adopted, so the count may follow; it never says more than was written.
    eventually(lambda: counted(executor, task.id, written) == written, "the last batch is counted")
    world.resize(2)
    eventually(
        lambda: world.report(executor) or "superseded" not in world.phases().values(), "its END markers are read"
    )
    assert counted(executor, task.id, written) == written


def counted(executor: SparkExecutor, span: SpanId, written: int) -> int:
    """How many rows the status says; END markers are no rows."""
    status = executor.status(span)
    assert status is not None
    assert status.rows <= written, "more rows than were written"
    return status.rows


def test_a_backlog_over_several_generations_is_applied_in_their_order(world: ChangeLogBed) -> None:
    """Nothing is registered while it is written, so partitions are used again before the feed has read any of them."""
    world.create(streams=2)
    with world.writer("w") as writer:
        written = 0
        for streams in (8, 3, 9, 1, 6):
            world.write(writer, written, 200)
            written += 200
            world.resize(streams)
            eventually(lambda: "superseded" not in world.phases().values(), "it is drained")
        world.write(writer, written, 200)
        written += 200
    used = {each.partition for n in range(1, 7) for each in world.tail.state.map_of(SET, n).streams}
    assert len(used) <= PARTITIONS
    world.report()
    executor, task = world.executor(), world.task(world.plan(), 1)
    executor.add_table(task, prepare=False)
    world.await_rows(written)


def test_parts_of_a_table_on_two_agents_wait_for_each_other(world: ChangeLogBed) -> None:
    world.create()
    world.report()
    parts = divide(world.plan(), 2)
    assert unite(parts).start == world.plan().start
    executors = [world.executor(), world.executor()]
    for executor, part in zip(executors, parts, strict=True):
        executor.add_table(world.task(part, 1), prepare=False)
    with world.writer("w") as writer:
        world.write(writer, 0, 100)
        written = 100
        for streams in (9, 2):
            world.resize(streams)
            world.write(writer, written, 300)
            written += 300
            world.await_rows(written)
            world.report(*executors)


def test_a_record_that_no_writer_wrote_stops_its_table(world: ChangeLogBed) -> None:
    world.create()
    world.report()
    executor, task = world.executor(), world.task(world.plan(), 1)
    executor.add_table(task, prepare=False)
    with world.writer("w") as writer:
        world.write(writer, 0, 50)
    world.await_rows(50)
    stranger = Producer({"bootstrap.servers": world.bed.bootstrap})
    stranger.produce(world.topic, key=b"k", value=b"v", partition=0)
    stranger.flush(ANSWER_SECONDS)
    status = eventually(lambda: (s := executor.status(task.id)) and s.state is TaskState.FAILED and s, "it fails")
    assert "no ChangeWriter wrote this record" in status.error


def test_a_transaction_left_open_on_the_topic_of_generations_holds_up_no_feed(world: ChangeLogBed) -> None:
    """As a killed owner leaves one, until it is fenced or the broker ends it."""
    world.create()
    world.report()
    executor, task = world.executor(), world.task(world.plan(), 1)
    executor.add_table(task, prepare=False)
    topic = topic_name(world.log.cluster, "generation")
    with world.writer("w") as writer:
        world.write(writer, 0, 50)
        world.await_rows(50)
        killed = Producer(
            {
                "bootstrap.servers": world.bed.bootstrap,
                "transactional.id": f"{world.log.cluster}-killed",
                "transaction.timeout.ms": 600_000,
            }
        )
        killed.init_transactions(30)
        killed.begin_transaction()
        killed.produce(topic, key=b"goods/reader/nobody", value=b"", partition=0)
        assert killed.flush(ANSWER_SECONDS) == 0
        try:
            world.write(writer, 50, 50)
            world.await_rows(100)
        finally:
            killed.abort_transaction(30)


def test_a_feed_that_is_not_registered_does_not_begin(world: ChangeLogBed) -> None:
    world.create()
    executor, task = world.executor(), world.task(world.plan(), 1)
    executor.add_table(task, prepare=False)
    error = eventually(lambda: (s := executor.status(task.id)) and s.error, "an error")
    assert f"does not know reader feed.{world.bed.feed} yet" in error
    world.report()
    reached(executor, task.id, TaskState.REPLICATING)


def test_what_retention_took_before_it_was_read_is_an_error(world: ChangeLogBed) -> None:
    world.create()
    with world.writer("w") as writer:
        world.write(writer, 0, 50)
    world.report()
    world.bed.delete_before(world.plan(), 0, 20)
    executor, task = world.executor(), world.task(world.plan(), 1)
    executor.add_table(task, prepare=False)
    status = eventually(lambda: (s := executor.status(task.id)) and s.state is TaskState.FAILED and s, "it fails")
    assert status.error_code == "source_offset_expired"
    assert world.rows() == {}


def test_what_was_retired_before_it_was_read_is_an_error(world: ChangeLogBed) -> None:
    world.create()
    with world.writer("w") as writer:
        world.write(writer, 0, 50)
        world.resize(2)
        eventually(lambda: world.phases()[1] == "drained", "nobody is waited for")
        world.ask(GenerationRequestKind.RETIRE)
    world.report()
    executor, task = world.executor(), world.task(world.plan(), 1)
    executor.add_table(task, prepare=False)
    status = eventually(lambda: (s := executor.status(task.id)) and s.state is TaskState.FAILED and s, "it fails")
    assert status.error_code == "change_log_gap"
    assert "partition 0: offsets 0 to" in status.error
    assert world.rows() == {}
