"""The file that creates the tables a sink lacks, and what is said of tables for which it has no statement."""

import pytest

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.postgresql.facts import PostgresTable
from headgate.cli.column_types import chosen_types
from headgate.databases.catalogue import Product
from headgate.databases.postgresql.catalogue import EnumType
from headgate.tables.plan import Sink, shown_refusals, target_tables
from unit.tables.definitions import MOOD, mysql_column, mysql_table, postgres_column, postgres_table

ORDERS = postgres_table(
    postgres_column("id", "bigint", is_nullable=False), postgres_column("m", "public.mood"), key=("id",),
    table="orders", enums={"m": MOOD},
)  # fmt: skip
ITEMS = postgres_table(postgres_column("id", "bigint", is_nullable=False), key=("id",), table="items")


def test_what_the_tables_need_comes_before_them() -> None:
    made = target_tables([ORDERS, ITEMS], Sink(Product.POSTGRESQL, frozenset({"public"})), {})
    assert made.refused == ()
    assert made.text == (
        "-- Tables that are missing at the sink, written by Headgate.\n"
        "SET client_encoding = 'UTF8';\n"
        'CREATE SCHEMA IF NOT EXISTS "shop";\n'
        "CREATE TYPE \"public\".\"mood\" AS ENUM ('glad', 'so, so');\n"
        "\n"
        'CREATE TABLE IF NOT EXISTS "shop"."orders" (\n  "id" bigint NOT NULL,\n  "m" "public"."mood",\n'
        '  PRIMARY KEY ("id")\n);\n'
        "\n"
        'CREATE TABLE IF NOT EXISTS "shop"."items" (\n  "id" bigint NOT NULL,\n  PRIMARY KEY ("id")\n);\n'
    )


def test_what_the_sink_has_is_not_created_again() -> None:
    there = Sink(Product.POSTGRESQL, frozenset({"public", "shop"}), frozenset({MOOD}))
    text = target_tables([ORDERS], there, {}).text
    assert "CREATE SCHEMA" not in text
    assert "CREATE TYPE" not in text


def test_an_enum_with_other_labels_is_not_taken_for_the_sources() -> None:
    there = Sink(Product.POSTGRESQL, frozenset({"shop"}), frozenset({EnumType("public", "mood", ("glad",))}))
    made = target_tables([ORDERS, ITEMS], there, {})
    assert [table.name for table in made.created] == ["shop.items"]
    assert shown_refusals(made) == [
        "no statement for shop.orders: the sink's enum public.mood has other labels. Alter or rename it"
    ]


def test_settings_decide_what_a_literal_means_at_mariadb() -> None:
    table = mysql_table(mysql_column("id", "int(11)"), comment="it's")
    text = target_tables([table], Sink(Product.MARIADB), {}).text
    assert (
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';\nCREATE DATABASE IF NOT EXISTS `shop`;"
        in text
    )
    assert "COMMENT='it\\'s';" in text


def test_a_column_without_a_type_says_what_to_type() -> None:
    table = postgres_table(postgres_column("a.b", "numeric"), table="or'ders")
    made = target_tables([table], Sink(Product.MARIADB), {})
    assert made.text == ""
    (line,) = shown_refusals(made)
    assert line == (
        'no statement for shop.or\'ders, column "a.b": a numeric without a precision has up to 147455 digits. Choose a '
        "type for it: headgate feed init … --type 'shop.or'\"'\"'ders.\"a.b\"=decimal(65,30)'"
    )
    chosen = chosen_types(['shop.or\'ders."a.b"=decimal(65,30)'], [PostgresTable(schema="shop", table="or'ders")])
    assert "`a.b` decimal(65,30) NULL" in target_tables([table], Sink(Product.MARIADB), chosen).text


def test_a_note_stays_on_its_line() -> None:
    table = postgres_table(postgres_column("a\n\\! sh\n", "integer", generated="1"), postgres_column("b", "integer"))
    text = target_tables([table], Sink(Product.POSTGRESQL, frozenset({"shop"})), {}).text
    assert "-- column a??! sh? is left out: " in text
    assert "\\" not in text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("total=int", "does not name a column of a table"),
        ("orders.total=int", "orders is not missing at the sink"),
        ("shop.orders.total", "has no type"),
        ("shop.orders.total=", "has no type"),
        ("shop..total=int", "is not a valid name"),
        ("shop.items.total=int", "shop.items is not missing at the sink"),
    ],
)
def test_a_type_that_names_nothing_is_refused(given: str, says: str) -> None:
    with pytest.raises(CommandError) as raised:
        chosen_types([given], [PostgresTable(schema="shop", table="orders")])
    assert raised.value.code == ExitCode.USAGE
    assert says in str(raised.value)
