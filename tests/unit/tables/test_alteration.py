"""Columns that a sink's table gets because the source's has got them: what is added, what is refused, and why."""

from typing import Any

import msgspec
import pytest

from headgate.databases.catalogue import Product
from headgate.databases.mysql.catalogue import MysqlDefinition
from headgate.databases.postgresql.catalogue import EnumType, PostgresColumn, PostgresDefinition
from headgate.sinks.known_columns import ColumnNumbers, KnownColumns
from headgate.tables.alteration import Alteration, AlterationContext, plan_alteration
from headgate.tables.plan import Sink
from unit.tables.definitions import MOOD, mysql_column, mysql_table, postgres_column, postgres_table

POSTGRESQL = AlterationContext(sink=Sink(Product.POSTGRESQL))
MARIADB = AlterationContext(sink=Sink(Product.MARIADB))

ID = postgres_column("id", "bigint", is_nullable=False)
MY_ID = mysql_column("id", "bigint(20)", is_nullable=False)


def numbered(*columns: PostgresColumn, **more: EnumType) -> PostgresDefinition:
    """A table whose columns were added in this order."""
    found = [msgspec.structs.replace(column, number=number) for number, column in enumerate(columns, start=1)]
    return postgres_table(*found, key=("id",), enums=more)


def my_numbered(*columns: object) -> MysqlDefinition:
    found = [msgspec.structs.replace(column, number=number) for number, column in enumerate(columns, start=1)]  # type: ignore[type-var]
    return mysql_table(*found, key=("id",))


def plan(
    *added: PostgresColumn, sink: PostgresDefinition | MysqlDefinition | None = None,
    known: AlterationContext = POSTGRESQL, told: str = "", **enums: EnumType,
) -> Alteration:  # fmt: skip
    source = numbered(ID, *added, **enums)
    return plan_alteration(source, sink or numbered(ID), {column.name: told for column in added}, known)


def test_a_column_is_added_nullable_with_the_sources_type() -> None:
    found = plan(postgres_column("note", "character varying(40)", is_nullable=True))
    assert found.statements == ('ALTER TABLE "shop"."t" ADD COLUMN IF NOT EXISTS "note" character varying(40)',)
    assert (found.columns, found.refusals) == (("note",), ())


def test_several_columns_are_one_statement() -> None:
    (statement,) = plan(postgres_column("a", "integer"), postgres_column("b", "text")).statements
    assert statement.endswith('ADD COLUMN IF NOT EXISTS "a" integer, ADD COLUMN IF NOT EXISTS "b" text')


def test_a_column_that_the_sink_has_by_now_is_not_added() -> None:
    assert plan(postgres_column("a", "integer"), sink=numbered(ID, postgres_column("a", "text"))) == Alteration(
        name="shop.t", schema="shop"
    )


def test_mariadb_does_not_tell_names_apart_by_case() -> None:
    sink = my_numbered(MY_ID, mysql_column("NOTE", "text"))
    assert plan(postgres_column("note", "text"), sink=sink, known=MARIADB).statements == ()


def test_postgresql_tells_names_apart_that_mariadb_does_not() -> None:
    """A column that MariaDB has renamed in its case alone is not a new one, and an older change does not revive it."""
    source = my_numbered(MY_ID, mysql_column("Note", "text"))
    sink = numbered(ID, postgres_column("note", "text"))
    (reason,) = plan_alteration(source, sink, {"Note": ""}, POSTGRESQL).refusals
    assert "it may be the new name of note, which the source's table does not have" in reason
    assert 'run ALTER TABLE "shop"."t" RENAME COLUMN "note" TO "Note"' in reason
    renamed = numbered(ID, postgres_column("Note", "text"))
    (older,) = plan_alteration(source, renamed, {"note": ""}, POSTGRESQL).refusals
    assert "the source's table calls it Note now, which is another column at the sink" in older


