"""Names of tables as docs/configuration.md shows them: claimed, written, sealed and taken over, at both databases."""

from collections.abc import Callable, Iterator

import msgspec
import psycopg
import pytest

from fixtures.services import mariadb_execute
from headgate.formats.change import Change, Operation
from headgate.records.control import Epoch
from headgate.records.identifiers import normal_table
from headgate.sinks.contract import (
    ChangeBatch,
    Claim,
    FeedIdentity,
    OffsetRange,
    Sink,
    SinkConflictError,
    SinkRefusedError,
)
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from support import build

pytestmark = pytest.mark.integration

Execute = Callable[[str], list[tuple]]


@pytest.fixture
def postgres(postgres_database: str) -> Iterator[tuple[Sink, Execute]]:
    with psycopg.connect(postgres_database, autocommit=True) as connection:

        def execute(statement: str) -> list[tuple]:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

        yield PostgresSink(RelationalSettings(postgres_database)), execute


def claim_of(table: str, epoch: int = 1, feed_id: str = "0-1") -> Claim:
    return build.claim(identity=FeedIdentity("c", feed_id, "shop"), table=table, topic="shop.t", epoch=Epoch(1, epoch))


def put(offset: int, number: int) -> Change:
    return Change(0, offset, Operation.UPSERT, {"id": number}, {"id": number}, None, 0)


def write(sink: Sink, claim: Claim, offset: int) -> None:
    """Apply a change of one row at ``offset``."""
    writer = sink.writer()
    try:
        writer.apply(ChangeBatch(claim, {0: OffsetRange(offset, offset + 1)}, [put(offset, offset)]))
    finally:
        writer.close()


def live(sink: Sink, table: str) -> None:
    """All that a feed does with a table, from its creation to its removal."""
    sink.check([table], FeedIdentity("c", "", "shop"))
    claim = claim_of(table)
    assert sink.claim(claim) == {0: 0}
    write(sink, claim, 0)
    moved = claim_of(table, 2)
    assert sink.claim(moved) == {0: 1}
    write(sink, moved, 1)
    with pytest.raises(SinkConflictError, match="is being written by feed shop"):
        sink.claim(claim_of(table, feed_id="0-2"))
    assert sink.seal(moved) == sink.positions(moved) == {0: 2}
    sink.forget(moved.identity)


@pytest.mark.parametrize(
    ("schema", "relation", "name"),
    [
        ("sales.eu", 'or"ders', '"sales.eu"."or""ders"'),
        ("raw", "shop.public.orders", "raw.shop.public.orders"),
        ("sales", "eu.orders", 'sales."eu.orders"'),
        ("Odd Sch", "select", '"Odd Sch"."select"'),
        ("public", "plain", '"public"."plain"'),
        ("public", "or.ders", '"or.ders"'),
        ("public", "n" * 63, f"public.{'n' * 63}"),
    ],
)
def test_a_table_of_postgresql_by_any_name_of_the_documents(
    postgres: tuple[Sink, Execute], schema: str, relation: str, name: str
) -> None:
    sink, execute = postgres
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, relation))
    execute('CREATE SCHEMA IF NOT EXISTS "' + schema.replace('"', '""') + '"')
    execute(f"CREATE TABLE {quoted} (id int PRIMARY KEY)")
    live(sink, name)
    assert execute(f"SELECT id FROM {quoted} ORDER BY id") == [(0,), (1,)]


@pytest.mark.parametrize(
    ("relation", "name"),
    [("we.ird", '{}."we.ird"'), ('or"ders', '{}."or""ders"'), ("we`ird", "{}.we`ird"), ("plain", '"{}"."plain"')],
)
def test_a_table_of_mariadb_by_any_name_of_the_documents(mariadb_database: str, relation: str, name: str) -> None:
    database = mariadb_database.rsplit("/", 1)[1]
    quoted = "`" + relation.replace("`", "``") + "`"
    mariadb_execute(mariadb_database, f"CREATE TABLE {quoted} (id int PRIMARY KEY)")
    live(MysqlSink(RelationalSettings(mariadb_database)), name.format(database))
    assert mariadb_execute(mariadb_database, f"SELECT id FROM {quoted} ORDER BY id") == [(0,), (1,)]


def test_all_spellings_of_a_table_are_one_table(postgres: tuple[Sink, Execute]) -> None:
    sink, execute = postgres
    execute("CREATE TABLE plain (id int PRIMARY KEY)")
    sink.claim(claim_of("public.plain"))
    for spelling in ('"public"."plain"', 'public."plain"', "plain", '"plain"'):
        with pytest.raises(SinkConflictError):
            sink.claim(claim_of(spelling, feed_id="0-2"))


