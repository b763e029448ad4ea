"""Which columns of a real table are copied: those that its changes have."""

import psycopg
import pytest

from fixtures.services import mariadb_execute
from headgate.config.columns import ColumnOptions
from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.mysql.row_source import open_rows as open_mysql
from headgate.databases.postgresql.row_source import open_rows as open_postgresql
from headgate.databases.row_source import RowSource
from headgate.records.row_copies import RowCopy
from headgate.tables.paired_tables import PairedTable, SinkTable, is_taken, pair_table

pytestmark = pytest.mark.integration


def paired(rows: RowSource, table: str, columns: dict[str, str]) -> PairedTable:
    sink = SinkTable("t", ("id",), columns, lambda _: (None,), is_taken)
    return pair_table(rows, table, sink, ColumnOptions(), RowCopy(keys=None))


def test_values_that_mariadb_computes_are_copied_because_its_log_has_them(mariadb_database: str) -> None:
    computed = "b int GENERATED ALWAYS AS (a * 2) STORED, c varchar(9) AS (CONCAT('x', a)) VIRTUAL"
    mariadb_execute(mariadb_database, f"CREATE TABLE g (id int PRIMARY KEY, a int, {computed})")
    mariadb_execute(mariadb_database, "INSERT INTO g (id, a) VALUES (1, 5), (2, NULL)")
    table = f"{mariadb_database.rsplit('/', 1)[1]}.g"
    with open_mysql(Target(mariadb_database)) as rows:
        found = paired(rows, table, {"id": "int4", "a": "int4", "b": "int4", "c": "varchar"})
        copied = list(rows.rows_within(table, list(found.columns), ["id"], Chunk(None, None)))
        assert list(rows.columns(table)) == ["id", "a"], "what can be written, where it is a sink"
        without = paired(rows, table, {"id": "int4", "a": "int4"})
    assert list(found.columns) == ["id", "a", "b", "c"]
    assert [row[1:] for row in copied] == [(1, 5, 10, "x5"), (2, None, None, None)]
    assert list(without.columns) == ["id", "a"], "a sink that computes them itself"


def test_values_that_postgresql_computes_are_not_copied_because_the_sink_computes_them(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE g (id int PRIMARY KEY, a int, b int GENERATED ALWAYS AS (a * 2) STORED)")
    with open_postgresql(Target(postgres_database)) as rows:
        assert list(paired(rows, "public.g", {"id": "int4", "a": "int4", "b": "int4"}).columns) == ["id", "a"]
