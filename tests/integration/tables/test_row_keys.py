"""Rows under another key than the source's: what a real connector writes with message.key.columns arrives under it."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import psycopg
import pytest

from fixtures.capture import Sources
from fixtures.services import mariadb_execute
from headgate.config.feed import FeedSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.formats.change import Change
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import SpanPlan
from headgate.sinks.contract import ChangeBatch, FeedIdentity, OffsetRange, SinkRefusedError
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate.sources.preview import preview
from headgate.tables.creation import create_missing
from headgate.tables.source_checks import check_source_tables
from support import build

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled_seconds(600))]

CHANGES: Final = (
    "INSERT INTO {} VALUES (1, 'a', 'one'), (2, 'b', 'two'), (3, 'c', 'three')",
    "UPDATE {} SET note = 'ONE' WHERE id = 1",
    "UPDATE {} SET mail = 'z' WHERE id = 2",
    "DELETE FROM {} WHERE id = 3",
    "UPDATE {} SET mail = 'c' WHERE id = 1",
)
COUNT: Final = 9
"""Three inserts, an update, two changes of the key (a delete and a row), a delete."""
LEFT: Final = [("c", "ONE"), ("z", "two")]


class End:
    """The sink, and what a feed into it is."""

    def __init__(self, sources: Sources, dsn: str, source: str, topic: str) -> None:
        self.sources, self.dsn, self.topic = sources, dsn, topic
        self.plan = SpanPlan(span="public.t", topic=topic, table="public.t", start={0: 0})
        self.source = source

    def feed(self, *, is_keyed: bool = True) -> FeedSpec:
        name = ".".join(self.topic.split(".")[-2:])
        options: dict[str, Any] = {"columns": {"exclude": ["id"]}} | ({"key": ["mail"]} if is_keyed else {})
        return FeedSpec.model_validate(
            {"feed": "f", "source": {"topics": [self.topic], "database": {"dsn": self.source}},
             "sink": {"type": "postgresql", "dsn": self.dsn}, "tables": {name: options}}
        )  # fmt: skip

    def check(self, *, is_keyed: bool = True) -> None:
        spec = self.feed(is_keyed=is_keyed)
        seen = preview(KafkaConnection(self.sources.bootstrap), spec, {self.topic: 1})
        assert seen[self.topic].key == ("mail",)
        check_source_tables(spec, [self.plan], lambda _: None, seen, {})

    def applied(self, changes: list[Change]) -> list[tuple[object, ...]]:
        spec = self.feed()
        create_missing(spec, self.plan, lambda _: None)
        sink = PostgresSink(RelationalSettings(self.dsn))
        claim = build.claim(identity=FeedIdentity("c", "0-1", "f"), table="public.t", topic=self.topic)
        sink.claim(claim)
        shaped = [
            Change(0, change.offset, change.operation, change.key,
                   None if change.row is None else {name: change.row[name] for name in ("mail", "note")},
                   0, 0, change.semantics)
            for change in changes
        ]  # fmt: skip
        expected = 0
        with closing(sink.writer()) as writer:
            for change in shaped:  # tombstones are passed over
                writer.apply(ChangeBatch(claim, {0: OffsetRange(expected, change.offset + 1)}, [change]))
                expected = change.offset + 1
        with psycopg.connect(self.dsn) as session:
            return session.execute("SELECT mail, note FROM public.t ORDER BY mail").fetchall()


@pytest.fixture
def sink(postgres_database: str) -> Iterator[str]:
    yield postgres_database
    with psycopg.connect(postgres_database, autocommit=True) as session:
        session.execute("DROP TABLE IF EXISTS public.t")


def test_postgresql(sources: Sources, postgres_schema: "tuple[psycopg.Connection[Any], str]", sink: str) -> None:
    source, schema = postgres_schema
    source.execute("CREATE TABLE t (id int PRIMARY KEY, mail text NOT NULL UNIQUE, note text)")
    sources.capture_postgres(f"k{schema}", schema, **{"message.key.columns": f"{schema}.t:mail"})
    end = End(sources, sink, sources.postgres.dsn(), f"k{schema}.{schema}.t")
    source.execute("INSERT INTO t VALUES (0, 'zero', '')")
    sources.changes(end.topic, 1)
    with pytest.raises(SinkRefusedError, match=r"does not have the former mail of a row.*REPLICA IDENTITY FULL"):
        end.check()
    source.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX t_mail_key")
    end.check()
    with pytest.raises(SinkRefusedError, match=r"have the key \(mail\).* key: \[mail\]"):
        end.check(is_keyed=False)
    for statement in CHANGES:
        source.execute(statement.format("t").encode())
    source.execute("DELETE FROM t WHERE id = 0")
    assert end.applied(sources.changes(end.topic, COUNT + 2)) == LEFT


def test_mariadb(sources: Sources, mariadb_source: str, sink: str) -> None:
    database = mariadb_source.rsplit("/", 1)[1]
    mariadb_execute(mariadb_source, "CREATE TABLE t (id int PRIMARY KEY, mail varchar(9) NOT NULL UNIQUE, note text)")
    sources.capture_mariadb(f"k{database}", database, **{"message.key.columns": f"{database}.t:mail"})
    end = End(sources, sink, mariadb_source, f"k{database}.{database}.t")
    # Behind this row the connector reads the log: changes before that would be one row of its snapshot.
    mariadb_execute(mariadb_source, "INSERT INTO t VALUES (0, 'zero', '')")
    sources.changes(end.topic, 1)
    for statement in CHANGES:
        mariadb_execute(mariadb_source, statement.format("t"))
    mariadb_execute(mariadb_source, "DELETE FROM t WHERE id = 0")
    changes = sources.changes(end.topic, COUNT + 2)
    end.check()
    assert end.applied(changes) == LEFT
