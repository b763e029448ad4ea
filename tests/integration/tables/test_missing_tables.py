"""Tables that a sink lacks are created from the source's catalogue, whoever else creates and whoever is killed."""

import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fixtures.services import mariadb_execute
from fixtures.spare_databases import SpareDatabases
from headgate.config.feed import FeedSpec
from headgate.config.table_options import TableOptions
from headgate.formats.column_schema import ColumnSchema, EventSchema
from headgate.records.control import Epoch, SpanPlan
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity, OffsetRange, SinkError, SinkRefusedError
from headgate.sinks.registry import open_sink
from headgate.sinks.relational.sink import RelationalSink
from headgate.sources.database import SourceDatabaseError
from headgate.tables.creation import create_missing
from headgate.tables.missing import check_created, plan_missing
from support.waiting import eventually

pytestmark = pytest.mark.integration

SOURCE: Final = """
CREATE SCHEMA shop;
CREATE TYPE public.mood AS ENUM ('glad', 'so, so');
CREATE TABLE shop.orders (id bigint PRIMARY KEY, feels mood, total numeric(12,2) NOT NULL DEFAULT 0);
CREATE TABLE shop.items (id bigint PRIMARY KEY, feels mood);
CREATE TABLE shop.audit (at timestamptz);
CREATE TABLE shop.pairs (id bigint PRIMARY KEY, pair shop.items);
COMMENT ON TABLE shop.orders IS 'all of them';
"""

COLUMNS: Final = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 ORDER BY attnum
"""

WAITING: Final = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'headgate tables' AND wait_event_type = 'Lock'
"""

Session = psycopg.Connection[tuple[Any, ...]]


def plan(table: str) -> SpanPlan:
    return SpanPlan(span=table, topic=f"t.{table}", table=table, start={0: 0})


def said(_topic: str) -> str | None:
    return None


def feed(source: str, sink: str, **options: Any) -> FeedSpec:
    kind = "mysql" if sink.startswith("mysql://") else "postgresql"
    return FeedSpec.model_validate(
        {
            "feed": "f",
            "source": {"topic_pattern": r"t\..*", "database": {"dsn": source}},
            "sink": {"type": kind, "dsn": sink} | options,
        }
    )


class Databases:
    def __init__(self, source: str, sink: str) -> None:
        self.source, self.sink = source, sink

    def feed(self, **options: Any) -> FeedSpec:
        return feed(self.source, self.sink, **options)

    def columns(self, table: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.sink, autocommit=True) as sink:
            return sink.execute(COLUMNS.encode(), (table,)).fetchall()


