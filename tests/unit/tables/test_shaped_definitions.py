"""What a table at the sink is made of where a feed chooses, renames and masks columns."""

import re

import pytest
from msgspec.structs import replace

from headgate.config.columns import ColumnOptions
from headgate.databases.catalogue import Product, TableForm
from headgate.databases.mysql.catalogue import MysqlKey
from headgate.databases.postgresql.catalogue import PostgresKey
from headgate.tables.shaped import shaped_definition, unfit_mask
from headgate.tables.statement import CreateTable, Definition, RefusedTable, table_statement

from .definitions import MOOD, mysql_column, mysql_table, postgres_column, postgres_table


def options(**given: object) -> ColumnOptions:
    return ColumnOptions.model_validate(given)


SHAPE = options(
    exclude=["secret"],
    rename={"id": "number", "mail": "email"},
    mask={"mail": {"sha256": "salt"}, "card": {"sha256": "salt"}, "iban": None, "status": {"constant": "-"}},
)
NAMES = ("id", "mail", "card", "iban", "status", "secret")


def postgresql() -> Definition:
    columns = [
        postgres_column("id", "bigint", is_nullable=False),
        postgres_column("mail", "text", is_nullable=False, default="'x'::text"),
        postgres_column("card", "integer"),
        postgres_column("iban", "text", is_nullable=False),
        postgres_column("status", "text", default="'new'::text"),
        postgres_column("secret", "hstore"),
    ]
    table = postgres_table(*columns, key=("id",), comments={"mail": "an address", "secret": "not for you"})
    unique = PostgresKey(
        name="u", columns=("mail",), is_primary=False, finds_rows=True, is_valid=True, is_immediate=True,
        has_own_operators=False,
    )  # fmt: skip
    return replace(table, form=TableForm(table.form.columns, (*table.form.keys, unique)))


def mysql() -> Definition:
    columns = [
        mysql_column("id", "bigint(20)", is_nullable=False),
        mysql_column("mail", "varchar(200)", is_nullable=False, collation="utf8mb4_general_ci"),
        mysql_column("card", "int(11)"),
        mysql_column("iban", "varchar(34)", is_nullable=False, collation="utf8mb4_general_ci"),
        mysql_column("status", "varchar(9)", default="'new'", collation="utf8mb4_general_ci"),
        mysql_column("secret", "geometry"),
    ]
    table = mysql_table(*columns, key=("id",), comments={"mail": "an address"})
    unique = MysqlKey(name="u", columns=("mail",), is_primary=False, finds_rows=True, prefixed=())
    return replace(table, form=TableForm(table.form.columns, (*table.form.keys, unique)))


@pytest.mark.parametrize(
    ("table", "sink", "lines"),
    [
        (
            postgresql(),
            Product.POSTGRESQL,
            ['"number" bigint NOT NULL', '"email" character varying(64) NOT NULL', '"card" character varying(64)',
             '"iban" text', '"status" text', 'PRIMARY KEY ("number")'],
        ),
        (
            mysql(),
            Product.POSTGRESQL,
            ['"number" bigint NOT NULL', '"email" character varying(64) NOT NULL', '"card" character varying(64)',
             '"iban" character varying(34)', '"status" character varying(9)', 'PRIMARY KEY ("number")'],
        ),
    ],
)  # fmt: skip
def test_the_table_has_the_columns_as_they_arrive(table: Definition, sink: Product, lines: list[str]) -> None:
    made = table_statement(shaped_definition(table, SHAPE), sink, unique_keys=True)
    assert isinstance(made, CreateTable)
    body = made.statements[0].partition("(\n  ")[2].removesuffix("\n)").split(",\n  ")
    assert body == lines


@pytest.mark.parametrize("table", [postgresql(), mysql()])
def test_mysql_and_mariadb_get_it_too(table: Definition) -> None:
    made = table_statement(shaped_definition(table, SHAPE), Product.MARIADB)
    assert isinstance(made, CreateTable)
    assert re.search(
        r"`email` varchar\(64\) CHARACTER SET utf8mb4 COLLATE utf8mb4_(nopad_)?bin NOT NULL", made.statements[0]
    )
    assert "`iban`" in made.statements[0]
    assert "secret" not in "".join(made.statements)


def test_a_comment_goes_with_its_column() -> None:
    made = table_statement(shaped_definition(postgresql(), SHAPE), Product.POSTGRESQL)
    assert isinstance(made, CreateTable)
    assert made.statements[1:] == ('COMMENT ON COLUMN "shop"."t"."email" IS \'an address\'',)


def test_a_masked_enum_needs_no_enum() -> None:
    column = replace(postgres_column("m", "public.mood"), is_enum=True)
    table = postgres_table(postgres_column("id", "bigint"), column, key=("id",), enums={"m": MOOD})
    made = table_statement(shaped_definition(table, options(mask={"m": {"sha256": "s"}})), Product.POSTGRESQL)
    assert isinstance(made, CreateTable)
    assert (made.needs, made.columns["m"]) == ((), "character varying(64)")


