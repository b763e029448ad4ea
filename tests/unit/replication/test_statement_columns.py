"""Columns of MySQL and MariaDB tables are identified by the statements that altered them."""

from collections.abc import Mapping

import pytest

from headgate.formats.schema_changes import TableChange
from headgate.replication.statement_columns import first_numbers, numbers_after

BEFORE = {"id": 1, "a": 2, "b": 3}


def altered(statement: str, *columns: str, before: Mapping[str, int] = BEFORE, offset: int = 7) -> dict[str, int]:
    numbers, unread = numbers_after(before, [(offset, TableChange("d", "t", columns, statement))])
    assert not unread
    assert tuple(numbers) == columns
    return numbers


@pytest.mark.parametrize(
    ("statement", "columns", "kept"),
    [
        ("ALTER TABLE t DROP COLUMN a, ADD COLUMN a int", ("id", "b", "a"), {"id": 1, "b": 3}),
        ("ALTER TABLE d.t DROP a, ADD A text AFTER id", ("id", "A", "b"), {"id": 1, "b": 3}),
        ("alter table `t` rename column a to b, rename column b to a", ("id", "b", "a"), {"id": 1, "b": 2, "a": 3}),
        ("ALTER TABLE t CHANGE a b int, CHANGE b a text", ("id", "b", "a"), {"id": 1, "b": 2, "a": 3}),
        ("/* app */ -- it\n ALTER TABLE t DROP a, CHANGE b a int", ("id", "a"), {"id": 1, "a": 3}),
        ("ALTER TABLE t ADD c int FIRST, ADD INDEX (a)", ("c", "id", "a", "b"), BEFORE),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS b int", ("id", "a", "b"), BEFORE),
        ("ALTER TABLE t MODIFY b bigint AFTER id", ("id", "b", "a"), BEFORE),
        ("ALTER TABLE t FORCE", ("id", "a", "b"), BEFORE),
        ("CREATE TABLE t (id int, a int, b int)", ("id", "a", "b"), BEFORE),
        ("RENAME TABLE u TO t", ("id", "b", "c"), {"id": 1, "b": 3}),
        ("-- it", ("id", "a", "b"), BEFORE),
        ("", ("id", "a", "b"), BEFORE),
    ],
)
def test_a_column_keeps_its_number_under_every_name(
    statement: str, columns: tuple[str, ...], kept: dict[str, int]
) -> None:
    numbers = altered(statement, *columns)
    assert {name: number for name, number in numbers.items() if number in BEFORE.values()} == kept


def test_a_number_is_given_once() -> None:
    first = first_numbers(["id", "a"])
    assert len(set(first.values())) == 2
    numbers = altered("CREATE TABLE t (id int, a int)", "id", "a", before={}, offset=0)
    seen = {*first.values(), *numbers.values()}
    for offset in range(1, 4):
        numbers = altered("ALTER TABLE t DROP a, ADD a int, ADD c int", "id", "a", "c", before=numbers, offset=offset)
        del numbers["c"]
        assert numbers["a"] not in seen
        seen.add(numbers["a"])


def test_a_column_that_the_catalogue_has_shown_before_its_statement_was_read_is_not_another_one() -> None:
    assert altered("ALTER TABLE t ADD COLUMN b int", "id", "a", "b") == BEFORE


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("ALTER TABLE t /*!50100 DROP a, */ ADD c int", "executes it"),
        ("ALTER TABLE t DROP COLUMN gone", "column gone does not exist"),
        ("/*!50100 ALTER TABLE t DROP a, ADD c int */", "executes it"),
        ("SET STATEMENT max_statement_time=1 FOR ALTER TABLE t DROP a, ADD c int", "'SET'"),
    ],
)
def test_a_statement_that_is_not_understood_leaves_the_names_and_is_reported(statement: str, why: str) -> None:
    numbers, unread = numbers_after(BEFORE, [(7, TableChange("d", "t", ("id", "b", "c"), statement))])
    assert {name: numbers[name] for name in ("id", "b")} == {"id": 1, "b": 3}
    ((offset, reason),) = unread
    assert offset == 7
    assert why in reason