@pytest.fixture
def databases(postgres_database: str, spare_databases: SpareDatabases) -> Iterator[Databases]:
    with psycopg.connect(postgres_database, autocommit=True) as source:
        source.execute(SOURCE)
    with spare_databases.database() as parameters:
        yield Databases(postgres_database, "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters))


ORDERS: Final = [("id", "bigint"), ("feels", "mood"), ("total", "numeric(12,2)")]


def test_a_missing_table_is_created_once_and_the_sink_takes_it(databases: Databases) -> None:
    spec = databases.feed()
    assert create_missing(spec, plan("shop.orders"), said)
    assert databases.columns("shop.orders") == ORDERS
    assert not create_missing(spec, plan("shop.orders"), said)
    with closing(open_sink(spec.sink)) as sink:
        assert sink.check(["shop.orders"])["shop.orders"].key == ("id",)


def test_a_table_that_differs_is_left_as_it_is(databases: Databases) -> None:
    with psycopg.connect(databases.sink, autocommit=True) as sink:
        sink.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders (other text)")
    assert not create_missing(databases.feed(), plan("shop.orders"), said)
    assert databases.columns("shop.orders") == [("other", "text")]


def test_the_name_is_the_feeds_and_the_type_the_users(databases: Databases) -> None:
    spec = databases.feed(table="copy.{table}", types={"copy.orders.total": "text"})
    assert create_missing(spec, _of("copy.orders", "shop.orders"), said)
    assert databases.columns("copy.orders")[2] == ("total", "text")


def test_without_a_source_database_events_define_the_table(databases: Databases) -> None:
    spec = FeedSpec.model_validate(
        {
            "feed": "f",
            "source": {"topic_pattern": r"t\..*"},
            "sink": {"type": "postgresql", "dsn": databases.sink, "tables": "create"},
        }
    )
    columns = (
        ColumnSchema(name="id", meaning="int64", is_optional=False, declared="INT8"),
        ColumnSchema(name="total", meaning="string", is_optional=True, declared="NUMERIC", length=12, scale=2),
    )
    schema = EventSchema(connector="postgresql", columns=columns, key=("id",))
    assert create_missing(spec, plan("shop.orders"), said, lambda _topic: schema)
    assert databases.columns("shop.orders") == [("id", "bigint"), ("total", "numeric(12,2)")]
    assert not create_missing(spec, plan("shop.orders"), said, lambda _topic: schema)

    keyless = EventSchema(connector="postgresql", columns=columns)
    other = EventSchema(connector="sqlserver", columns=columns, key=("id",))
    for told, why in (
        (None, "no newest event of topic t.shop.items has a schema. Name the source database in source.database"),
        (keyless, "events of topic t.shop.items have no key"),
        (other, "types of the connector 'sqlserver' are not known"),
    ):
        with pytest.raises(SinkRefusedError, match=why):
            create_missing(spec, plan("shop.items"), said, lambda _topic, told=told: told)


def _of(table: str, source: str) -> SpanPlan:
    return SpanPlan(span=table, topic=f"t.{source}", table=table, start={0: 0})


def test_what_cannot_be_created_is_named_with_the_option(databases: Databases) -> None:
    missing = plan_missing(databases.feed(), [plan("shop.pairs"), plan("shop.audit"), plan("shop.none")], said)
    with pytest.raises(SinkRefusedError) as refused:
        check_created(missing)
    text = str(refused.value)
    assert "no statement for shop.none: the source database has no table shop.none" in text
    assert "shop.audit: the source's table shop.audit has no primary key" in text
    assert "no statement for shop.pairs, column pair: shop.items is not a type" in text
    kept = plan_missing(databases.feed(keyless="append"), [plan("shop.audit")], said)
    assert [table.name for table in kept.tables.created] == ["shop.audit"]


def test_a_source_that_cannot_be_read_is_an_error_of_the_source(databases: Databases) -> None:
    spec = feed("postgresql://nobody@127.0.0.1:1/none", databases.sink)
    with pytest.raises(SourceDatabaseError, match="cannot open a session at the source database"):
        create_missing(spec, plan("shop.orders"), said)


@contextmanager
def in_the_way(databases: Databases, statement: str) -> Iterator[Session]:
    """A transaction at the sink that has run a statement, and is rolled back unless it was committed."""
    with psycopg.connect(databases.sink) as session:
        session.execute(statement.encode())
        yield session
        session.rollback()


def waiting(databases: Databases) -> int:
    """The process at the server that waits for a lock to create a table."""
    with psycopg.connect(databases.sink, autocommit=True) as sink:
        ((pid,),) = eventually(lambda: sink.execute(WAITING.encode()).fetchall(), "a creator waits for another")
    return int(pid)


def test_of_two_creators_one_waits_and_finds_the_table(databases: Databases) -> None:
    spec, pool = databases.feed(), ThreadPoolExecutor(1)
    with pool, in_the_way(databases, "CREATE SCHEMA shop; CREATE TABLE shop.orders (mine int)") as other:
        found = pool.submit(create_missing, spec, plan("shop.orders"), said)
        waiting(databases)
        other.commit()
        assert found.result()
    assert databases.columns("shop.orders") == [("mine", "integer")]


def test_of_two_tables_that_need_one_enum_both_are_created(databases: Databases) -> None:
    spec, pool = databases.feed(), ThreadPoolExecutor(1)
    create = "CREATE SCHEMA shop; CREATE TYPE public.mood AS ENUM ('glad', 'so, so')"
    with pool, in_the_way(databases, create) as other:
        found = pool.submit(create_missing, spec, plan("shop.orders"), said)
        waiting(databases)
        other.commit()
        assert found.result()
    assert databases.columns("shop.orders") == ORDERS


def test_many_creators_at_once_create_each_table_once(databases: Databases) -> None:
    spec, names = databases.feed(), ["shop.orders", "shop.items"]
    with ThreadPoolExecutor(6) as pool:
        done: list[Future[bool]] = [pool.submit(create_missing, spec, plan(name), said) for name in names * 3]
    assert {type(each.result()) for each in done} == {bool}
    assert (databases.columns("shop.orders"), len(databases.columns("shop.items"))) == (ORDERS, 2)


def test_whoever_is_killed_between_two_steps_leaves_nothing(databases: Databases) -> None:
    spec, pool = databases.feed(), ThreadPoolExecutor(1)
    with pool, in_the_way(databases, "CREATE TYPE public.mood AS ENUM ('other')"):
        found = pool.submit(create_missing, spec, plan("shop.orders"), said)
        pid = waiting(databases)  # it has created the schema
        with psycopg.connect(databases.sink, autocommit=True) as killer:
            killer.execute("SELECT pg_terminate_backend(%s)", (pid,))
        with pytest.raises(SinkError):
            found.result()
    with psycopg.connect(databases.sink, autocommit=True) as sink:
        assert sink.execute("SELECT to_regnamespace('shop')").fetchall() == [(None,)]
    assert create_missing(spec, plan("shop.orders"), said)
    assert databases.columns("shop.orders") == ORDERS


def test_missing_rights_at_postgresql_are_named_as_statements_that_can_be_run(databases: Databases) -> None:
    role = f"clerk_{uuid.uuid4().hex[:8]}"
    spec = feed(databases.source, make_conninfo(databases.sink, user=role, password="pen"))
    with psycopg.connect(databases.sink, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'pen'".encode())
        try:
            with pytest.raises(SinkRefusedError, match=r"no right to create shop\.orders") as refused:
                create_missing(spec, plan("shop.orders"), said)
            grants = str(refused.value).partition("Run as an administrator: ")[2].split("; ")
            assert len(grants) == 2, grants
            for grant in grants:
                owner.execute(grant.encode())
            assert create_missing(spec, plan("shop.orders"), said)
        finally:
            owner.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())


def at(url: str, user: str) -> str:
    parts = urlsplit(url)
    return f"mysql://{user}@{parts.hostname}:{parts.port}{parts.path}"


@pytest.fixture
def mariadb(mariadb_database: str) -> str:
    mariadb_execute(mariadb_database, "CREATE TABLE orders (id bigint PRIMARY KEY, note varchar(9) COMMENT 'it''s')")
    return mariadb_database


@pytest.fixture
def copy(mariadb_url: str) -> Iterator[str]:
    """The name of a database that does not exist, with characters that GRANT takes for a pattern."""
    name = f"copy_{uuid.uuid4().hex[:8]}_x"
    yield name
    mariadb_execute(mariadb_url, f"DROP DATABASE IF EXISTS {name}")


def test_a_mariadb_gets_database_and_table_from_any_number_of_creators(mariadb: str, copy: str) -> None:
    spec = feed(mariadb, mariadb, table=f"{copy}.{{table}}")
    mine = _of(f"{copy}.orders", f"{mariadb.rpartition('/')[2]}.orders")
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(create_missing, spec, mine, said) for _ in range(4)]
    assert {type(each.result()) for each in done} == {bool}
    assert not create_missing(spec, mine, said)
    with closing(open_sink(spec.sink)) as sink:
        assert sink.check([mine.table])[mine.table].columns == {"id": "bigint(20)", "note": "varchar(9)"}


