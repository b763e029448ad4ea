"""From a captured database through Kafka and a lane into another: MariaDB to both, and PostgreSQL to MariaDB."""

import uuid
from collections.abc import Callable, Iterator

import msgspec
import psycopg
import pytest

from fixtures.capture import Sources
from fixtures.services import mariadb_execute
from headgate.agent.core.executor import SpanId, SpanTask
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import Epoch, SpanPlan, TaskState
from headgate.replication.executor import SparkExecutor
from headgate.replication.queries import ExecutorSettings
from headgate.replication.spark import SparkRuntime
from support.waiting import eventually

pytestmark = [
    # Two connectors, a Spark and four databases start here, on a machine that may be busy.
    pytest.mark.timeout(scaled_seconds(900)),
    pytest.mark.spark,
    pytest.mark.integration,
]

Run = Callable[[str], object]

MYSQL_TABLE = """CREATE TABLE goods (
    id int PRIMARY KEY, code varchar(20) NOT NULL UNIQUE, price decimal(10,2), sold boolean, at datetime(6),
    big longtext
)"""
POSTGRES_TABLE = """CREATE TABLE goods (
    id int PRIMARY KEY, code varchar(20) NOT NULL UNIQUE, price numeric(10,2), sold boolean, at timestamp(6),
    big text
)"""
ROWS = "SELECT id, code, price, sold, at, CHAR_LENGTH(big) FROM goods ORDER BY id"
LARGE = "repeat('0123456789abcdef', 8000)"

BEFORE = (
    f"INSERT INTO goods VALUES (1, 'a', 1.50, true, '2026-01-02 03:04:05.678901', {LARGE})",
    "INSERT INTO goods VALUES (2, 'b', -2.25, false, '1969-12-31 23:59:59', 'small')",
    "INSERT INTO goods VALUES (3, 'ü 🚪', NULL, NULL, NULL, NULL)",
)
WHILE = (
    "UPDATE goods SET price = 3.75, sold = false WHERE id = 1",  # the large column is left alone
    "INSERT INTO goods VALUES (4, 'd', 0.01, true, '9999-12-31 23:59:59.999999', '')",
    "UPDATE goods SET id = 30 WHERE id = 3",  # another key
    "DELETE FROM goods WHERE id = 2",
    "INSERT INTO goods VALUES (2, 'b', 9.99, NULL, NULL, NULL)",
    # Two unique values change hands.
    "UPDATE goods SET code = 'x' WHERE id = 1",
    "UPDATE goods SET code = 'a' WHERE id = 4",
    "UPDATE goods SET code = 'd' WHERE id = 1",
)


class Lanes:
    """Feeds of one table each, in one Spark."""

    def __init__(self, bootstrap: str, runtime: SparkRuntime) -> None:
        self._executor = SparkExecutor(runtime, ExecutorSettings(bootstrap=bootstrap, cluster_id="test/headgate."))
        self.ids: list[SpanId] = []

    def start(self, topic: str, table: str, sink: dict[str, object]) -> None:
        feed = "f" + uuid.uuid4().hex[:6]
        spec = {"feed": feed, "source": {"topic_pattern": ".*"}, "sink": sink}
        task = SpanTask(
            id=SpanId(feed, table),
            feed_id=f"0-{len(self.ids)}",
            incarnation=1,
            epoch=Epoch(3, 1),
            plan=SpanPlan(span=table, topic=topic, table=table, start={0: 0}),
            spec=msgspec.json.encode(spec).decode(),
        )
        self.ids.append(task.id)
        self._executor.add_table(task, prepare=False)

    def failures(self) -> list[str]:
        """Of tables that have been given up. An error may pass: a sink that takes its time to answer has one."""
        found = [self._executor.status(span) for span in self.ids]
        failed = [status for status in found if status is not None and status.state is TaskState.FAILED]
        return [f"{status.error_code}: {status.error}" for status in failed]

    def close(self) -> None:
        self._executor.close()