@pytest.mark.parametrize(
    ("declared", "missing", "default"),
    [
        ("integer", "5", "'5'"),
        ("boolean", "t", "true"),
        ("text", "it's", "'it''s'"),
        ("timestamp with time zone", "2026-11-26 20:00:00+00", "'2026-11-26 20:00:00+00'"),
    ],
)
def test_rows_that_are_there_get_the_value_with_which_the_source_added_it(
    declared: str, missing: str, default: str
) -> None:
    """Whatever its default is by now: PostgreSQL keeps the value of rows that are older."""
    known = msgspec.structs.replace(POSTGRESQL, missing={"a": missing})
    for now in (None, "'9'::text"):
        (statement,) = plan(postgres_column("a", declared, default=now), known=known).statements
        assert statement.endswith(f'"a" {declared} DEFAULT {default}')


def test_a_default_that_may_have_been_set_later_is_not_given_to_rows_that_are_there() -> None:
    (reason,) = plan(postgres_column("a", "integer", default="5")).refusals
    assert "it is not known what rows that do not change again have in it" in reason
    assert 'Run ALTER TABLE "shop"."t" ADD COLUMN "a" integer' in reason


def test_a_table_without_rows_gets_it_without_a_default() -> None:
    known = msgspec.structs.replace(POSTGRESQL, is_empty=True)
    (statement,) = plan(postgres_column("a", "uuid", default="gen_random_uuid()"), known=known).statements
    assert statement.endswith('"a" uuid')


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (mysql_column("a", "int(11)", is_nullable=False), "NOT NULL at the source"),
        (mysql_column("a", "timestamp", default="current_timestamp()"), "not a constant"),
        (mysql_column("a", "int(11)", generated="id + 1"), "the source computes it"),
    ],
)
def test_mariadb_does_not_tell_what_older_rows_have(column: object, reason: str) -> None:
    found = plan_alteration(my_numbered(MY_ID, column), my_numbered(MY_ID), {"a": ""}, MARIADB)
    assert [reason in each for each in found.refusals] == [True]


def test_mariadbs_constant_default_is_what_older_rows_have() -> None:
    source = my_numbered(MY_ID, mysql_column("a", "int(11)", default="5", is_nullable=False))
    found = plan_alteration(source, my_numbered(MY_ID), {"a": "int32"}, MARIADB)
    assert found.statements == ("ALTER TABLE `shop`.`t` ADD COLUMN `a` int(11) NULL DEFAULT 5",)
    crossed = plan_alteration(source, numbered(ID), {"a": "int32"}, POSTGRESQL)
    assert crossed.statements == ('ALTER TABLE "shop"."t" ADD COLUMN IF NOT EXISTS "a" integer DEFAULT 5',)


def test_a_column_that_the_source_has_dropped_again_is_refused() -> None:
    found = plan_alteration(numbered(ID), numbered(ID), {"gone": "int32"}, POSTGRESQL)
    assert found.statements == ()
    (reason,) = found.refusals
    assert reason.startswith("column gone of table shop.t was not added: the source's table shop.t does not have it")
    assert 'Run ALTER TABLE "shop"."t" ADD COLUMN "gone" …' in reason


@pytest.mark.parametrize(
    ("declared", "told"),
    [("text", "int32"), ("integer", "string"), ("date", "io.debezium.time.MicroTimestamp"), ("integer[]", "int32"),
     ("numeric(9,2)", "boolean"), ("bigint", "io.debezium.data.Bits(9)")],
)  # fmt: skip
def test_a_column_that_was_added_again_with_another_type_is_refused(declared: str, told: str) -> None:
    (reason,) = plan(postgres_column("a", declared), told=told).refusals
    assert f"when it had another type ({told}), and the source's column is {declared} now" in reason


