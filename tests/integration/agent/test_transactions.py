"""Ends of real transactions as evidence of time: PostgreSQL through Debezium, and a table that is hardly written."""

import json
import time
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from fixtures.capture import Sources
from headgate.agent.core.executor import SpanId, SpanTask, TaskStatus
from headgate.config.feed import parse_feed
from headgate.eventlog.connection import KafkaConnection
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import Epoch, SpanPlan, TaskState
from headgate.records.ts import ts_of_ms
from headgate.replication.executor import SparkExecutor
from headgate.replication.queries import ExecutorSettings
from headgate.replication.spark import SparkRuntime
from headgate.sources.topics import plan_spans

pytestmark = [
    # A connector, a Spark and two databases start here, on a machine that may be busy.
    pytest.mark.timeout(scaled_seconds(600)),
    pytest.mark.spark,
    pytest.mark.integration,
]

Session = psycopg.Connection[tuple]

TABLES = ("orders", "goods")
CREATE = "CREATE TABLE {} (id int PRIMARY KEY, what text)"
DEADLINE_SECONDS = scaled_seconds(300)


@pytest.fixture
def sink(postgres_database: str) -> Iterator[Session]:
    """A session at the sink, where the tables are."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(CREATE.format(table))
        yield connection


@pytest.fixture
def captured(sources: Sources, postgres_schema: tuple[Session, str]) -> str:
    """The prefix of the topics of both tables; each had a row before the capture began."""
    source, schema = postgres_schema
    prefix = f"t{uuid.uuid4().hex[:6]}"
    for table in TABLES:
        source.execute(CREATE.format(table))
        source.execute(f"INSERT INTO {table} VALUES (0, 'before')")
    sources.capture_postgres(prefix, schema, **{"provide.transaction.metadata": "true"})
    for table in TABLES:
        sources.changes(f"{prefix}.{schema}.{table}", 1)
    return prefix


class Feeds:
    """Feeds of both tables, in one Spark; one after another, for a sink's table has one writer."""

    def __init__(self, sources: Sources, runtime: SparkRuntime, prefix: str, dsn: str) -> None:
        self._runtime = runtime
        self._bootstrap = sources.bootstrap
        self._source = {
            "topic_pattern": rf"{prefix}\..*",
            "transaction_topic": f"{prefix}.transaction",
        }
        self._sink = {"type": "postgresql", "dsn": dsn, "table": "public.{table}"}
        self._plans: dict[str, SpanPlan] = {}
        self._epoch = 0
        self._executor: SparkExecutor | None = None

    def run(self, target_ts: int | None = None) -> None:
        """Both tables under a new epoch, from where the sink is, on an executor that knows nothing."""
        self.close()
        source = self._source if target_ts is None else {**self._source, "target_ts": target_ts}
        spec = parse_feed(json.dumps({"feed": "tx", "source": source, "sink": self._sink}))
        if not self._plans:
            plans = plan_spans(KafkaConnection(self._bootstrap), spec, "test.")
            self._plans = {plan.topic.rpartition(".")[2]: plan for plan in plans}
            assert sorted(self._plans) == sorted(TABLES), "the transaction topic is no table"
        settings = ExecutorSettings(bootstrap=self._bootstrap, cluster_id="test/headgate.")
        self._executor = SparkExecutor(self._runtime, settings)
        self._epoch += 1
        for plan in self._plans.values():
            span = SpanId("tx", plan.span)
            task = SpanTask(span, "0-1", 1, Epoch(self._epoch, 1), plan, spec.to_json())
            self._executor.add_table(task, prepare=False)

    def statuses(self) -> dict[str, TaskStatus]:
        assert self._executor is not None
        found = {name: self._executor.status(SpanId("tx", plan.span)) for name, plan in self._plans.items()}
        return {name: status for name, status in found.items() if status is not None}

    def complete_up_to(self, ts: int) -> dict[str, TaskStatus]:
        """Returns once both tables are said to be complete up to ``ts``."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            statuses = self.statuses()
            if len(statuses) == len(TABLES) and all((one.resolved_ts or 0) >= ts for one in statuses.values()):
                return statuses
            assert not any(one.state is TaskState.FAILED for one in statuses.values()), statuses
            assert time.monotonic() < deadline, f"not complete up to {ts}: {statuses}"
            time.sleep(0.05)

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()
            self._executor = None


@pytest.fixture
def feeds(sources: Sources, spark_runtime: SparkRuntime, captured: str, sink: Session) -> Iterator[Feeds]:
    made = Feeds(sources, spark_runtime, captured, f"{sink.info.dsn} password={sink.info.password}")
    yield made
    made.close()


def rows(session: Session) -> dict[str, list[tuple]]:
    return {table: session.execute(f"SELECT id, what FROM {table} ORDER BY id").fetchall() for table in TABLES}


def now_ts(source: Session) -> int:
    """A ts behind every commit so far, and before every later one: the milliseconds differ."""
    row = source.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000 FROM pg_sleep(0.01)").fetchone()
    assert row is not None
    source.execute("SELECT pg_sleep(0.01)")
    return ts_of_ms(int(row[0]))


def test_a_feed_is_complete_up_to_what_the_ends_of_transactions_prove(
    sources: Sources, captured: str, feeds: Feeds, postgres_schema: tuple[Session, str], sink: Session
) -> None:
    source, schema = postgres_schema
    with source.transaction():
        source.execute("INSERT INTO orders SELECT n, 'a' FROM generate_series(1, 50) n")
        source.execute("UPDATE goods SET id = 7")  # another key: a delete and an insert
        source.execute("DELETE FROM orders WHERE id = 50")
    first = now_ts(source)
    source.execute("UPDATE orders SET what = 'b' WHERE id < 10")
    sources.changes(f"{captured}.{schema}.orders", 61)  # so that the topic of transactions is there
    feeds.run()
    feeds.complete_up_to(first)
    assert rows(sink)["goods"] == [(7, "before")]

    # A table that nobody writes is complete as well; and so it is for whoever begins where the sink is.
    feeds.close()
    source.execute("DELETE FROM orders WHERE id = 49")
    second = now_ts(source)
    wanted = rows(source)
    source.execute("UPDATE orders SET what = 'after the target' WHERE id < 20")
    feeds.run(target_ts=second)
    statuses = feeds.complete_up_to(second)
    assert {one.resolved_ts for one in statuses.values()} == {second}
    assert rows(sink) == wanted

    # What is after the target waits in the log: with a later one the feed goes on, and nothing is lost.
    feeds.close()
    with source.transaction():
        source.execute("INSERT INTO goods VALUES (8, 'c'), (9, 'd')")
        source.execute("UPDATE orders SET what = 'e' WHERE id = 1")
    third = now_ts(source)
    wanted = rows(source)
    source.execute("DELETE FROM orders")
    feeds.run(target_ts=third)
    feeds.complete_up_to(third)
    assert rows(sink) == wanted
