"""Reading a statement: its verb, its table, where the name stands; and what no migration can be made of."""

import pytest

from headgate.migration.strategies.statement import DialectName, StatementError, parse_statement


@pytest.mark.parametrize(
    ("dialect", "text", "schema", "table", "on_other"),
    [
        ("mysql", "ALTER TABLE t ADD c int;", None, "t", "ALTER TABLE NEW ADD c int"),
        ("mysql", "alter table `my t`.`a``b` add c int", "my t", "a`b", "alter table NEW add c int"),
        ("mysql", "ALTER ONLINE TABLE t /*x*/ FORCE", None, "t", "ALTER ONLINE TABLE NEW /*x*/ FORCE"),
        ("postgres", 'ALTER TABLE ONLY "S"."T" ADD c int', "S", "T", "ALTER TABLE ONLY NEW ADD c int"),
        ("postgres", "CREATE TABLE IF NOT EXISTS s.t (t int)", "s", "t", "CREATE TABLE IF NOT EXISTS NEW (t int)"),
        ("postgres", "DROP TABLE IF EXISTS t CASCADE", None, "t", "DROP TABLE IF EXISTS NEW CASCADE"),
        ("mysql", "ALTER TABLE t ADD c text DEFAULT ';t'", None, "t", "ALTER TABLE NEW ADD c text DEFAULT ';t'"),
    ],
)  # fmt: skip
def test_the_same_text_on_another_table(
    dialect: DialectName, text: str, schema: str | None, table: str, on_other: str
) -> None:
    statement = parse_statement(text, dialect)
    assert (statement.schema, statement.table, statement.on("NEW")) == (schema, table, on_other)


def test_conditions() -> None:
    assert parse_statement("DROP TABLE IF EXISTS t", "mysql").if_exists
    created = parse_statement("CREATE TABLE IF NOT EXISTS t (a int)", "mysql")
    assert created.if_not_exists
    assert not created.if_exists


@pytest.mark.parametrize(
    ("dialect", "text", "renamed"),
    [
        ("mysql", "ALTER TABLE t CHANGE a b int, CHANGE COLUMN `c` `d` int, CHANGE e e bigint", {"a": "b", "c": "d"}),
        ("mysql", "ALTER TABLE t RENAME COLUMN a TO b, RENAME INDEX x TO y", {"a": "b"}),
        ("postgres", 'ALTER TABLE t RENAME a TO "B"', {"a": "B"}),
        ("mysql", "ALTER TABLE t ADD `change` int, ADD x int DEFAULT 1", {}),
    ],
)
def test_renamed_columns(dialect: DialectName, text: str, renamed: dict[str, str]) -> None:
    assert parse_statement(text, dialect).renamed == renamed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nothing"),
        ("TRUNCATE TABLE t", "TRUNCATE"),
        ("CREATE INDEX i ON t (a)", "only tables"),
        ("CREATE TEMPORARY TABLE t (a int)", "temporary"),
        ("ALTER TABLE t RENAME TO u", "RENAME of a table"),
        ("ALTER TABLE t ADD c int; DROP TABLE t", "one statement"),
        ("DROP TABLE a, b", "one migration for each"),
        ("ALTER TABLE t", "without a change"),
        ("ALTER TABLE", "names no table"),
        ("ALTER TABLE a.b.c ADD d int", "schema.table"),
        ("ALTER TABLE t ADD c varchar(3) DEFAULT 'x", "does not parse"),
    ],
)
def test_what_is_no_migration_is_refused_with_what_to_do(text: str, why: str) -> None:
    with pytest.raises(StatementError, match=why):
        parse_statement(text, "mysql")


def test_names_of_constraints_that_are_dropped_are_put_into_the_copy_s() -> None:
    text = """ALTER TABLE items DROP CONSTRAINT IF EXISTS "a b" CASCADE, ADD c int, DROP constraint items_v_key"""
    statement = parse_statement(text, "postgres")
    assert [name for name, _, _ in statement.rules] == ["a b", "items_v_key"]
    assert statement.on("copy", {"a b": '"x"', "items_v_key": '"y"'}) == (
        'ALTER TABLE copy DROP CONSTRAINT IF EXISTS "x" CASCADE, ADD c int, DROP constraint "y"'
    )
    assert statement.on("copy", {"other": "z"}) == text.replace("items ", "copy ", 1)
