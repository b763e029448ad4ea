"""Sources that join when the table that they share with others exists already."""

import pytest

from headgate.databases.catalogue import Product
from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.postgresql.catalogue import EnumType, PostgresColumn
from headgate.records.slices import Slice
from headgate.tables.alteration import Known
from headgate.tables.joining_slices import why_misfit
from headgate.tables.plan import Sink
from headgate.tables.sliced import sliced_definition, unsliced_definition
from headgate.tables.statement import Definition
from unit.tables.definitions import mysql_column, mysql_table, postgres_column, postgres_table

PART = Slice("shop.orders", "tenant", "7")
ID = postgres_column("id", "bigint", is_nullable=False)
TENANT = postgres_column("tenant", "text", is_nullable=False)
KNOWN = Known(sink=Sink(Product.POSTGRESQL))


def source(*columns: PostgresColumn, key: tuple[str, ...] = ("id",)) -> Definition:
    return sliced_definition(postgres_table(ID, *columns, key=key), PART)


def sink(*columns: PostgresColumn, key: tuple[str, ...] = ("tenant", "id")) -> Definition:
    return postgres_table(ID, *columns, TENANT, key=key)


ALTER = 'ALTER TABLE "shop"."t" ALTER COLUMN "what"'
WHAT, AT = postgres_column("what", "integer"), postgres_column("at", "date")


@pytest.mark.parametrize(
    ("mine", "there", "why"),
    [
        (source(WHAT), sink(WHAT), None),
        (source(WHAT), sink(WHAT, key=("id", "tenant")), None),
        (source(WHAT), sink(WHAT, AT), None),
        (source(WHAT), sink(postgres_column("what", "bigint")), None),
        (source(WHAT, AT), sink(WHAT), "the table does not have its columns at (date at the source)"),
        (
            source(WHAT),
            sink(postgres_column("what", "smallint")),
            f"its columns fit after {ALTER} TYPE integer",
        ),
        (
            source(WHAT),
            sink(postgres_column("what", "date")),
            f"Column what is integer at the source and date here. Run {ALTER} TYPE integer USING …",
        ),
        (
            source(WHAT),
            sink(WHAT, postgres_column("must", "integer", is_nullable=False)),
            'its columns fit after ALTER TABLE "shop"."t" ALTER COLUMN "must" DROP NOT NULL',
        ),
    ],
)  # fmt: skip
def test_a_source_that_joins_is_compared_with_the_table(mine: Definition, there: Definition, why: str | None) -> None:
    assert why_misfit(mine, there, PART, KNOWN) == why


def test_keys_are_compared_without_the_discriminator_in_any_order() -> None:
    line = postgres_column("line", "integer", is_nullable=False)
    two = source(line, key=("id", "line"))
    assert why_misfit(two, sink(line, key=("line", "tenant", "id")), PART, KNOWN) is None
    assert "primary key is (id, line), the sink's (id)" in str(why_misfit(two, sink(line), PART, KNOWN))


def test_a_source_of_another_kind_is_compared_by_the_types_that_it_gets() -> None:
    def joins(what: MysqlColumn) -> str | None:
        key = mysql_column("id", "bigint(20)", is_nullable=False)
        return why_misfit(sliced_definition(mysql_table(key, what, key=("id",)), PART), sink(WHAT), PART, KNOWN)

    assert joins(mysql_column("what", "int(11)")) is None
    assert "fit after" in str(joins(mysql_column("what", "bigint(20)")))


def test_a_column_whose_type_the_feed_chooses_has_that_type() -> None:
    chosen = Known(sink=Sink(Product.POSTGRESQL), types={"what": "text"})
    there = sink(postgres_column("what", "text"))
    assert why_misfit(source(WHAT), there, PART, KNOWN) is not None
    assert why_misfit(source(WHAT), there, PART, chosen) is None


@pytest.mark.parametrize(
    ("theirs", "why"),
    [
        (("glad", "so"), None),
        (("so", "glad", "sad"), None),
        (("so",), """its columns fit after ALTER TYPE "one"."mood" ADD VALUE IF NOT EXISTS 'glad' BEFORE 'so'"""),
        (
            ("glad", "sad"),
            """lacks labels of the source's enum here (so). Run ALTER TYPE "one"."mood" ADD VALUE 'so'""",
        ),
    ],
)
def test_enums_of_two_schemas_are_compared_by_their_labels(theirs: tuple[str, ...], why: str | None) -> None:
    def table(enum: EnumType, *more: PostgresColumn, key: tuple[str, ...]) -> Definition:
        column = postgres_column("feels", f"{enum.schema}.mood")
        return postgres_table(ID, column, *more, key=key, enums={"feels": enum})

    joining = sliced_definition(table(EnumType("two", "mood", ("glad", "so")), key=("id",)), PART)
    there = table(EnumType("one", "mood", theirs), TENANT, key=("tenant", "id"))
    found = why_misfit(joining, there, PART, KNOWN)
    assert found is None if why is None else why in str(found)


def test_a_slices_column_is_taken_out_as_it_was_put_in() -> None:
    for table in (postgres_table(ID, WHAT, key=("id",)), mysql_table(mysql_column("id", "int(11)"), key=("id",))):
        assert unsliced_definition(sliced_definition(table, PART), PART) == table


@pytest.mark.parametrize(
    ("mine", "theirs", "is_fit"),
    [
        ("int(11)", "int(10)", True),
        ("int(11)", "int(10) unsigned", False),
        ("enum('a','b')", "enum('a','b','c')", True),
        ("enum('a','b')", "enum('a','c')", False),
    ],
)
def test_what_a_type_of_mysql_holds_is_compared_and_not_how_it_is_shown(
    mine: str, theirs: str, *, is_fit: bool
) -> None:
    key = mysql_column("id", "bigint(20)", is_nullable=False)
    tenant = mysql_column("tenant", "varchar(64)", is_nullable=False)
    there = mysql_table(key, mysql_column("what", theirs), tenant, key=("tenant", "id"))
    joining = sliced_definition(mysql_table(key, mysql_column("what", mine), key=("id",)), PART)
    assert (why_misfit(joining, there, PART, Known(sink=Sink(Product.MARIADB))) is None) is is_fit


def test_a_source_in_postgresql_fits_into_the_table_that_a_mariadb_shows_with_widths() -> None:
    known = Known(sink=Sink(Product.MARIADB))
    made = (mysql_column("id", "bigint(20)", is_nullable=False), mysql_column("what", "int(11)"))
    there = mysql_table(*made, mysql_column("tenant", "varchar(64)", is_nullable=False), key=("tenant", "id"))
    assert why_misfit(source(WHAT), there, PART, known) is None
    assert "MODIFY COLUMN `at` date" in str(
        why_misfit(source(WHAT, AT), mysql_table(*made, mysql_column("at", "int(11)"), key=("id",)), PART, known)
    )
