"""A statement for a small range of a key, or for some keys, reads no more rows than these, whatever the planner thinks.

Verify, copies and schema changes have such statements. Each of them is asked here, for each kind of key: in a table
with statistics and in one without, where the planner knows least.
"""

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

from fixtures.services import mariadb_connect
from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.row_source import LineReader, RowSource
from headgate.databases.row_sources import open_row_source
from headgate.migration.core.copy_steps import Position
from headgate.migration.strategies.contract import CopyPlan, DescribedColumn, DescribedTable
from headgate.migration.strategies.mariadb.lane import MariadbLane
from headgate.migration.strategies.mariadb.server import MariadbServer
from headgate.migration.strategies.online.lane_plan import LanePlan
from headgate.migration.strategies.online.range_work import RangeWork
from headgate.migration.strategies.postgresql.lane import PostgresLane
from headgate.migration.strategies.postgresql.server import PostgresServer
from headgate.migration.strategies.ranges import read_range
from headgate.migration.strategies.target import NO_CLUSTER, target_of
from headgate.verify.contract import KeyRange, KeySet, Side
from headgate.verify.mysql import MysqlSide
from headgate.verify.postgresql import PostgresSide
from support.planned_reads import Read, planned_reads

pytestmark = pytest.mark.integration

ROWS = 20_000
RANGE = 480
TABLE, COPY = "planned", "planned_copy"


class Key(NamedTuple):
    """Columns and their values by a row's number ``i``, at PostgreSQL and at MariaDB."""

    columns: dict[str, str]
    values: tuple[str, ...]
    mariadb: dict[str, str]
    mariadb_values: tuple[str, ...]
    is_copied: bool = True


# The first column has few values, or one: of such a range the planner knows nothing else.
UUID = "concat(left(md5({0}), 8), '-1234-4', left(md5({0}), 3), '-8000-', right(md5({0}), 12))"
KINDS = {
    "integer": Key({"a": "bigint"}, ("i",), {"a": "bigint"}, ("i",)),
    "integers": Key(
        {"a": "int", "b": "int"},
        ("i / 8000", "i % 8000"),
        {"a": "int", "b": "int"},
        ("i DIV 8000", "i % 8000"),
    ),
    "three integers": Key(
        {"a": "int", "b": "int", "c": "smallint"},
        ("1", "i / 100", "i % 100"),
        {"a": "int", "b": "int", "c": "smallint"},
        ("1", "i DIV 100", "i % 100"),
    ),
    "uuid": Key({"a": "uuid"}, ("md5(i::text)::uuid",), {"a": "uuid"}, (UUID.format("i"),), is_copied=False),
    "text": Key({"a": "text"}, ("md5(i::text)",), {"a": "varchar(40)"}, ("md5(i)",)),
    "texts": Key(
        {"a": "varchar(20)", "b": "text"},
        ("'tenant ' || i / 8000", "md5(i::text)"),
        {"a": "varchar(20)", "b": "varchar(40)"},
        ("concat('tenant ', i DIV 8000)", "md5(i)"),
    ),
    "integer and text": Key(
        {"a": "int", "b": "text"},
        ("i / 8000", "md5(i::text)"),
        {"a": "int", "b": "varchar(40)"},
        ("i DIV 8000", "md5(i)"),
    ),
    "uuid and integer": Key(
        {"a": "uuid", "b": "int"},
        ("md5((i / 8000)::text)::uuid", "i % 8000"),
        {"a": "uuid", "b": "int"},
        (UUID.format("i DIV 8000"), "i % 8000"),
        is_copied=False,
    ),
}


class Asked(NamedTuple):
    """A table with statistics, and a copy of it, as a schema change makes one, without."""

    url: str
    schema: str
    key: dict[str, str]
    is_copied: bool

    @property
    def is_mariadb(self) -> bool:
        return self.url.startswith("mysql")


def at_postgresql(url: str, kind: Key) -> Asked:
    columns = ", ".join(f"{name} {type_}" for name, type_ in kind.columns.items())
    with psycopg.connect(url, autocommit=True) as session:
        for table in (TABLE, COPY):
            session.execute(
                f"CREATE TABLE {table} ({columns}, v text, PRIMARY KEY ({', '.join(kind.columns)})) "
                "WITH (autovacuum_enabled = off)"
            )
            session.execute(
                f"INSERT INTO {table} SELECT {', '.join(kind.values)}, 'row ' || i "
                f"FROM generate_series(0, {ROWS - 1}) i"
            )
        session.execute(f"ANALYZE {TABLE}")
    return Asked(url, "public", kind.columns, is_copied=True)


