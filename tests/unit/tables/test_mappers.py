"""Every type of docs/types.md has a place in every mapper: a type of the sink, a refusal, or no column."""

import re
from pathlib import Path

import pytest

from headgate.databases.catalogue import Product
from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.mysql.types import GEOMETRIES
from headgate.databases.postgresql.catalogue import PostgresColumn
from headgate.tables.mapped import LeftOut, Mapped, Outcome, Unmapped
from headgate.tables.mysql_to_mysql import same_type
from headgate.tables.mysql_to_postgresql import to_postgresql as from_mysql
from headgate.tables.postgresql_to_mysql import to_mysql
from headgate.tables.postgresql_to_postgresql import to_postgresql
from headgate.tables.statement import RefusedTable, outcomes_of, table_statement
from support.connector_types import ALTERED_MARIADB, ALTERED_POSTGRESQL
from unit.tables.definitions import DATABASES, MOOD, mysql_column, mysql_table, postgres_column, postgres_table

PAGE = Path(__file__).parents[3] / "docs" / "types.md"
EXACT = " CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"

FROM_POSTGRESQL = {
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "oid": "int unsigned",
    "numeric(12,2)": "decimal(12,2)",
    "numeric(5)": "decimal(5,0)",
    "numeric(5,-2)": "decimal(7,0)",
    "numeric(3,5)": "decimal(5,5)",
    "numeric": None,
    "numeric(70,2)": None,
    "numeric(60,31)": None,
    "real": "float",
    "double precision": "double",
    "money": "decimal(19,2)",
    "boolean": "tinyint(1)",
    "char(5)": f"char(5){EXACT}",
    "char(300)": f"varchar(300){EXACT}",
    "varchar(20)": f"varchar(20){EXACT}",
    "varchar(9000)": f"longtext{EXACT}",
    "varchar": f"longtext{EXACT}",
    "text": f"longtext{EXACT}",
    "date": "date",
    "time": "time(6)",
    "time(3)": "time(3)",
    "timetz": None,
    "time[]": None,
    "timetz[]": None,
    "timestamp": "datetime(6)",
    "timestamp(3)": "datetime(3)",
    "timestamptz": "datetime(6)",
    "interval": f"longtext{EXACT}",
    "bytea": "longblob",
    "json": "json",
    "jsonb": "json",
    "uuid": f"varchar(36){EXACT}",
    "inet": f"varchar(50){EXACT}",
    "cidr": f"varchar(50){EXACT}",
    "macaddr": f"varchar(17){EXACT}",
    "bit(1)": "bit(1)",
    "bit(10)": "bit(10)",
    "bit(65)": None,
    "bit varying(10)": None,
    "mood": f"varchar(63){EXACT}",
    "integer[]": "json",
    "text[]": "json",
    "double precision[]": "json",
    "numeric(12,2)[]": "json",
    "numeric[]": "json",
    "date[]": "json",
    "int4range": f"varchar(50){EXACT}",
    "point": "point",
    "tsquery": "",
    "pg_lsn": "",
    "interval[]": "",
    "shop.pair": None,
}
"""Type → the sink's; None: refused; empty: left out."""

REWRITTEN_LABEL = "enum('glad','so, so')"
"""The connector changes its values."""

FROM_MARIADB = {
    "tinyint": "smallint",
    "tinyint unsigned": "smallint",
    "boolean": "smallint",
    "smallint": "smallint",
    "smallint unsigned": "integer",
    "mediumint unsigned": "integer",
    "int": "integer",
    "int unsigned": "bigint",
    "bigint": "bigint",
    "bigint unsigned": "numeric(20,0)",
    "decimal(12,2)": "numeric(12,2)",
    "decimal(40,20)": "numeric(40,20)",
    "float": "real",
    "double": "double precision",
    "bit(1)": "bit(1)",
    "bit(10)": "bit(10)",
    "char(5)": "character(5)",
    "char(0)": "text",
    "varchar(20)": "character varying(20)",
    "text": "text",
    "binary(4)": "bytea",
    "varbinary(9)": "bytea",
    "longblob": "bytea",
    "date": "date",
    "time": "interval",
    "time(3)": "interval",
    "time(6)": "interval",
    "datetime": "timestamp(0) without time zone",
    "datetime(6)": "timestamp(6) without time zone",
    "timestamp(6) NULL": "timestamp(6) with time zone",
    "year": "integer",
    "enum('glad','so so')": "text",
    REWRITTEN_LABEL: None,
    "set('a','b','c')": "text",
    "json": "json",
    "uuid": "uuid",
    "point": "",
    "inet4": "",
    "vector(3)": None,
}


