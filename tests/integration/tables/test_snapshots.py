"""Which tables can be copied between real databases is known before a feed is created, and every reason is named."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import pytest

from fixtures.servers import UNLOGGED
from fixtures.services import mariadb_execute
from headgate.config.feed import FeedSpec
from headgate.records.control import SpanPlan
from headgate.records.row_copies import RowCopy, read_row_copy
from headgate.sinks.contract import FeedIdentity
from headgate.sinks.registry import open_sink
from headgate.sources.database import SnapshotRefusedError
from headgate.tables.missing import plan_missing
from headgate.tables.snapshots import check_snapshots, snapshot_copies
from support.connector_types import MARIADB, NOT_COPIED, POSTGRESQL, columns

pytestmark = pytest.mark.integration

Run = Callable[[str], Any]


def said(_topic: str) -> str | None:
    return None


class Ends:
    """Two databases, and a feed from one to the other."""

    def __init__(self, source: str, sink: str) -> None:
        self.source, self.sink = source, sink
        self.spaces = [_space(source), _space(sink)]

    def feed(self, snapshot: object = "initial", **options: Any) -> FeedSpec:
        source = {"topic_pattern": ".*", "database": {"dsn": self.source}}
        kind = "postgresql" if self.sink.startswith("postgresql") else "mysql"
        sink = {"type": kind, "dsn": self.sink, "table": f"{self.spaces[1]}.{{table}}"}
        return FeedSpec.model_validate({"feed": "f", "source": source, "sink": sink, "snapshot": snapshot, **options})

    def check(self, spec: FeedSpec, *tables: str) -> tuple[str, ...]:
        """Of tables of these names."""
        plans = [
            SpanPlan(f"{self.spaces[1]}.{name}", f"t.{self.spaces[0]}.{name}", f"{self.spaces[1]}.{name}", {0: 0})
            for name in tables
        ]
        missing = plan_missing(spec, plans, said)
        there = [plan.table for plan in plans if plan.table not in missing.lacking]
        sink = open_sink(spec.sink)
        try:
            shapes = sink.check(there, FeedIdentity("c", "", "f")) if there else {}
        finally:
            sink.close()
        return check_snapshots(spec, plans, shapes, missing, said)

    def refused(self, spec: FeedSpec, *tables: str) -> str:
        with pytest.raises(SnapshotRefusedError) as error:
            self.check(spec, *tables)
        return str(error.value)


def _space(dsn: str) -> str:
    return "public" if dsn.startswith("postgresql") else dsn.rsplit("/", 1)[1]


def run(dsn: str, *statements: str) -> None:
    for statement in statements:
        if dsn.startswith("postgresql"):
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(statement.encode())
        else:
            mariadb_execute(dsn, statement)


@pytest.fixture
def dsns(postgres_database: str, spare_databases: Any, mariadb_database: str) -> Mapping[str, str]:
    return {"postgresql": postgres_database, "mariadb": mariadb_database}


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_every_type_of_one_kind_of_database_can_be_copied_into_a_table_that_is_created(
    dsns: Mapping[str, str], kind: str, spare_databases: Any
) -> None:
    source = dsns[kind]
    own = "timestamptz, d bytea, e numeric(12,2), f text[]" if kind == "postgresql" else "datetime(6), d blob, e json"
    run(source, f"CREATE TABLE items (id bigint PRIMARY KEY, a varchar(20), b date, c {own})")
    run(source, "INSERT INTO items (id, a) VALUES (1, 'x')", "CREATE TABLE bare (id int PRIMARY KEY)")
    if kind == "mariadb":
        sink = f"{source}_sink"
        mariadb_execute(source, f"CREATE DATABASE {_space(sink)}")
        try:
            ends = Ends(source, sink)
            assert ends.check(ends.feed(), "items", "bare") == ()
        finally:
            mariadb_execute(source, f"DROP DATABASE {_space(sink)}")
        return
    with spare_databases.database() as parameters:
        ends = Ends(source, "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters))
        (warning,) = ends.check(ends.feed(), "items", "bare")
        assert "no logical replication slot" in warning


OF_EACH_KIND: Final = {
    "postgresql": [type_ for type_ in POSTGRESQL if type_.declared not in NOT_COPIED],
    "mariadb": MARIADB,
}


@pytest.mark.parametrize("pair", [("postgresql", "mariadb"), ("mariadb", "postgresql")])
def test_types_of_one_kind_of_database_can_be_copied_into_the_other(
    dsns: Mapping[str, str], pair: tuple[str, str]
) -> None:
    ends = Ends(dsns[pair[0]], dsns[pair[1]])
    run(ends.source, f"CREATE TABLE every (id bigint PRIMARY KEY, {columns(OF_EACH_KIND[pair[0]])})")
    ends.check(ends.feed(), "every")


def test_types_without_a_pair_are_refused(dsns: Mapping[str, str]) -> None:
    ends = Ends(dsns["postgresql"], dsns["mariadb"])
    run(ends.source, "CREATE TABLE alike (id bigint PRIMARY KEY, a varchar(20), b int)")
    run(ends.source, "INSERT INTO alike VALUES (1, 'x', 2)")
    run(ends.source, "CREATE TABLE other (id bigint PRIMARY KEY, a interval)")
    words = ends.refused(ends.feed(), "alike", "other")
    assert "rows cannot be copied of 1 of 2 tables" in words
    assert "other: column a of" in words
    ends.check(ends.feed(tables={f"{ends.spaces[0]}.other": {"snapshot": "never"}}), "alike", "other")


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_rows_of_the_target_are_refused_unless_the_feed_says_what_becomes_of_them(
    dsns: Mapping[str, str], kind: str
) -> None:
    ends = Ends(dsns[kind], dsns[kind])
    run(ends.source, "CREATE TABLE full_table (id bigint PRIMARY KEY)", "INSERT INTO full_table VALUES (1)")
    assert "the target table has rows. Empty it" in ends.refused(ends.feed(), "full_table")
    for chosen, deletes in (("keep", False), ("delete", True)):
        spec = ends.feed({"mode": "initial", "existing_rows": chosen, "max_rows_per_second": 5})
        ends.check(spec, "full_table")
        (text,) = snapshot_copies(spec, [SpanPlan("s", "t.p.full_table", "p.full_table", {0: 0})]).values()
        assert read_row_copy(text) == RowCopy(keys=None, delete=deletes, rows_per_second=5)


def test_a_table_whose_changes_no_connector_gets_is_named(postgres_database: str, spare_databases: Any) -> None:
    run(postgres_database, "CREATE TABLE items (id int PRIMARY KEY)", "CREATE UNLOGGED TABLE fast (id int PRIMARY KEY)")
    run(postgres_database, "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    run(postgres_database, "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (9)")
    run(postgres_database, "CREATE PUBLICATION inserts FOR TABLE items WITH (publish = 'insert')")
    with spare_databases.database() as parameters, _slot(postgres_database):
        ends = Ends(postgres_database, "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters))
        unlogged, unpublished = ends.check(ends.feed(), "items", "fast", "parts")
        assert "warning: changes of public.fast are not logged" in unlogged
        assert "publishes inserts, updates and deletes of public.items, public.parts, so" in unpublished
        run(postgres_database, "CREATE PUBLICATION whole FOR TABLE items, parts")
        assert ends.check(ends.feed(), "items", "parts") == ()
        run(postgres_database, "ALTER PUBLICATION whole SET (publish_via_partition_root = true)")
        assert ends.check(ends.feed(), "items", "parts", "parts_1") == ()


@contextmanager
def _slot(dsn: str) -> Iterator[None]:
    """As a connector's."""
    name = f"s{dsn.rsplit('/', 1)[1]}"[:60]
    run(dsn, f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    try:
        yield
    finally:
        run(dsn, f"SELECT pg_drop_replication_slot('{name}')")


def test_a_database_that_the_binary_log_leaves_out_is_named(mariadb_database: str) -> None:
    source = f"{mariadb_database.rpartition('/')[0]}/{UNLOGGED}"
    mariadb_execute(mariadb_database, f"CREATE DATABASE {UNLOGGED}")
    try:
        run(source, "CREATE TABLE items (id int PRIMARY KEY)")
        run(mariadb_database, "CREATE TABLE items (id int PRIMARY KEY)")
        ends = Ends(source, mariadb_database)
        (warning,) = ends.check(ends.feed(), "items")
        assert f"leaves out the database of {UNLOGGED}.items" in warning
        back = Ends(mariadb_database, source)
        assert back.check(back.feed(), "items") == ()
    finally:
        mariadb_execute(mariadb_database, f"DROP DATABASE {UNLOGGED}")


def test_a_table_that_the_user_may_not_read_is_refused(dsns: Mapping[str, str], spare_databases: Any) -> None:
    source = dsns["postgresql"]
    run(source, "CREATE TABLE hidden (id bigint PRIMARY KEY)", "INSERT INTO hidden VALUES (1)")
    run(source, "CREATE ROLE snapshot_reader LOGIN PASSWORD 'x'")
    try:
        reader = source.replace(source.split("//")[1].split("@")[0], "snapshot_reader:x")
        with spare_databases.database() as parameters:
            ends = Ends(reader, "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters))
            assert "permission denied" in ends.refused(ends.feed(), "hidden")
    finally:
        run(source, "DROP ROLE snapshot_reader")