def at_mariadb(url: str, kind: Key) -> Asked:
    columns = ", ".join(f"{name} {type_}" for name, type_ in kind.mariadb.items())
    with closing(mariadb_connect(url)) as session, session.cursor() as cursor:
        for table in (TABLE, COPY):
            cursor.execute(
                f"CREATE TABLE {table} ({columns}, v text, PRIMARY KEY ({', '.join(kind.columns)})) "
                "STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0"
            )
            cursor.execute(
                f"INSERT INTO {table} SELECT {', '.join(kind.mariadb_values)}, concat('row ', i) "
                f"FROM (SELECT seq AS i FROM seq_0_to_{ROWS - 1}) s"
            )
        cursor.execute(f"ANALYZE TABLE {TABLE} PERSISTENT FOR ALL")
    return Asked(url, urlsplit(url).path.strip("/"), kind.mariadb, is_copied=kind.is_copied)


@pytest.fixture(params=[f"{database}, {kind}" for database in ("postgresql", "mariadb") for kind in KINDS])
def asked(request: pytest.FixtureRequest) -> Asked:
    database, _, kind = request.param.partition(", ")
    url = request.getfixturevalue("postgres_database" if database == "postgresql" else "mariadb_database")
    return (at_postgresql if database == "postgresql" else at_mariadb)(url, KINDS[kind])


def only_these(found: list[Read], rows: int, *, statements: int = 1, sorts: bool = False) -> None:
    """So many statements were sent, and each reads the rows, perhaps the index's entries besides, and one at each end.

    A statement that ``sorts`` does so by the texts.
    """
    assert len(found) == statements
    for read in found:
        assert read.rows <= 2 * rows + 2, read
        assert sorts or not read.sorts, read
    found.clear()


def side_of(asked: Asked) -> Side:
    return MysqlSide(Target(asked.url)) if asked.is_mariadb else PostgresSide(Target(asked.url))


def test_verify_reads_the_rows_of_its_range(asked: Asked) -> None:
    with closing(side_of(asked)) as side:
        for table in (TABLE, COPY):
            verify_reads(side, table, tuple(asked.key))


def verify_reads(side: Side, table: str, key: tuple[str, ...]) -> None:
    with planned_reads([table]) as found:
        shape = side.shape(table)
        assert shape is not None
        above = None
        for _ in range(3):
            upto = side.next_bound(table, key, above, RANGE)
            part = KeyRange(key, Chunk(above, upto))
            checksum = side.checksum(table, tuple(shape.columns), part)
            assert checksum is not None
            assert checksum.rows == RANGE
            above = upto
        only_these(found, RANGE, statements=6)
        with side.snapshot():
            rows = list(side.rows(table, key, ("v",), part))
        assert len(rows) == RANGE
        only_these(found, RANGE, sorts=True)
        keys = tuple(sorted(tuple(map(text_of, row[: len(key)])) for row in rows))[::12]
        with side.snapshot():
            again = list(side.rows(table, key, ("v",), KeySet(keys, tuple(True for _ in key))))
        assert len(again) == len(keys)
        only_these(found, len(keys), sorts=True)


class Unfound(NamedTuple):
    """A key (a, b) whose rows no index finds: its types and values, which are compared by their own type, the index."""

    types: tuple[str, str]
    values: tuple[str, str]
    natives: tuple[bool, bool]
    index: str | None


NOON = "'2024-01-01 12:00Z'::timestamptz + i * interval '1 second'"
UNFOUND = {
    "begins with a text": Unfound(("timestamptz", "int"), (NOON, "i"), (False, True), "a, b"),
    "ends with a text": Unfound(("int", "timestamptz"), ("1", NOON), (True, False), "a, b"),
    "no index": Unfound(("int", "int"), ("1", "i"), (True, True), None),
    "an index of one column": Unfound(("int", "int"), ("1", "i"), (True, True), "a"),
    "an index of some rows": Unfound(("int", "int"), ("1", "i"), (True, True), "a, b) WHERE (b % 3 > 0"),
    "an index of an expression": Unfound(("int", "int"), ("1", "i"), (True, True), "(a + 0), b"),
}