@pytest.mark.parametrize(
    ("declared", "told"),
    [("text", "string"), ("integer", "int16"), ("date", "io.debezium.time.Date"), ("integer[]", "array(int32)"),
     ("numeric(9,2)", "org.apache.kafka.connect.data.Decimal(2)"), ("numeric(9,2)", "float64"),
     ("timestamp with time zone", "io.debezium.time.ZonedTimestamp"), ("uuid", "io.debezium.data.Uuid"),
     ("text", "com.example.Unknown"), ("interval", "io.debezium.time.MicroDuration")],
)  # fmt: skip
def test_every_way_in_which_a_connector_writes_a_type_is_taken(declared: str, told: str) -> None:
    assert plan(postgres_column("a", declared), told=told).refusals == ()


def test_a_column_that_may_be_a_new_name_is_refused() -> None:
    sink = numbered(ID, postgres_column("old", "text"))
    (reason,) = plan(postgres_column("new", "text"), sink=sink).refusals
    assert "it may be the new name of old" in reason
    assert 'run ALTER TABLE "shop"."t" RENAME COLUMN "old" TO "new"' in reason
    assert 'If it is new, run ALTER TABLE "shop"."t" ADD COLUMN "new" text' in reason


def test_a_column_of_another_type_behind_all_others_is_no_new_name() -> None:
    sink = numbered(ID, postgres_column("old", "integer"))
    assert plan(postgres_column("new", "text"), sink=sink).refusals == ()


def test_a_column_in_the_middle_may_be_a_new_name_whatever_its_type_at_the_sink() -> None:
    source = numbered(ID, postgres_column("new", "text"), postgres_column("last", "text"))
    sink = numbered(ID, postgres_column("old", "integer"), postgres_column("last", "text"))
    (reason,) = plan_alteration(source, sink, {"new": ""}, POSTGRESQL).refusals
    assert "may be the new name of old" in reason


def test_a_column_of_the_sources_key_is_refused() -> None:
    source = postgres_table(ID, postgres_column("tenant", "integer"), key=("tenant", "id"))
    (reason,) = plan_alteration(source, numbered(ID), {"tenant": ""}, POSTGRESQL).refusals
    assert 'give the table PRIMARY KEY ("tenant", "id")' in reason


def test_an_enum_is_created_first_unless_the_sink_has_another_one_of_that_name() -> None:
    assert plan(postgres_column("m", "public.mood"), m=MOOD).needs == (MOOD,)
    other = AlterationContext(sink=Sink(Product.POSTGRESQL, enums=frozenset({EnumType("public", "mood", ("glad",))})))
    (reason,) = plan(postgres_column("m", "public.mood"), known=other, m=MOOD).refusals
    assert 'Run ALTER TYPE "public"."mood" ADD VALUE' in reason


def test_a_type_that_is_not_understood_can_be_chosen() -> None:
    column = postgres_column("a", "shop.pair")
    (reason,) = plan(column).refusals
    assert "shop.pair is not a type that Headgate can create" in reason
    chosen = msgspec.structs.replace(POSTGRESQL, types={"a": "text"})
    assert plan(column, known=chosen).statements[0].endswith('"a" text')


def test_comments_come_along() -> None:
    source = msgspec.structs.replace(numbered(ID, postgres_column("a", "text")), comments={"a": "it's"})
    _, comment = plan_alteration(source, numbered(ID), {"a": ""}, POSTGRESQL).statements
    assert comment == 'COMMENT ON COLUMN "shop"."t"."a" IS \'it\'\'s\''
    (statement,) = plan_alteration(source, my_numbered(MY_ID), {"a": ""}, MARIADB).statements
    assert statement.endswith(r"COMMENT 'it\'s'")


# --- columns that were dropped at the sink, and columns that were renamed at the source ---

WITH_A = KnownColumns(applied=("a", "id"))


@pytest.mark.parametrize(
    ("sink", "known"), [(numbered(ID), POSTGRESQL), (my_numbered(MY_ID), MARIADB)], ids=["postgresql", "mariadb"]
)
def test_a_column_that_was_dropped_at_the_sink_is_not_taken_for_a_new_one(
    sink: PostgresDefinition | MysqlDefinition, known: AlterationContext
) -> None:
    spelled = "a" if known is POSTGRESQL else "A"
    found = plan(postgres_column(spelled, "integer"), sink=sink, known=msgspec.structs.replace(known, kept=WITH_A))
    assert found.statements == ()
    assert found.lost == (
        f"column {spelled} of table shop.t was dropped at the sink, after rows had been written with it",
    )


