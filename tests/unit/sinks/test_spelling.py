"""Columns in another case, at a database that does not tell cases apart, and under a former name."""

import msgspec

from headgate.formats.change import Change, Operation, Row
from headgate.sinks.known_columns import ColumnNumbers, KnownColumns
from headgate.sinks.relational.spelling import respelled, with_present_names
from headgate.sinks.relational.table import RelationalTable

TABLE: RelationalTable[str] = RelationalTable(
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


NUMBERS = ColumnNumbers("16385", {"id": 1, "old": 2, "gone": 3})


def known(*names: tuple[str, int], table: str = "16385") -> ColumnNumbers:
    return ColumnNumbers(table, dict(names))


def test_former_names_are_known_as_long_as_the_source_has_the_column() -> None:
    kept = KnownColumns(numbers=NUMBERS)
    assert kept.present_names(known(("id", 1), ("new", 2))) == {"old": "new"}
    kept = kept.with_numbers(known(("id", 1), ("new", 2)))
    assert kept.present_names(known(("id", 1), ("newer", 2))) == {"old": "newer", "new": "newer"}
    assert sorted(kept.former_names("newer", known(("id", 1), ("newer", 2)))) == ["new", "old"]
    assert kept.present_names(known(("id", 1), ("old", 4))) == {}, "another column has the name"
    assert kept.present_names(known(("id", 1), ("new", 2), table="2")) == {}
    assert KnownColumns().present_names(NUMBERS) == {}


def test_a_former_name_holds_up_to_where_the_log_was_read() -> None:
    kept = KnownColumns(former={"old": "amount"}).with_former({"before": "Amount"}, {0: 5}).with_former(
        {"before": "Amount"}, {1: 3}
    )  # fmt: skip
    assert kept.until == {0: 5, 1: 3}
    table = msgspec.structs.replace(TABLE, columns={"id": "int", "Amount": "int"}, generated=frozenset())

    def named(partition: int, offset: int, row: Row) -> Row | None:
        meaning = {"before": "int32"}
        change = Change(partition, offset, Operation.UPSERT, {"id": 1}, row, None, 0, meaning)
        found = with_present_names([change], table.columns, kept.former, kept.until)
        if found is None:
            return None
        assert found[0].semantics == {"Amount": "int32"}
        return found[0].row

    assert named(0, 4, {"id": 1, "before": 7}) == {"id": 1, "Amount": 7}
    assert named(1, 2, {"id": 1, "before": 7}) == {"id": 1, "Amount": 7}
    assert named(0, 5, {"id": 1, "before": 7}) is None
    assert named(2, 0, {"id": 1, "before": 7}) is None
    assert named(0, 4, {"id": 1, "before": 7, "Amount": 8}) is None
    assert named(0, 4, {"id": 1, "Amount": 8}) is None
    table = msgspec.structs.replace(table, columns={"id": "int", "Amount": "int", "before": "int"})
    assert named(0, 4, {"id": 1, "before": 7}) is None