def documented(section: str) -> list[str]:
    """The source's types in the page's table."""
    text = PAGE.read_text(encoding="utf-8").split(f"<!-- {section}: begin -->")[1].split(f"<!-- {section}: end")[0]
    return list(dict.fromkeys(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)))


def told(outcome: Outcome) -> str | None:
    if isinstance(outcome, Mapped):
        return outcome.type.sql
    return "" if isinstance(outcome, LeftOut) else None


def from_postgresql(declared: str, sink: Product) -> Outcome:
    enum = MOOD if declared == "mood" else None
    column = postgres_column("c", "public.mood", base="mood") if enum else postgres_column("c", declared)
    return to_postgresql(column, enum) if sink is Product.POSTGRESQL else to_mysql(column, enum, sink)


def from_mariadb(declared: str, sink: Product) -> Outcome:
    column = mysql_column("c", declared.removesuffix(" NULL").replace("boolean", "tinyint(1)"))
    return from_mysql(column) if sink is Product.POSTGRESQL else same_type(column, Product.MARIADB, sink)


def test_every_type_of_the_page_is_mapped_here() -> None:
    assert set(documented("postgresql")) <= {*FROM_POSTGRESQL, *OF_EXTENSIONS}
    assert set(documented("mariadb")) <= set(FROM_MARIADB)


@pytest.mark.parametrize(("declared", "becomes"), FROM_POSTGRESQL.items())
def test_postgresql_to_mariadb(declared: str, becomes: str | None) -> None:
    assert told(from_postgresql(declared, Product.MARIADB)) == becomes


@pytest.mark.parametrize(("declared", "becomes"), FROM_MARIADB.items())
def test_mariadb_to_postgresql(declared: str, becomes: str | None) -> None:
    assert told(from_mariadb(declared, Product.POSTGRESQL)) == becomes


OF_EXTENSIONS = ("vector(3)", "halfvec(3)")
"""Types whose extension the sink may not have: nothing creates a column of them."""

CHANGED = ("bit varying(10)", "timetz", "time[]", "timetz[]")
"""Types whose values the connector changes, whatever the sink is."""


@pytest.mark.parametrize("declared", CHANGED)
def test_what_the_connector_changes_is_refused_with_the_type_that_may_be_chosen(declared: str) -> None:
    outcome = from_postgresql(declared, Product.POSTGRESQL)
    assert isinstance(outcome, Unmapped)
    assert outcome.instead
    assert "the connector" in outcome.reason


@pytest.mark.parametrize("sink", Product)
def test_an_array_of_a_domain_is_refused(sink: Product) -> None:
    column = postgres_column("c", "public.short[]", base="character varying(5)[]")
    outcome = to_postgresql(column, None) if sink is Product.POSTGRESQL else to_mysql(column, None, sink)
    assert isinstance(outcome, Unmapped)
    assert outcome.instead
    one = postgres_column("c", "public.shorts", base="text[]")
    assert isinstance(to_postgresql(one, None) if sink is Product.POSTGRESQL else to_mysql(one, None, sink), Mapped)


@pytest.mark.parametrize("sink", Product)
def test_what_the_connector_changes_is_told_of_each_type(sink: Product) -> None:
    """Of the values in tests/support/every_type.py; the round trips show that it changes them."""
    for type_ in ALTERED_POSTGRESQL:
        outcome = from_postgresql(type_.declared, sink)
        assert not isinstance(outcome, Mapped) or outcome.altered, type_.declared
    for type_ in ALTERED_MARIADB:
        outcome = from_mariadb(type_.declared, sink)
        assert not isinstance(outcome, Mapped) or outcome.altered, type_.declared


@pytest.mark.parametrize("declared", sorted({*documented("postgresql")} - {*CHANGED, *OF_EXTENSIONS}))
def test_postgresql_keeps_its_types(declared: str) -> None:
    outcome = from_postgresql(declared, Product.POSTGRESQL)
    assert isinstance(outcome, Mapped)
    again = from_postgresql(outcome.type.sql, Product.POSTGRESQL)
    assert again == outcome or declared == "mood", "the type's text is one that the server prints"


