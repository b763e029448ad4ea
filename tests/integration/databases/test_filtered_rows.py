"""Expressions have the same results for rows that are compared and rows that are copied, in both databases."""

from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal

import psycopg
import pytest

from fixtures.servers import reachable_folder
from fixtures.services import mariadb_connect
from fixtures.spare_databases import SpareDatabases
from headgate.config.columns import ColumnOptions
from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.mysql.row_source import open_rows as open_mysql
from headgate.databases.postgresql.row_source import open_rows as open_postgresql
from headgate.databases.row_source import RowSource
from headgate.formats.change import Row
from headgate.replication.shaped_rows import ShapedRows
from headgate.verify.contract import Side
from headgate.verify.mysql import MysqlSide
from headgate.verify.postgresql import PostgresSide
from headgate.verify.shaped import ShapedSide
from headgate_lab.embedded.mariadb import EmbeddedMariadb

pytestmark = pytest.mark.integration

POSTGRESQL = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TABLE t (id int PRIMARY KEY, flag boolean, n bigint, d numeric(10, 4), x varchar(20), e mood, day date,
                wall timestamp, instant timestamptz, f double precision);
INSERT INTO t VALUES (1, true, 9007199254740993, 1.5000, 'Ab', 'glad', '2024-02-29', '2024-02-29 12:00:00.000001',
                      '2024-02-29 12:00:00+02', 1.5),
                     (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
MARIADB = (
    "CREATE DATABASE shop",
    """CREATE TABLE shop.t (id int PRIMARY KEY, flag boolean, n bigint, d decimal(10, 4), x varchar(20),
       e enum('sad', 'glad'), day date, wall datetime(6), instant timestamp(6) NULL, f double)""",
    "SET time_zone = '+02:00'",
    """INSERT INTO shop.t VALUES (1, true, 9007199254740993, 1.5000, 'Ab', 'glad', '2024-02-29',
       '2024-02-29 12:00:00.000001', '2024-02-29 12:00:00', 1.5),
       (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)""",
)
WHERE = [
    "n = 9007199254740993",
    "n - 1 = 9007199254740992",
    "d = 1.5 AND d * 2 = 3",
    "CAST(d AS TEXT) = '1.5'",
    "x = 'Ab'",
    "x <> 'AB'",
    "e = 'glad'",
    "day = DATE '2024-02-29'",
    "wall = TIMESTAMP '2024-02-29 12:00:00.000001'",
    "CAST(wall AS DATE) = day",
    "instant = TIMESTAMPTZ '2024-02-29 10:00:00Z'",
    "f IS NOT NULL",
    "id = 1",
]


def decided(source: RowSource, side: Side, where: str, database: str, table: str) -> list[list[int]]:
    """The ids of rows that are kept: copied by keys, copied in a range, and compared."""
    filtered = ShapedRows(source, database, table, [where], {})
    shaped = ShapedSide(side, ColumnOptions(), where)
    shaped.shape(table)
    named, ranged = (
        list(filtered.rows(table, ("id", "x"), ("id",), [("1",), ("2",)])),
        list(filtered.rows_within(table, ("x",), ("id",), Chunk(None, None))),
    )
    with shaped.snapshot():
        compared = list(shaped.rows(table, ("id",), ("x", "d")))
    ids = ([row[0] for row in named], [row[0] for row in ranged], [row[0] for row in compared])
    return [[int(str(number)) for number in each] for each in ids]


@pytest.fixture(scope="module")
def postgresql(spare_databases: SpareDatabases) -> Iterator[tuple[RowSource, Side]]:
    with spare_databases.database() as parameters:
        dsn = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters)
        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute(POSTGRESQL)
        with open_postgresql(Target(dsn)) as rows, closing(PostgresSide(Target(dsn))) as side:
            yield rows, side


@pytest.fixture(scope="module")
def mariadb() -> Iterator[tuple[RowSource, Side]]:
    with reachable_folder() as folder, EmbeddedMariadb(folder / "mariadb") as server:
        with mariadb_connect(server.dsn()) as owner, owner.cursor() as cursor:
            for statement in MARIADB:
                cursor.execute(statement)
            owner.commit()
        target = Target(server.dsn("shop"))
        with open_mysql(target) as rows, closing(MysqlSide(target)) as side:
            yield rows, side


@pytest.mark.parametrize("where", [*WHERE, "flag", "flag = TRUE"])
def test_rows_of_postgresql(postgresql: tuple[RowSource, Side], where: str) -> None:
    assert decided(*postgresql, where, "postgresql", "public.t") == [[1], [1], [1]]


@pytest.mark.parametrize("where", [*WHERE, "flag = 1"])
def test_rows_of_mariadb(mariadb: tuple[RowSource, Side], where: str) -> None:
    assert decided(*mariadb, where, "mysql", "shop.t") == [[1], [1], [1]]


SET = {
    "a": "n - 1", "b": "d * 2", "c": "UPPER(x) || e", "d2": "day", "w": "wall", "i": "instant", "k": "x = 'Ab'",
    "m": "DATE_TRUNC('month', wall)", "y": "EXTRACT(year FROM day)", "t": "CAST(wall AS TEXT)", "r": "ROUND(d, 0)",
}  # fmt: skip
NULLS = dict.fromkeys(SET)


def computed(source: RowSource, side: Side, database: str, table: str) -> tuple[list[Row], list[Row]]:
    """The computed columns of rows that are copied, and of those that are compared."""
    rows = ShapedRows(source, database, table, [], SET)
    shaped = ShapedSide(side, ColumnOptions.model_validate({"set": SET}))
    shaped.shape(table)
    copied = list(rows.rows_within(table, ("x",), ("id",), Chunk(None, None)))
    with shaped.snapshot():
        compared = list(shaped.rows(table, ("id",), tuple(SET)))
    return (
        [dict(zip(SET, row[2:], strict=True)) for row in copied],
        [dict(zip(SET, row[1:], strict=True)) for row in compared],
    )


def test_computed_columns_are_alike(postgresql: tuple[RowSource, Side], mariadb: tuple[RowSource, Side]) -> None:
    values = {
        "a": 9007199254740992, "b": Decimal(3), "c": "ABglad", "d2": "2024-02-29", "w": "2024-02-29 12:00:00.000001",
        "i": "2024-02-29 10:00:00+00", "k": True, "m": "2024-02-01 00:00:00", "y": Decimal(2024),
        "t": "2024-02-29 12:00:00.000001", "r": Decimal(2),
    }  # fmt: skip
    for found in (computed(*postgresql, "postgresql", "public.t"), computed(*mariadb, "mysql", "shop.t")):
        copied, compared = found
        assert copied == [values, NULLS]
        assert [{**row, "b": row["b"] and float(str(row["b"]))} for row in compared] == [
            {name: str(value) for name, value in values.items()} | {"b": 3.0, "i": "2024-02-29 10:00:00", "k": "1"},
            NULLS,
        ]