@pytest.fixture
def databases(
    postgres_schema: tuple["psycopg.Connection[tuple]", str],
    mariadb_source: str,
    postgres_database: str,
    mariadb_database: str,
) -> tuple[tuple["psycopg.Connection[tuple]", str], str, str, str]:
    """Sources and sinks: a session and its schema, and addresses."""
    return postgres_schema, mariadb_source, postgres_database, mariadb_database


@pytest.fixture
def lanes(sources: Sources, spark_runtime: SparkRuntime) -> Iterator[Lanes]:
    made = Lanes(sources.bootstrap, spark_runtime)
    yield made
    made.close()


def test_databases_are_kept_in_step_whatever_they_are(
    sources: Sources,
    lanes: Lanes,
    databases: tuple[tuple["psycopg.Connection[tuple]", str], str, str, str],
) -> None:
    (postgres, schema), mariadb_source, postgres_database, mariadb_database = databases
    source, target = mariadb_source.rsplit("/", 1)[1], mariadb_database.rsplit("/", 1)[1]

    def on_mariadb(statement: str) -> object:
        return mariadb_execute(mariadb_source, statement)

    for run, table in ((postgres.execute, POSTGRES_TABLE), (on_mariadb, MYSQL_TABLE)):
        for statement in (table, *BEFORE):
            run(statement)
    sources.capture_postgres("rp", schema, **{"decimal.handling.mode": "string"})
    sources.capture_mariadb("rm", source, **{"decimal.handling.mode": "string"})
    second = f"{target}_2"
    mariadb_execute(mariadb_database, f"CREATE DATABASE {second} CHARACTER SET utf8mb4")
    try:
        mariadb_execute(mariadb_database, MYSQL_TABLE)
        mariadb_execute(mariadb_database, MYSQL_TABLE.replace("goods", f"{second}.goods"))
        with psycopg.connect(postgres_database, autocommit=True) as sink:
            sink.execute(POSTGRES_TABLE)
            for topic, table, spec in (
                (f"rm.{source}.goods", "public.goods", {"type": "postgresql", "dsn": postgres_database}),
                (f"rm.{source}.goods", f"{target}.goods", {"type": "mysql", "dsn": mariadb_database}),
                (f"rp.{schema}.goods", f"{second}.goods", {"type": "mysql", "dsn": mariadb_database}),
            ):
                sources.changes(topic, 3)
                lanes.start(topic, table, spec)

            def all_equal() -> bool:
                assert not lanes.failures()
                ours = [tuple(row) for row in mariadb_execute(mariadb_source, ROWS)]
                return [tuple(row) for row in postgres.execute(ROWS).fetchall()] == [_bools(row) for row in ours] == [
                    tuple(row) for row in sink.execute(ROWS).fetchall()
                ] and ours == [tuple(row) for row in mariadb_execute(mariadb_database, ROWS)] == [
                    tuple(row) for row in mariadb_execute(mariadb_database, ROWS.replace("goods", f"{second}.goods"))
                ]

            eventually(all_equal, "the snapshots are in all three sinks")
            for statement in WHILE:
                postgres.execute(statement)
                on_mariadb(statement)
            eventually(
                lambda: all_equal() and len(mariadb_execute(mariadb_source, ROWS)) == 4, "and so are the changes"
            )
            assert mariadb_execute(mariadb_database, "SELECT id, code FROM goods ORDER BY id") == [
                (1, "d"), (2, "b"), (4, "a"), (30, "ü 🚪"),
            ]  # fmt: skip
            bigs = {mariadb_execute(mariadb_database, f"SELECT MD5(big) FROM {db}.goods WHERE id = 1")[0]
                    for db in (target, second)}  # fmt: skip
            assert bigs == {mariadb_execute(mariadb_source, "SELECT MD5(big) FROM goods WHERE id = 1")[0]}
    finally:
        lanes.close()
        mariadb_execute(mariadb_database, f"DROP DATABASE {second}")


def _bools(row: tuple) -> tuple:
    """MariaDB's booleans are numbers."""
    return (*row[:3], None if row[3] is None else bool(row[3]), *row[4:])