def test_a_table_without_options_is_the_same_object() -> None:
    table = postgresql()
    assert shaped_definition(table, ColumnOptions()) is table


@pytest.mark.parametrize(
    ("column", "mask", "is_fit"),
    [
        (postgres_column("c", "text"), {"keep_last": 2}, True),
        (postgres_column("c", "character varying(9)"), {"keep_last": 2}, True),
        (postgres_column("c", "character(9)"), {"sha256": "s"}, False),
        (postgres_column("c", "bigint"), {"sha256": "s"}, True),
        (postgres_column("c", "bigint"), {"keep_last": 2}, False),
        (postgres_column("c", "uuid"), {"sha256": "s"}, True),
        (postgres_column("c", "uuid"), {"keep_last": 2}, False),
        (postgres_column("c", "text[]"), {"sha256": "s"}, False),
        (postgres_column("c", "date"), {"sha256": "s"}, False),
        (postgres_column("c", "date"), {"constant": "2000-01-01"}, True),
        (postgres_column("c", "hstore"), None, True),
        (replace(postgres_column("c", "mood"), is_enum=True), {"sha256": "s"}, True),
        (replace(postgres_column("c", "mood"), is_enum=True), {"keep_last": 1}, False),
        (mysql_column("c", "varchar(9)"), {"keep_last": 2}, True),
        (mysql_column("c", "int(11)"), {"sha256": "s"}, True),
        (mysql_column("c", "decimal(9,2)"), {"sha256": "s"}, False),
    ],
)
def test_a_mask_that_is_computed_needs_values_with_one_text(column: object, mask: object, is_fit: bool) -> None:
    make = mysql_table if "Mysql" in type(column).__name__ else postgres_table
    found = unfit_mask(make(column), options(mask={"c": mask}))  # type: ignore[operator]
    assert (found is None) is is_fit
    assert found is None or found.startswith("column c is of type ")


COMPUTED = options(
    set={
        "n": "id * 2", "total": "CAST(id AS NUMERIC) / 3", "cents": "CAST(id AS NUMERIC(12, 2))", "b": "id > 5",
        "mail": "LOWER(mail)", "day": "DATE '2024-02-29'", "at": "TIMESTAMP '2024-02-29 12:00:00'",
        "instant": "TIMESTAMPTZ '2024-02-29 12:00:00Z'",
    },
)  # fmt: skip


def computed_lines(table: Definition, sink: Product) -> list[str]:
    chosen = {"total": "decimal(20,10)", "secret": "text", "mail": "varchar(200)"}
    made = table_statement(shaped_definition(table, COMPUTED), sink, chosen)
    assert isinstance(made, CreateTable), made
    lines = [line.strip().rstrip(",") for line in made.statements[0].splitlines()]
    first = next(number for number, line in enumerate(lines) if line[1:].startswith("n"))
    return [
        re.sub(r" CHARACTER SET .* NULL| NULL", "", line)[1:].replace('"', "").replace("`", "")
        for line in lines[first:-2]
    ]


def test_computed_columns_have_the_types_of_their_results() -> None:
    at_postgresql = [
        "total numeric(20,10)",
        "cents numeric(12,2)",
        "b boolean",
        "mail character varying(200)",
        "day date",
    ]
    assert computed_lines(postgresql(), Product.POSTGRESQL) == [
        "n bigint", *at_postgresql, "at timestamp without time zone", "instant timestamp with time zone",
    ]  # fmt: skip
    at_mariadb = ["total decimal(20,10)", "cents decimal(12,2)", "b tinyint(1)", "mail varchar(200)", "day date"]
    assert computed_lines(postgresql(), Product.MARIADB) == [
        "n bigint", *at_mariadb, "at datetime(6)", "instant datetime(6)",
    ]  # fmt: skip
    assert computed_lines(mysql(), Product.MARIADB) == [
        "n bigint(20)", *at_mariadb, "at datetime(6)", "instant timestamp(6)",
    ]  # fmt: skip
    at_postgresql[2] = "b smallint"
    assert computed_lines(mysql(), Product.POSTGRESQL) == [
        "n bigint", *at_postgresql, "at timestamp(6) without time zone", "instant timestamp(6) with time zone",
    ]  # fmt: skip


def test_a_result_that_no_type_of_the_sink_holds_asks_for_a_type() -> None:
    made = table_statement(shaped_definition(postgresql(), options(set={"t": "id / 3.0"})), Product.MARIADB)
    assert isinstance(made, RefusedTable)
    assert [(each.column, each.instead) for each in made.refusals if each.column == "t"] == [("t", "decimal(65,30)")]
    table = mysql_table(
        mysql_column("id", "bigint(20)", is_nullable=False), mysql_column("flag", "tinyint(1)"), key=("id",)
    )
    made = table_statement(shaped_definition(table, options(set={"copy": "COALESCE(flag, flag)"})), Product.MARIADB)
    assert isinstance(made, RefusedTable)
    assert made.refusals[0].reason == "a result whose type only events show is not a type that Headgate can create"
