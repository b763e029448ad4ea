"""A real lane: one Spark session for all tests, a topic and tables of each test's own."""

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psycopg
import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.agent.core.executor import SpanId, SpanTask, TaskStatus
from headgate.config.crash_points import ArmedPoints
from headgate.provisioning.java import java_home_for_spark
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import Epoch, SpanPlan, TaskState
from headgate.replication.executor import SparkExecutor
from headgate.replication.queries import ExecutorSettings
from headgate.replication.spark import SparkRuntime
from headgate.replication.spark_options import SparkOptions
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import make_topics
from support.waiting import eventually

DEADLINE_SECONDS = scaled_seconds(240)


@pytest.fixture(scope="session")
def worker_points(tmp_path_factory: pytest.TempPathFactory) -> ArmedPoints:
    """Where the session's Python workers can be made to stand still. The driver, which is us, heeds them not."""
    return ArmedPoints(tmp_path_factory.mktemp("points"))


@pytest.fixture(scope="session")
def spark_runtime(
    spark_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory, worker_points: ArmedPoints
) -> Iterator[SparkRuntime]:
    runtime = SparkRuntime(
        SparkOptions(
            jars=spark_jars,
            scratch=tmp_path_factory.mktemp("spark"),
            java_home=java_home_for_spark(),
            driver_memory="768m",
            options={f"spark.executorEnv.{name}": value for name, value in worker_points.variables.items()},
        )
    )
    runtime.start()  # here, so that no test waits for it
    yield runtime
    runtime.stop()


GATE = """
CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_lock_shared({number}); PERFORM pg_advisory_unlock_shared({number}); RETURN NEW; END $$;
CREATE TRIGGER gate BEFORE INSERT ON {table} FOR EACH ROW WHEN (NEW.id = {row}) EXECUTE FUNCTION gate()
"""


class Bed:
    """A database with tables, their topics, and executors over them."""

    def __init__(self, bootstrap: str, prefix: str, dsn: str, runtime: SparkRuntime) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.dsn = dsn
        self.runtime = runtime
        self.feed = "f" + uuid.uuid4().hex[:6]
        self.executors: list[SparkExecutor] = []
        self.refused: list[str] = []
        self.producer = self.new_producer()
        self.database = psycopg.connect(dsn, autocommit=True)

    def new_producer(self) -> Producer:
        """A client remembers for a while that a topic did not exist, and then refuses records for it."""
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "enable.idempotence": True})

    def table(self, name: str, partitions: int = 1) -> SpanPlan:
        self.database.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text, qty int)")
        topic = f"{self.prefix}public.{name}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        make_topics(admin, NewTopic(topic, partitions, 1))
        return SpanPlan(span=name, topic=topic, table=f"public.{name}", start=dict.fromkeys(range(partitions), 0))

    def task(self, plan: SpanPlan, n: int, **source: object) -> SpanTask:
        spec = {
            "feed": self.feed,
            "source": {"topic_pattern": ".*", **source},
            "sink": {"type": "postgresql", "dsn": self.dsn},
        }
        return SpanTask(
            id=SpanId(self.feed, plan.span),
            feed_id="0-7",
            incarnation=1,
            epoch=Epoch(3, n),
            plan=plan,
            spec=msgspec.json.encode(spec).decode(),
        )

    def executor(self, lane_options: Mapping[str, str] | None = None) -> SparkExecutor:
        settings = ExecutorSettings(self.bootstrap, "test/headgate.", lane_options=lane_options or {})
        self.executors.append(SparkExecutor(self.runtime, settings))
        return self.executors[-1]

    def put(self, plan: SpanPlan, rows: Mapping[int, Mapping[str, object] | None]) -> None:
        """Debezium events: a row upserts its id, None deletes it. Fails unless the broker has taken all of them."""
        partitions = len(plan.start)
        for number, row in rows.items():
            envelope = {
                "before": None if row is not None else {"id": number},
                "after": None if row is None else {"id": number, **row},
                "source": {"ts_ms": time.time_ns() // 1_000_000},
                "op": "d" if row is None else "c",
            }
            self.raw(plan, msgspec.json.encode({"id": number}), msgspec.json.encode(envelope), number % partitions)
        left = self.producer.flush(ANSWER_SECONDS)
        assert (left, self.refused) == (0, []), f"{left} records are still under way, and the broker refused these"

    def raw(self, plan: SpanPlan, key: bytes, value: bytes | None, partition: int = 0) -> None:
        while True:
            try:
                self.producer.produce(plan.topic, value, key, partition, on_delivery=self._delivered)
            except BufferError:
                self.producer.poll(0.1)
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(f"{message.topic()}/{message.partition()}: {error.str()}")

    def delete_before(self, plan: SpanPlan, partition: int, offset: int) -> None:
        """As retention would."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_records([TopicPartition(plan.topic, partition, offset)]).values():
            future.result()

    @contextmanager
    def gate(self, plan: SpanPlan, row: int) -> Iterator[None]:
        """Meanwhile the batch that writes this row waits, and so does all that comes behind it."""
        self.database.execute(GATE.format(number=row, table=plan.table, row=row))
        self.database.execute("SELECT pg_advisory_lock(%s)", (row,))
        try:
            yield
        finally:
            self.database.execute("SELECT pg_advisory_unlock(%s)", (row,))

    def rows(self, plan: SpanPlan) -> dict[int, tuple[str, int]]:
        found = self.database.execute(f"SELECT id, name, qty FROM {plan.table}").fetchall()
        return {row[0]: (row[1], row[2]) for row in found}

    def close(self) -> None:
        for executor in self.executors:
            executor.close()
        self.producer.close()
        self.database.close()


@pytest.fixture
def bed(kafka_bootstrap: str, kafka_prefix: str, postgres_database: str, spark_runtime: SparkRuntime) -> Iterator[Bed]:
    made = Bed(kafka_bootstrap, kafka_prefix, postgres_database, spark_runtime)
    yield made
    made.close()


def reached(executor: SparkExecutor, span: SpanId, state: TaskState) -> TaskStatus:
    """The status, once the task is in ``state``; fails at once if it failed instead."""

    def there() -> TaskStatus | None:
        status = executor.status(span)
        assert status is not None
        assert status.state is state or status.state is not TaskState.FAILED, status
        return status if status.state is state else None

    found: TaskStatus = eventually(there, f"{span} is {state}, was {executor.status(span)}")
    return found