def test_a_mariadb_that_has_only_the_database_gets_the_table(mariadb: str, copy: str) -> None:
    mariadb_execute(mariadb, f"CREATE DATABASE {copy}")  # by a creator that was killed
    mine = _of(f"{copy}.orders", f"{mariadb.rpartition('/')[2]}.orders")
    assert create_missing(feed(mariadb, mariadb, table=f"{copy}.{{table}}"), mine, said)


@pytest.mark.parametrize(
    ("has", "lacks"),
    [
        ("USAGE", "CREATE, SELECT, INSERT, UPDATE, DELETE"),
        # The name is a pattern, for its underscores: a grant on the exact name would hide these rights.
        ("SELECT, INSERT, UPDATE, DELETE", "CREATE"),
    ],
)
def test_missing_rights_at_mariadb_are_named_as_statements_that_can_be_run(
    mariadb: str, copy: str, has: str, lacks: str
) -> None:
    user = f"clerk_{uuid.uuid4().hex[:8]}"
    mariadb_execute(mariadb, f"CREATE USER {user} IDENTIFIED BY 'pen'")
    mariadb_execute(mariadb, f"GRANT SELECT ON {mariadb.rpartition('/')[2]}.* TO {user}")
    mariadb_execute(mariadb, f"GRANT {has} ON `{copy}`.* TO {user}")
    mine = _of(f"{copy}.orders", f"{mariadb.rpartition('/')[2]}.orders")
    spec = feed(mariadb, at(mariadb, f"{user}:pen"), table=f"{copy}.{{table}}")
    try:
        (grant,) = plan_missing(spec, [mine], said).grants
        assert grant.startswith(f"GRANT {lacks} ON ")
        with pytest.raises(SinkRefusedError, match="no right to create") as refused:
            create_missing(spec, mine, said)
        mariadb_execute(mariadb, str(refused.value).partition("Run as an administrator: ")[2])
        assert plan_missing(spec, [mine], said).grants == ()
        assert create_missing(spec, mine, said)
    finally:
        mariadb_execute(mariadb, f"DROP USER {user}")


