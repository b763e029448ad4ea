"""Which unique keys of a source's table its sink gets, if the feed wants them."""

import msgspec
import pytest

from headgate.databases.catalogue import Product, TableForm
from headgate.databases.mysql.catalogue import MysqlDefinition, MysqlKey
from headgate.databases.postgresql.catalogue import PostgresDefinition, PostgresKey
from headgate.tables.statement import CreateTable, Definition, table_statement
from unit.tables.definitions import DATABASES, mysql_column, mysql_table, postgres_column, postgres_table


def postgresql(*keys: tuple[str, ...], finds_rows: bool = True) -> PostgresDefinition:
    table = postgres_table(
        postgres_column("id", "bigint", is_nullable=False), postgres_column("mail", "character varying(500)"),
        postgres_column("other", "character varying(500)"),
        postgres_column("no", "integer"), postgres_column("note", "text"),
        postgres_column("twice", "bigint", generated="(no * 2)"), key=("id",),
    )  # fmt: skip
    more = tuple(
        PostgresKey(
            name="u", columns=key, is_primary=False, finds_rows=finds_rows, is_valid=True, is_immediate=True,
            has_own_operators=False,
        )
        for key in keys
    )  # fmt: skip
    return msgspec.structs.replace(table, form=TableForm(table.form.columns, (*table.form.keys, *more)))


def mariadb(*keys: tuple[str, ...]) -> MysqlDefinition:
    table = mysql_table(
        mysql_column("id", "bigint(20)", is_nullable=False),
        mysql_column("mail", "varchar(90)", collation="utf8mb4_general_ci"),
        mysql_column("it`s", "int(11)"), key=("id",),
    )  # fmt: skip
    more = tuple(MysqlKey(name="u", columns=key, is_primary=False, finds_rows=True, prefixed=()) for key in keys)
    return msgspec.structs.replace(table, form=TableForm(table.form.columns, (*table.form.keys, *more)))


def created(table: Definition, sink: Product) -> tuple[list[str], tuple[str, ...]]:
    """The keys of the statement, and its notes."""
    found = table_statement(table, sink, unique_keys=True)
    assert isinstance(found, CreateTable)
    lines = [line.strip().rstrip(",") for line in found.statements[0].splitlines()]
    return [line for line in lines if line.startswith("UNIQUE")], found.notes


@pytest.mark.parametrize("sink", DATABASES)
def test_no_table_gets_them_unasked(sink: Product) -> None:
    found = table_statement(postgresql(("mail", "no")), sink)
    assert isinstance(found, CreateTable)
    assert "UNIQUE" not in found.statements[0]
    assert not any("unique" in note for note in found.notes)


def test_postgresql_gets_them() -> None:
    assert created(postgresql(("mail", "no"), ("note",)), Product.POSTGRESQL)[0] == [
        'UNIQUE ("mail", "no")', 'UNIQUE ("note")',
    ]  # fmt: skip
    assert created(mariadb(("it`s",), ("mail",)), Product.POSTGRESQL)[0] == ['UNIQUE ("it`s")', 'UNIQUE ("mail")']


def test_mariadb_gets_them() -> None:
    assert created(mariadb(("it`s", "mail")), Product.MARIADB) == (["UNIQUE KEY (`it``s`, `mail`)"], ())
    assert created(postgresql(("no",)), Product.MARIADB)[0] == ["UNIQUE KEY (`no`)"]


@pytest.mark.parametrize(
    ("table", "sink", "why"),
    [
        (postgresql(("note",)), Product.MARIADB, "(note) is left out: a longtext (note) cannot be in a key"),
        (postgresql(("mail", "other")), Product.MARIADB, "(mail, other) is left out: its texts have up to 4000 bytes"),
        (postgresql(("no", "twice")), Product.POSTGRESQL, "is left out: the table does not have column twice"),
        (postgresql(("no",), finds_rows=False), Product.POSTGRESQL, "(no) is left out: it is deferrable, or of"),
    ],
)  # fmt: skip
def test_a_key_that_the_sink_cannot_have_is_noted(table: Definition, sink: Product, why: str) -> None:
    keys, notes = created(table, sink)
    assert keys == []
    assert [note for note in notes if why in note], notes


def test_a_key_that_is_there_twice_is_created_once() -> None:
    assert created(postgresql(("no",), ("no",)), Product.POSTGRESQL)[0] == ['UNIQUE ("no")']