@pytest.mark.parametrize("declared", [each for each in documented("mariadb") if each != REWRITTEN_LABEL])
def test_mariadb_keeps_its_types(declared: str) -> None:
    expected = declared.removesuffix(" NULL").replace("boolean", "tinyint(1)")
    assert told(from_mariadb(declared, Product.MARIADB)) == expected


@pytest.mark.parametrize(
    "declared", ["hstore", "public.citext", "xml", "tsvector", "name", '"char"', "a; b", "regclass"]
)
def test_what_is_not_understood_is_refused(declared: str) -> None:
    for sink in (Product.POSTGRESQL, Product.MARIADB):
        assert isinstance(from_postgresql(declared, sink), Unmapped)


def test_a_collation_of_the_servers_own_is_kept() -> None:
    own = to_postgresql(postgres_column("c", "text", collation='pg_catalog."C"'), None)
    assert told(own) == 'text COLLATE "pg_catalog"."C"'
    assert told(to_postgresql(postgres_column("c", "text", collation="shop.mine"), None)) == "text"


@pytest.mark.parametrize("sink", Product)
def test_a_label_that_the_connector_rewrites_is_refused(sink: Product) -> None:
    outcome = from_mariadb(r"enum('a','b\\c')", sink)
    assert isinstance(outcome, Unmapped)
    assert "backslash" in outcome.reason
    assert isinstance(from_mariadb("set('a','it''s')", sink), Unmapped)
    assert isinstance(from_mariadb("enum('a','b, c')", sink), Unmapped)
    assert isinstance(from_mariadb("enum('a','b c')", sink), Mapped)


@pytest.mark.parametrize("declared", sorted(GEOMETRIES))
def test_a_geometry_at_a_sink_without_its_type_is_refused_with_the_option_that_leaves_it_out(declared: str) -> None:
    table = mysql_table(mysql_column("id", "int(11)", is_nullable=False), mysql_column("c", declared), key=("id",))
    made = table_statement(table, Product.POSTGRESQL)
    assert isinstance(made, RefusedTable)
    assert [each.column for each in made.refusals] == ["c"]
    assert "columns: {exclude: [c]}" in made.refusals[0].reason
    assert not isinstance(table_statement(table, Product.MARIADB), RefusedTable)


@pytest.mark.parametrize("sink", DATABASES)
def test_every_type_that_a_refusal_proposes_can_be_chosen(sink: Product) -> None:
    rewritten = (r"enum('a','b\\c')", "set('a','it''s')", "enum('so, so','O''Neil')")
    columns: list[PostgresColumn | MysqlColumn] = [postgres_column("c", declared) for declared in FROM_POSTGRESQL]
    columns += [mysql_column("c", declared.removesuffix(" NULL")) for declared in (*FROM_MARIADB, *rewritten)]
    for column in columns:
        table = postgres_table(column) if isinstance(column, PostgresColumn) else mysql_table(column)
        outcome = outcomes_of(table, sink, {})["c"]
        if isinstance(outcome, Unmapped) and outcome.instead:
            chosen = outcomes_of(table, sink, {"c": outcome.instead})["c"]
            assert isinstance(chosen, Mapped), (column.type, outcome.instead)


def test_names_of_chosen_types_may_be_in_capitals() -> None:
    table = mysql_table(mysql_column("c", "int(11)"))
    assert told(outcomes_of(table, Product.MARIADB, {"c": "BIGINT"})["c"]) == "bigint"
    assert told(outcomes_of(table, Product.MARIADB, {"c": "Enum('A','b')"})["c"]) == f"enum('A','b'){EXACT}"
    assert told(outcomes_of(table, Product.POSTGRESQL, {"c": "VARCHAR(9)"})["c"]) == "character varying(9)"


@pytest.mark.parametrize("sink", Product)
def test_an_array_of_an_enum_is_refused(sink: Product) -> None:
    column = postgres_column("c", "public.mood[]", base="mood[]")
    outcome = to_postgresql(column, MOOD) if sink is Product.POSTGRESQL else to_mysql(column, MOOD, sink)
    assert isinstance(outcome, Unmapped)
    assert outcome.instead


def test_mysql_has_other_types_and_collations_than_mariadb() -> None:
    assert told(same_type(mysql_column("c", "uuid"), Product.MARIADB, Product.MYSQL)) is None
    text = mysql_column("c", "varchar(9)", collation="utf8mb4_0900_ai_ci")
    assert told(same_type(text, Product.MYSQL, Product.MARIADB)) is None
    assert told(same_type(text, Product.MYSQL, Product.MYSQL)) == (
        "varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci"
    )
