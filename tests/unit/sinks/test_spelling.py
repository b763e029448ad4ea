"""Columns in another case, at a database that does not tell cases apart."""

from headgate.formats.change import Change, Operation
from headgate.sinks.relational.spelling import respelled
from headgate.sinks.relational.table import Table

TABLE: Table[str] = Table(
    "d.t",
    "d",
    "t",
    "`d`.`t`",
    {"id": "int", "Amount": "int", "Ärger": "int"},
    frozenset({"sum"}),
    ("id",),
    (),
    False,
    "1",
)


def change(key: dict[str, object], row: dict[str, object] | None, meaning: dict[str, str] | None = None) -> Change:
    return Change(0, 1, Operation.UPSERT, key, row, None, 0, meaning)


def test_what_is_spelled_like_the_table_is_left_alone() -> None:
    assert respelled([change({"id": 1}, {"id": 1, "Amount": 2, "other": 3})], TABLE) is None


def test_keys_rows_and_meanings_get_the_table_s_spelling() -> None:
    meaning = {"ID": "int32", "amount": "int16", "connector": "mysql"}
    changes = [change({"ID": n}, {"ID": n, "amount": n, "SUM": n, "ärger": n}, meaning) for n in (1, 2)]
    found = respelled(changes, TABLE)
    assert found is not None
    assert [each.key for each in found] == [{"id": 1}, {"id": 2}]
    assert found[0].row == {"id": 1, "Amount": 1, "sum": 1, "Ärger": 1}
    assert found[0].semantics == {"id": "int32", "Amount": "int16", "connector": "mysql"}
    assert found[0].semantics is found[1].semantics


def test_an_event_with_a_column_in_two_spellings_keeps_both() -> None:
    assert respelled([change({"id": 1}, {"id": 1, "amount": 2, "AMOUNT": 3})], TABLE) is None
    assert respelled([change({"id": 1}, {"id": 1, "amount": 2, "Amount": 3})], TABLE) is None


def test_a_delete_has_no_row() -> None:
    found = respelled([Change(0, 1, Operation.DELETE, {"ID": 1}, None, None, 0)], TABLE)
    assert found is not None
    assert (found[0].key, found[0].row) == ({"id": 1}, None)