def test_a_dropped_column_is_added_again_where_all_rows_are_copied_next_or_none_is_there() -> None:
    column = postgres_column("a", "uuid", default="gen_random_uuid()", is_nullable=False)
    for known in (
        msgspec.structs.replace(POSTGRESQL, kept=WITH_A, is_refilled=True),
        msgspec.structs.replace(POSTGRESQL, kept=WITH_A, is_empty=True),
    ):
        (statement,) = plan(column, known=known).statements
        assert statement.endswith('ADD COLUMN IF NOT EXISTS "a" uuid')


def test_other_columns_than_those_that_were_dropped_are_still_added() -> None:
    known = msgspec.structs.replace(POSTGRESQL, kept=WITH_A)
    assert plan(postgres_column("b", "integer"), known=known).columns == ("b",)


FORMERLY = KnownColumns(applied=("id", "old"), numbers=ColumnNumbers("16384", {"id": 1, "old": 2}))


@pytest.mark.parametrize(
    ("sink", "known", "statement"),
    [
        (
            numbered(ID, postgres_column("old", "text")),
            POSTGRESQL,
            'ALTER TABLE "shop"."t" RENAME COLUMN "old" TO "new"',
        ),
        (
            my_numbered(MY_ID, mysql_column("old", "text")),
            MARIADB,
            "ALTER TABLE `shop`.`t` RENAME COLUMN `old` TO `new`",
        ),
    ],
    ids=["postgresql", "mariadb"],
)
def test_a_column_that_the_catalogue_proves_to_be_renamed_is_renamed(
    sink: PostgresDefinition | MysqlDefinition, known: AlterationContext, statement: str
) -> None:
    now = ColumnNumbers("16384", {"id": 1, "new": 2, "more": 3})
    known = msgspec.structs.replace(known, kept=FORMERLY, numbers=now)
    found = plan(postgres_column("new", "text"), sink=sink, known=known)
    assert (found.statements, found.columns) == ((statement,), ("new",))
    both = plan(postgres_column("new", "text"), postgres_column("more", "date"), sink=sink, known=known)
    assert both.columns == ("new", "more")
    assert [text.partition(" COLUMN")[0].rpartition(" ")[2] for text in both.statements] == ["RENAME", "ADD"]


@pytest.mark.parametrize(
    "now",
    [
        ColumnNumbers("99999", {"id": 1, "new": 2}),
        ColumnNumbers("16384", {"id": 1, "new": 3}),
        ColumnNumbers("16384", {"id": 1, "new": 2, "old": 4}),
        None,
    ],
    ids=["another table", "another column", "the old name is another column by now", "no numbers"],
)
def test_without_proof_a_column_is_not_renamed(now: ColumnNumbers | None) -> None:
    known = msgspec.structs.replace(POSTGRESQL, kept=FORMERLY, numbers=now)
    found = plan(postgres_column("new", "text"), sink=numbered(ID, postgres_column("old", "text")), known=known)
    assert found.statements == ()
    assert "it may be the new name of old" in found.refusals[0]


def test_a_masked_column_is_not_renamed_to_one_that_is_not_masked() -> None:
    now = ColumnNumbers("16384", {"id": 1, "new": 2})
    known = msgspec.structs.replace(POSTGRESQL, kept=FORMERLY, numbers=now, masked=frozenset({"old"}))
    sink = numbered(ID, postgres_column("old", "text"))
    found = plan(postgres_column("new", "text"), sink=sink, known=known)
    assert (found.statements, len(found.refusals)) == ((), 1)
    assert "column old of table shop.t was not renamed to new: the column is masked under its" in found.refusals[0]
    assert "add its new name to columns.mask" in found.refusals[0]
    assert 'RENAME COLUMN "old" TO "new"' in found.refusals[0]
    unproven = plan(postgres_column("new", "text"), sink=sink, known=msgspec.structs.replace(known, numbers=None))
    assert "If it was renamed, the column is masked under its former name only, so add" in unproven.refusals[0]


