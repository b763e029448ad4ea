"""Columns of a sink's table that become wider, or nullable, because the source's are: what is altered, and how."""

import msgspec

from headgate.databases.catalogue import Product
from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.postgresql.catalogue import EnumType, PostgresColumn, PostgresDefinition
from headgate.tables.alteration import AlterationContext
from headgate.tables.fitting import plan_fitting
from headgate.tables.plan import Sink
from unit.tables.definitions import MOOD, mysql_column, mysql_table, postgres_column, postgres_table

ID = postgres_column("id", "bigint", is_nullable=False)
MY_ID = mysql_column("id", "bigint(20)", is_nullable=False)


def plan(source: PostgresColumn | None, sink: PostgresColumn) -> tuple[str, ...]:
    at_source = postgres_table(ID, *([] if source is None else [source]), key=("id",))
    return plan_fitting(
        at_source, postgres_table(ID, sink, key=("id",)), AlterationContext(sink=Sink(Product.POSTGRESQL))
    ).statements


def test_a_type_is_widened_and_nothing_is_narrowed() -> None:
    narrow, wide = postgres_column("a", "integer"), postgres_column("a", "bigint")
    assert plan(wide, narrow) == ('ALTER TABLE "shop"."t" ALTER COLUMN "a" TYPE bigint',)
    assert plan(narrow, wide) == ()
    assert plan(postgres_column("a", "text"), narrow) == ()


def test_not_null_is_dropped_where_the_source_may_have_none() -> None:
    strict = postgres_column("a", "integer", is_nullable=False)
    dropped = ('ALTER TABLE "shop"."t" ALTER COLUMN "a" DROP NOT NULL',)
    assert plan(postgres_column("a", "integer"), strict) == dropped
    assert plan(None, strict) == dropped, "the source has no such column any more"
    assert plan(strict, strict) == ()
    assert plan(None, msgspec.structs.replace(strict, default="0")) == (), "rows without it have the default"


def test_a_column_of_the_key_stays_not_null() -> None:
    assert plan_fitting(
        postgres_table(msgspec.structs.replace(ID, is_nullable=True)), postgres_table(ID, key=("id",)),
        AlterationContext(sink=Sink(Product.POSTGRESQL)),
    ).statements == ()  # fmt: skip


def test_all_clauses_of_a_table_are_one_statement() -> None:
    (statement,) = plan(postgres_column("a", "text"), postgres_column("a", "character varying(9)", is_nullable=False))
    assert statement == 'ALTER TABLE "shop"."t" ALTER COLUMN "a" TYPE text, ALTER COLUMN "a" DROP NOT NULL'


def with_enum(enum: EnumType) -> PostgresDefinition:
    return postgres_table(ID, postgres_column("m", "public.mood"), key=("id",), enums={"m": enum})


def test_an_enum_gets_its_labels_at_their_places() -> None:
    longer = EnumType("public", "mood", ("new", "glad", "it's", "so, so"))
    known = AlterationContext(sink=Sink(Product.POSTGRESQL))
    assert plan_fitting(with_enum(longer), with_enum(MOOD), known).statements == (
        "ALTER TYPE \"public\".\"mood\" ADD VALUE IF NOT EXISTS 'new' BEFORE 'glad'",
        "ALTER TYPE \"public\".\"mood\" ADD VALUE IF NOT EXISTS 'it''s' AFTER 'glad'",
    )
    renamed = EnumType("public", "mood", ("happy", "so, so", "new"))
    assert plan_fitting(with_enum(renamed), with_enum(MOOD), known).statements == ()


SHOWN = """CREATE TABLE `t` (
  `id` bigint(20) NOT NULL,
  `a` varchar(9) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL DEFAULT ' NOT NULL' COMMENT 'a, b' CHECK (`a` <> ''),
  `b``c` int(11) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB"""


def my_plan(source: MysqlColumn | None, sink: MysqlColumn) -> tuple[str, ...]:
    at_source = mysql_table(MY_ID, *([] if source is None else [source]), key=("id",))
    known = AlterationContext(sink=Sink(Product.MARIADB), shown=SHOWN)
    return plan_fitting(at_source, mysql_table(MY_ID, sink, key=("id",)), known).statements


def test_mariadb_keeps_all_else_of_a_column() -> None:
    rest = "COLLATE latin1_bin{} DEFAULT ' NOT NULL' COMMENT 'a, b' CHECK (`a` <> '')"
    narrow = mysql_column("a", "varchar(9)", is_nullable=False, default="' NOT NULL'", collation="latin1_bin")
    wide = mysql_column("a", "varchar(20)", is_nullable=False, collation="utf8mb4_bin")
    expected = f"ALTER TABLE `shop`.`t` MODIFY COLUMN `a` varchar(20) CHARACTER SET latin1 {rest}"
    assert my_plan(wide, narrow) == (expected.format(" NOT NULL"),)
    assert my_plan(msgspec.structs.replace(wide, is_nullable=True), narrow) == (expected.format(" NULL"),)


def test_mariadb_drops_not_null_of_a_column_that_the_source_has_not() -> None:
    assert my_plan(None, mysql_column("b`c", "int(11)", is_nullable=False)) == (
        "ALTER TABLE `shop`.`t` MODIFY COLUMN `b``c` int(11) NULL",
    )


def test_what_the_server_prints_otherwise_is_left_alone() -> None:
    assert my_plan(None, mysql_column("unseen", "int(11)", is_nullable=False)) == ()
    assert my_plan(None, mysql_column("a", "varchar(8)", is_nullable=False)) == ()


def test_what_is_not_altered_is_named_with_the_statement() -> None:
    source = postgres_table(ID, postgres_column("a", "text"), key=("a", "id"))
    sink = postgres_table(ID, postgres_column("a", "integer"), key=("id",))
    key, column = plan_fitting(source, sink, AlterationContext(sink=Sink(Product.POSTGRESQL))).refusals
    assert key.startswith("The source's primary key is (a, id), the sink's (id). If it was changed, pause the feed and")
    assert key.endswith('run ALTER TABLE "shop"."t" with PRIMARY KEY ("a", "id")')
    assert column.startswith("Column a is text at the source and integer here. Run ALTER TABLE")
    assert column.endswith('"shop"."t" ALTER COLUMN "a" TYPE text USING …')
    alike = postgres_table(ID, postgres_column("a", "bigint"), key=("id",))
    assert plan_fitting(sink, alike, AlterationContext(sink=Sink(Product.POSTGRESQL))).refusals == (), (
        "it holds all values"
    )
