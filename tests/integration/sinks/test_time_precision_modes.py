"""Dates and times in each of Debezium's ``time.precision.mode``, captured by the real connector, in both sinks.

With a schema every mode arrives as it was. Without one the texts of ``isostring`` do; numbers whose unit nobody tells
are refused where they can be told apart from likely times (docs/types.md).
"""

from contextlib import closing

import psycopg
import pytest

from fixtures.capture import Sources
from fixtures.services import mariadb_execute
from headgate.formats.change import Change
from headgate.provisioning.time_scale import scaled_seconds
from headgate.sinks.contract import ChangeBatch, FeedIdentity, OffsetRange, Sink, ValueRefusedError
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from support import build

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(scaled_seconds(900))]

WITH_SCHEMAS = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
}
MODES = [("isostring", True), ("isostring", False), ("microseconds", True), ("nanoseconds", True), ("connect", True)]
ROW = ("2026-02-28", "10:11:12.345", "2026-02-28 10:11:12.345")


def applied(sink: Sink, table: str, change: Change) -> None:
    claim = build.claim(identity=FeedIdentity("c", "0-1", "f"), table=table)
    sink.claim(claim)
    with closing(sink.writer()) as writer:
        writer.apply(ChangeBatch(claim, {0: OffsetRange(change.offset, change.offset + 1)}, [change]))


def test_every_mode_arrives_as_it_was(
    sources: Sources,
    postgres_schema: "tuple[psycopg.Connection[tuple], str]",
    postgres_database: str,
    mariadb_database: str,
) -> None:
    source, schema = postgres_schema
    source.execute("CREATE TABLE t (id int PRIMARY KEY, d date, t time(3), ts timestamp(3))")
    source.execute("INSERT INTO t VALUES (1, %s, %s, %s)", ROW)
    database = mariadb_database.rsplit("/", 1)[1]
    found = {}
    for number, (mode, has_schema) in enumerate([*MODES, ("nanoseconds", False), ("microseconds", False)]):
        sources.capture_postgres(
            f"tp{number}", schema, **{"time.precision.mode": mode}, **(WITH_SCHEMAS if has_schema else {})
        )
        (change,) = sources.changes(f"tp{number}.{schema}.t", 1)
        change = Change(0, 0, change.operation, {"id": 1}, change.row, 0, 0, change.semantics)
        relation = f"m{number}"
        with psycopg.connect(postgres_database, autocommit=True) as target:
            target.execute(f"CREATE TABLE {relation} (id int PRIMARY KEY, d date, t time(3), ts timestamp(3))")
            mariadb_execute(
                mariadb_database, f"CREATE TABLE {relation} (id int PRIMARY KEY, d date, t time(3), ts datetime(3))"
            )
            sinks: list[tuple[Sink, str]] = [
                (PostgresSink(RelationalSettings(postgres_database)), f"public.{relation}"),
                (MysqlSink(RelationalSettings(mariadb_database)), f"{database}.{relation}"),
            ]
            if (mode, has_schema) not in MODES:
                for sink, table in sinks:
                    with pytest.raises(ValueRefusedError, match=r"seems to count|milliseconds or microseconds|range"):
                        applied(sink, table, change)
                continue
            for sink, table in sinks:
                applied(sink, table, change)
            here = target.execute(f"SELECT d::text, t::text, ts::text FROM {relation}").fetchall()
            query = f"SELECT CAST(d AS CHAR), CAST(t AS CHAR), CAST(ts AS CHAR) FROM {relation}"
            found[mode, has_schema] = (here, [tuple(row) for row in mariadb_execute(mariadb_database, query)])
    assert found == {mode: ([ROW], [ROW]) for mode in MODES}