def excluding(before: ColumnNumbers, now: ColumnNumbers | None, *exclude: str, **kept: Any) -> AlterationContext:
    known = KnownColumns(applied=("id",), **kept).with_numbers(before)
    return msgspec.structs.replace(POSTGRESQL, kept=known, numbers=now, exclude=exclude)


BEFORE = ColumnNumbers("16384", {"id": 1}, {"ssn": 2})


@pytest.mark.parametrize(
    "now",
    [
        ColumnNumbers("16384", {"id": 1, "number": 2}),
        ColumnNumbers("16384", {"id": 1, "number": 2}, {"ssn": 3}),
    ],
    ids=["renamed", "renamed, and another column has its name"],
)
def test_an_excluded_column_does_not_arrive_by_its_new_name(now: ColumnNumbers) -> None:
    known = excluding(BEFORE, now, "ssn")
    for kept in (known.kept, known.kept.with_numbers(now), known.kept.in_later_incarnation()):
        found = plan(postgres_column("number", "text"), known=msgspec.structs.replace(known, kept=kept))
        assert (found.statements, len(found.refusals)) == ((), 1)
        assert "it is the new name of ssn, which columns.exclude leaves out. Add number to" in found.refusals[0]


def test_a_column_that_was_applied_before_it_was_excluded_is_not_renamed_at_the_sink() -> None:
    now = ColumnNumbers("16384", {"id": 1, "number": 2})
    known = excluding(BEFORE, now, "ssn", numbers=ColumnNumbers("16384", {"id": 1, "ssn": 2}))
    found = plan(postgres_column("number", "text"), sink=numbered(ID, postgres_column("ssn", "text")), known=known)
    assert (found.statements, len(found.refusals)) == ((), 1)
    assert "it is the new name of ssn" in found.refusals[0]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (ColumnNumbers("", {}, {"ssn": 0}), ColumnNumbers("", {})),
        (BEFORE, ColumnNumbers("99999", {"id": 1, "number": 2})),
    ],
    ids=["no numbers", "the source's table was made again"],
)
def test_where_nothing_proves_it_each_new_column_may_be_an_excluded_one_that_is_gone(
    before: ColumnNumbers, now: ColumnNumbers
) -> None:
    known = excluding(before, now, "ssn")
    for kept in (known.kept, known.kept.with_numbers(now)):
        found = plan(postgres_column("number", "text"), known=msgspec.structs.replace(known, kept=kept))
        assert (found.statements, len(found.refusals)) == ((), 1)
        assert "it may be the new name of ssn, which columns.exclude leaves out and the source's" in found.refusals[0]


@pytest.mark.parametrize(
    ("before", "now", "exclude"),
    [
        (BEFORE, ColumnNumbers("16384", {"id": 1, "new": 3}), ("ssn",)),
        (BEFORE, ColumnNumbers("16384", {"id": 1, "new": 2}), ()),
        (BEFORE, ColumnNumbers("99999", {"id": 1, "new": 3}, {"ssn": 2}), ("ssn",)),
        (ColumnNumbers("", {}, {"ssn": 0}), ColumnNumbers("", {}, {"ssn": 0}), ("ssn",)),
        (ColumnNumbers("", {}), ColumnNumbers("", {}), ("ssn",)),
    ],
    ids=["another column", "not left out any more", "still there in a table made again", "still there", "never there"],
)
def test_other_columns_of_a_feed_that_leaves_some_out_are_added(
    before: ColumnNumbers, now: ColumnNumbers, exclude: tuple[str, ...]
) -> None:
    known = excluding(before, now, *exclude)
    for kept in (known.kept, known.kept.with_numbers(now)):
        found = plan(postgres_column("new", "text"), known=msgspec.structs.replace(known, kept=kept))
        assert found.columns == ("new",)