def test_a_name_that_postgresql_would_cut_is_refused_and_not_taken_for_another_table(
    postgres: tuple[Sink, Execute],
) -> None:
    sink, execute = postgres
    execute(f"CREATE TABLE {'n' * 63} (id int PRIMARY KEY)")
    for name in (f"public.{'n' * 65}", "n" * 65, "public." + "ö" * 32):
        with pytest.raises(
            SinkRefusedError, match=r"does not exist at the sink. .* at most 63 bytes, and .* has 6[45]"
        ):
            sink.check([name])


def test_a_name_that_is_too_long_for_mariadb_is_refused_with_the_reason(mariadb_database: str) -> None:
    with pytest.raises(SinkRefusedError, match=r"at most 64 characters, and .* has 65"):
        MysqlSink(RelationalSettings(mariadb_database)).check(["n" * 65])


@pytest.mark.parametrize("name", ['"public"."plain"', '"or.ders"'])
def test_rows_that_an_older_version_kept_under_a_quoted_name_keep_their_positions(
    postgres: tuple[Sink, Execute], name: str
) -> None:
    sink, execute = postgres
    execute('CREATE TABLE plain (id int PRIMARY KEY); CREATE TABLE "or.ders" (id int PRIMARY KEY)')
    claim = claim_of(name)
    sink.claim(claim)
    for kept in ("progress", "source_tables"):
        execute(f"UPDATE headgate.{kept} SET table_name = '{name}'")
    execute("UPDATE headgate.progress SET next_offset = 7")
    assert sink.positions(claim_of(name, 2)) == {0: 7}
    assert sink.claim(claim_of(name, 2)) == {0: 7}
    write(sink, claim_of(name, 2), 7)
    assert sink.seal(claim_of(name, 2)) == {0: 8}
    sink.forget(claim.identity)
    assert execute("SELECT count(*) FROM headgate.progress") == [(0,)]


def test_rows_of_mariadb_that_an_older_version_kept_under_a_quoted_name_keep_their_positions(
    mariadb_database: str,
) -> None:
    database = mariadb_database.rsplit("/", 1)[1]
    mariadb_execute(mariadb_database, "CREATE TABLE `we.ird` (id int PRIMARY KEY)")
    sink, name = MysqlSink(RelationalSettings(mariadb_database)), f'{database}."we.ird"'
    sink.claim(claim_of(name))
    mariadb_execute(mariadb_database, f"UPDATE headgate.progress SET table_name = '{name}', next_offset = 7")
    assert sink.claim(claim_of(name, 2)) == {0: 7}
    write(sink, claim_of(name, 2), 7)


def test_the_positions_of_a_bare_name_in_a_schema_with_a_dot_are_kept(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "sales.eu"; CREATE TABLE "sales.eu".orders (id int PRIMARY KEY)')
        dsn = psycopg.conninfo.make_conninfo(postgres_database, options='-csearch_path="sales.eu"')
        sink = PostgresSink(RelationalSettings(dsn))
        sink.claim(claim_of("orders"))
        connection.execute("UPDATE headgate.progress SET table_name = 'sales.eu.orders', next_offset = 7")
        assert sink.positions(claim_of("orders", 2)) == {0: 7}
        assert sink.claim(claim_of("orders", 2)) == {0: 7}
        assert connection.execute("SELECT table_name FROM headgate.progress").fetchall() == [('"sales.eu".orders',)]


def test_a_table_that_is_put_before_a_claimed_one_on_the_search_path_is_not_written(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders (id int PRIMARY KEY)")
        dsn = psycopg.conninfo.make_conninfo(postgres_database, options="-csearch_path=public,shop")
        sink = PostgresSink(RelationalSettings(dsn))
        sink.claim(claim_of("orders"))
        write(sink, claim_of("orders"), 0)
        connection.execute("CREATE TABLE public.orders (id int PRIMARY KEY)")
        assert sink.claim(claim_of("orders", 2)) == {0: 1}
        write(sink, msgspec.structs.replace(claim_of("orders", 2)), 1)
        assert connection.execute("SELECT id FROM shop.orders ORDER BY id").fetchall() == [(0,), (1,)]
        assert connection.execute("SELECT id FROM public.orders").fetchall() == []


def test_the_one_spelling() -> None:
    assert normal_table('"public"."plain"') == "public.plain"
    assert normal_table('sales."eu.orders"') == "sales.eu.orders"
    assert normal_table('"sales.eu".orders') == '"sales.eu".orders'