@pytest.mark.parametrize("unfound", UNFOUND.values(), ids=UNFOUND)
def test_keys_without_an_index_read_the_table_once(postgres_database: str, unfound: Unfound) -> None:
    (first, second), values = unfound.types, ", ".join(unfound.values)
    with psycopg.connect(postgres_database, autocommit=True) as session:
        session.execute(f"CREATE TABLE {TABLE} (a {first}, b {second}, v text) WITH (autovacuum_enabled = off)")
        session.execute(f"INSERT INTO {TABLE} SELECT {values}, 'row ' || i FROM generate_series(0, {ROWS - 1}) i")
        if unfound.index is not None:
            session.execute(f"CREATE INDEX ON {TABLE} ({unfound.index})")
        session.execute(f"VACUUM ANALYZE {TABLE}")
        ((size,),) = session.execute(f"SELECT pg_total_relation_size('{TABLE}') / 8192").fetchall()
    key = ("a", "b")
    with closing(PostgresSide(Target(postgres_database))) as side:
        side.shape(TABLE)
        with side.snapshot():
            rows = list(side.rows(TABLE, key, ("v",)))
        keys = [(str(row[0]), str(row[1])) for row in rows[:RANGE:12]]
        with planned_reads([TABLE]) as found, side.snapshot():
            assert len(list(side.rows(TABLE, key, ("v",), KeySet(tuple(keys), unfound.natives)))) == len(keys)
        reads_once(found, int(size))
    if all(unfound.natives):
        with open_row_source(Target(postgres_database)) as source, planned_reads([TABLE]) as found:
            assert len(list(source.rows(TABLE, ("v",), key, keys))) == len(keys)
        reads_once(found, int(size))


def reads_once(found: list[Read], pages: int) -> None:
    """One statement was sent, and reads each row and each entry once at most.

    As to pages, it may find the keys by an index instead (PostgreSQL 18 passes over a first column of one value).
    """
    (read,) = found
    assert read.rows <= 2 * ROWS, read
    assert read.pages <= 2 * pages, read


def test_a_copy_reads_the_rows_of_its_range(asked: Asked) -> None:
    if not asked.is_copied:
        pytest.skip("such a key names no rows at MariaDB")
    with open_row_source(Target(asked.url)) as source:
        for table in (TABLE, COPY):
            copy_reads(source, table, tuple(asked.key))


def copy_reads(source: RowSource, table: str, key: tuple[str, ...]) -> None:
    source.key_forms(table, key)
    with planned_reads([table]) as found:
        assert source.last_key(table, key) is not None
        only_these(found, 1)
        above = None
        for _ in range(3):
            upto = source.next_bound(table, key, above, RANGE)
            rows = list(source.rows_within(table, ("v",), key, Chunk(above, upto)))
            assert len(rows) == RANGE
            only_these(found, RANGE, statements=2)
            if isinstance(source, LineReader):
                assert len(list(source.lines_within(table, ("v",), key, Chunk(above, upto)))) == RANGE
                only_these(found, RANGE)
            above = upto
        keys = [[str(value) for value in row[: len(key)]] for row in rows][::12]
        assert len(list(source.rows(table, ("v",), key, keys))) == len(keys)
        only_these(found, len(keys))


def test_a_schema_change_reads_the_rows_of_its_range(asked: Asked, tmp_path: Path) -> None:
    columns = tuple(DescribedColumn(name, kind) for name, kind in (*asked.key.items(), ("v", "text")))
    before, after = (DescribedTable(asked.schema, name, columns, {"p": tuple(asked.key)}, "") for name in (TABLE, COPY))
    plan = CopyPlan(
        before, after, COPY, tuple((c.name, c.name) for c in columns), tuple((name, name) for name in asked.key)
    )
    lane_plan = LanePlan(plan, plan, (), (), "topic")
    parts = urlsplit(asked.url)
    (tmp_path / "password").write_text(unquote(parts.password or ""), encoding="utf-8")
    address = f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
    target = target_of(address, str(tmp_path / "password"))
    server: Any = (MariadbServer if asked.is_mariadb else PostgresServer)("m", target, cluster_id=NO_CLUSTER)
    lane: Any = (MariadbLane if asked.is_mariadb else PostgresLane)(server)
    work = RangeWork("m", server.address, server.password_file, plan, 1, 1, Position("f", {}, False))
    server.take_over(1)
    with closing(server), planned_reads([TABLE, COPY]) as found:
        above = None
        for _ in range(3):
            upto = server.next_bound(plan, above, RANGE)
            assert len(list(read_range(work, Chunk(above, upto)))) == RANGE
            assert lane.differing(lane_plan, Chunk(above, upto)) == []
            only_these(found, 2 * RANGE, statements=4 if asked.is_mariadb else 3)
            above = upto
        keys = lane.rows(lane_plan, RANGE)[::12]
        found.clear()
        assert lane.still_differing(lane_plan, keys) == []
        only_these(found, 2 * len(keys), statements=2 if asked.is_mariadb else 1)


def text_of(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