IDENTITY: Final = FeedIdentity("cluster", "0-1", "f")


def test_a_table_is_new_until_something_was_applied_to_it(databases: Databases) -> None:
    spec = databases.feed()
    create_missing(spec, plan("shop.orders"), said)
    claim = Claim(IDENTITY, "shop.orders", "t.shop.orders", Epoch(1, 1), 1, {0: 4, 1: 0})
    part = Claim(IDENTITY, "shop.orders", "t.shop.orders", Epoch(1, 2), 1, {1: 0})
    with closing(open_sink(spec.sink)) as sink:
        assert isinstance(sink, RelationalSink)
        assert sink.is_new(claim)
        sink.claim(claim)
        assert sink.is_new(claim)
        assert not sink.is_new(part), "another part of the table may have been written"
        with closing(sink.writer()) as writer:
            writer.apply(ChangeBatch(claim, {0: OffsetRange(4, 5)}, []))
        assert not sink.is_new(claim)
        rewound = Claim(IDENTITY, "shop.orders", "t.shop.orders", Epoch(1, 3), 2, {0: 4, 1: 0})
        assert sink.is_new(rewound)
        sink.seal(claim)
        sink.forget(IDENTITY)
        assert not sink.is_new(rewound), "the feed was removed"


def test_one_table_has_a_target_and_types_of_its_own(databases: Databases) -> None:
    own = {"shop.orders": TableOptions(table="odd.{table}", types={"total": "text", "feels": "text"})}
    spec = databases.feed().model_copy(update={"tables": own})
    assert create_missing(spec, _of("odd.orders", "shop.orders"), said)
    assert databases.columns("odd.orders") == [("id", "bigint"), ("feels", "text"), ("total", "text")]
