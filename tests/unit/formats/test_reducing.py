"""The last word per key has the same outcome as all the words, one after the other."""

from collections.abc import Callable, Sequence
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.formats.change import ABSENT, CONNECTOR, Change, Operation, Row
from headgate.formats.reducing import (
    OrphanRowError,
    Reduced,
    UnusableKeyError,
    WrongKeyError,
    alike_runs,
    reduce_changes,
)

Table = dict[int, Row]


def put(offset: int, row_id: int, **columns: object) -> Change:
    return Change(0, offset, Operation.UPSERT, {"id": row_id}, {"id": row_id, **columns}, None, 0)


def drop(offset: int, row_id: int) -> Change:
    return Change(0, offset, Operation.DELETE, {"id": row_id}, None, None, 0)


def truncate(offset: int) -> Change:
    return Change(0, offset, Operation.TRUNCATE, {}, None, None, 0)


def as_rows(reduced: Reduced) -> tuple[list[int], list[Row]]:
    return [change.key["id"] for change in reduced.deletes], [change.row for change in reduced.upserts]


MILLIS, MICROS = {"id": "io.debezium.time.Timestamp"}, {"id": "io.debezium.time.MicroTimestamp"}


def written(offset: int, row_id: object, semantics: dict[str, str] | None = None) -> Change:
    return Change(0, offset, Operation.UPSERT, {"id": row_id}, {"id": row_id}, None, 0, semantics)


@pytest.mark.parametrize(
    ("changes", "lengths"),
    [
        ([], [0]),
        ([written(0, 1), written(1, 2), drop(2, 1)], [3]),
        ([written(0, 1), written(1, Decimal("1.0")), written(2, 1.0), written(3, True)], [4]),
        ([written(0, "1"), written(1, "2"), written(2, 1)], [2, 1]),
        ([written(0, 1), written(1, "1"), written(2, 2), written(3, "2")], [1, 1, 1, 1]),
        ([written(0, {"scale": 0, "value": "AQ=="}), written(1, "1")], [1, 1]),
        ([written(0, 5, MILLIS), written(1, 6, dict(MILLIS)), written(2, 5, MICROS)], [2, 1]),
        ([written(0, 5, MILLIS), written(1, 6, MILLIS | {"more": "string"})], [2]),
        ([written(0, 5), written(1, 5, MICROS)], [1, 1]),
        ([truncate(0), written(1, 5), truncate(2), written(3, 6), written(4, "6")], [4, 1]),
    ],
)
def test_a_batch_is_divided_where_keys_are_written_otherwise(changes: list[Change], lengths: list[int]) -> None:
    """Equal numbers of two units are two rows, and a text and a number may be one."""
    runs = alike_runs(changes, ["id"])
    assert [change for run in runs for change in run] == changes
    assert list(map(len, runs)) == lengths


def test_keys_that_are_written_in_two_ways_are_reduced_by_what_they_identify() -> None:
    changes = [written(0, "1"), written(1, 1), drop(2, 2), written(3, "2")]
    reduced = reduce_changes(changes, ["id"], lambda change: int(str(change.key["id"])))
    assert [change.offset for change in reduced.upserts] == [1, 3]
    assert [change.offset for change in reduced.deletes] == [3], "the row was made again"


def test_the_last_row_of_a_key_is_what_counts() -> None:
    changes = [put(0, 1, v="a"), put(1, 2, v="b"), put(2, 1, v="c")]
    assert as_rows(reduce_changes(changes, ["id"])) == ([], [{"id": 2, "v": "b"}, {"id": 1, "v": "c"}])


def test_an_absent_column_takes_the_value_of_the_batch() -> None:
    changes = [put(0, 1, v="a", big="B"), put(1, 1, v="b", big=ABSENT), put(2, 1, v=ABSENT, big=ABSENT)]
    assert as_rows(reduce_changes(changes, ["id"])) == ([], [{"id": 1, "v": "b", "big": "B"}])


def test_what_is_absent_throughout_stays_absent() -> None:
    changes = [put(0, 1, v="a", big=ABSENT, w=ABSENT), put(1, 1, v=ABSENT, big=ABSENT, w=5)]
    assert as_rows(reduce_changes(changes, ["id"])) == ([], [{"id": 1, "v": "a", "big": ABSENT, "w": 5}])


def test_a_column_that_a_later_row_lacks_is_kept() -> None:
    changes = [put(0, 1, v="a", dropped=1), put(1, 1, v="b", added=2)]
    assert as_rows(reduce_changes(changes, ["id"])) == ([], [{"id": 1, "v": "b", "added": 2, "dropped": 1}])


def test_a_column_added_since_and_left_alone_does_not_make_a_whole_row_partial() -> None:
    changes = [put(0, 1, v="a"), put(1, 1, v="b", added=ABSENT)]
    assert as_rows(reduce_changes(changes, ["id"])) == ([], [{"id": 1, "v": "b"}])


def test_values_keep_their_own_meaning() -> None:
    def meaning(offset: int, unit: str, **row: object) -> Change:
        return Change(
            0, offset, Operation.UPSERT, {"id": 1}, {"id": 1, **row}, None, 0, {"id": "int32", "at": unit, "v": "int32"}
        )

    changes = [meaning(0, "ms", at=5, v=1), meaning(1, "us", at=ABSENT, v=2)]
    (change,) = reduce_changes(changes, ["id"]).upserts
    assert change.row == {"id": 1, "at": 5, "v": 2}
    assert change.semantics == {"id": "int32", "at": "ms", "v": "int32"}
    assert change.offset == 1


def test_a_value_without_meaning_is_kept_beside_one_that_has_it() -> None:
    def event(offset: int, semantics: dict[str, str], value: object) -> Change:
        return Change(0, offset, Operation.UPSERT, {"id": 1}, {"id": 1, "v": value}, None, 0, semantics)

    known = {"id": "int32", "v": "int32", CONNECTOR: "mysql"}
    changes = [event(0, {CONNECTOR: "mysql"}, 5), event(1, known, ABSENT)]
    (change,) = reduce_changes(changes, ["id"]).upserts
    assert (change.row, change.semantics) == ({"id": 1, "v": 5}, known)


def test_deleted_and_made_again_is_deleted_first() -> None:
    changes = [put(0, 1, v="a"), drop(1, 1), put(2, 1, v="b"), put(3, 1, v=ABSENT)]
    assert as_rows(reduce_changes(changes, ["id"])) == ([1], [{"id": 1, "v": "b"}])


def test_made_and_deleted_is_a_delete() -> None:
    assert as_rows(reduce_changes([put(0, 1, v="a"), drop(1, 1)], ["id"])) == ([1], [])
    changes = [drop(0, 1), put(1, 1, v="a"), drop(2, 1), drop(3, 1)]
    assert as_rows(reduce_changes(changes, ["id"])) == ([1], [])


def test_truncate_forgets_everything_before_it() -> None:
    reduced = reduce_changes([put(0, 1, v="a"), drop(1, 2), truncate(2), put(3, 3, v="c")], ["id"])
    assert reduced.truncate
    assert as_rows(reduced) == ([], [{"id": 3, "v": "c"}])


@pytest.mark.parametrize("wipe", [drop(0, 1), truncate(0)], ids=["delete", "truncate"])
def test_a_partial_row_after_its_row_is_gone_is_an_error(wipe: Change) -> None:
    with pytest.raises(OrphanRowError, match="big are absent") as refused:
        reduce_changes([wipe, put(1, 1, v="a", big=ABSENT)], ["id"])
    assert refused.value.change.offset == 1


@pytest.mark.parametrize("wipe", [drop(0, 1), truncate(0)], ids=["delete", "truncate"])
@pytest.mark.parametrize("later", [drop(2, 1), truncate(2), put(2, 1, v="b", big="whole")], ids=["d", "t", "w"])
def test_a_partial_row_that_comes_again_does_no_harm_where_the_batch_says_what_became_of_it(
    wipe: Change, later: Change
) -> None:
    """A connector that crashed sends its last changes again: the update, then the delete that is applied already."""
    again = [wipe, put(1, 1, v="a", big=ABSENT), later]
    reduced = reduce_changes(again, ["id"])
    rows = [change.row for change in reduced.upserts]
    assert rows == ([{"id": 1, "v": "b", "big": "whole"}] if later.operation is Operation.UPSERT else [])
    assert reduce_changes([*again, put(3, 2, v="a")], ["id"]).upserts[-1].key == {"id": 2}


@pytest.mark.parametrize("columns", [["id", "part"], ["other"], ["part"]])
def test_a_key_of_other_columns_is_an_error(columns: list[str]) -> None:
    with pytest.raises(WrongKeyError, match=r"key columns \(id\)"):
        reduce_changes([put(0, 1)], columns)
    both = Change(0, 0, Operation.DELETE, {"id": 1, "part": 2}, None, None, 0)
    with pytest.raises(WrongKeyError, match=r"\(id, part\)"):
        reduce_changes([both], ["id"])


def test_keys_of_several_columns_and_of_lists() -> None:
    def change(offset: int, **key: object) -> Change:
        return Change(0, offset, Operation.DELETE, key, None, None, 0)

    changes = [
        change(0, a=1, b=2),
        change(1, b=1, a=2),
        change(2, b=2, a=1),
        change(3, a=[1], b=2),
        change(4, a=[1], b=2),
    ]
    assert [c.offset for c in reduce_changes(changes, ["a", "b"]).deletes] == [1, 2, 4]


@pytest.mark.parametrize(
    ("key", "same", "other"),
    [
        pytest.param([1, 2], [1, 2], [2, 1], id="array"),
        pytest.param([[1], None], [[1], None], [[1]], id="nested array"),
        pytest.param(
            {"scale": 1, "value": "Cg=="}, {"value": "Cg==", "scale": 1}, {"scale": 2, "value": "Cg=="}, id="numeric"
        ),
        pytest.param({"x": 1.5, "y": [2]}, {"y": [2], "x": 1.5}, {"x": 1.5, "y": 2}, id="object with a list"),
        pytest.param([], [], {}, id="empty"),
    ],
)
@pytest.mark.parametrize("columns", [["id"], ["id", "part"]])
def test_a_key_that_is_a_list_or_an_object_is_compared_by_value(
    key: object, same: object, other: object, columns: list[str]
) -> None:
    def row(offset: int, value: object, operation: Operation = Operation.UPSERT) -> Change:
        named = {"id": value, "part": 1} if "part" in columns else {"id": value}
        kept = {**named, "v": offset} if operation is Operation.UPSERT else None
        return Change(0, offset, operation, named, kept, None, 0)

    assert [c.offset for c in reduce_changes([row(0, key)], columns).upserts] == [0]
    reduced = reduce_changes([row(0, key), row(1, other), row(2, same)], columns)
    assert [change.offset for change in reduced.upserts] == [1, 2]
    deleted = reduce_changes([row(0, key), row(1, other), row(2, same, Operation.DELETE)], columns)
    assert ([c.offset for c in deleted.deletes], [c.offset for c in deleted.upserts]) == ([2], [1])


def test_a_key_nested_too_deeply_is_an_error_of_its_change() -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UnusableKeyError, match=r"\(id\)") as refused:
        reduce_changes([put(0, 1), Change(0, 1, Operation.DELETE, {"id": deep}, None, None, 0)], ["id"])
    assert refused.value.change.offset == 1


def _apply_one(table: Table, change: Change) -> None:
    if change.operation is Operation.TRUNCATE:
        table.clear()
    elif change.operation is Operation.DELETE:
        table.pop(change.key["id"], None)
    else:
        present = {column: value for column, value in change.row.items() if value is not ABSENT}
        if len(present) < len(change.row) and change.key["id"] not in table:
            raise OrphanRowError(change, ["?"])
        table[change.key["id"]] = {**table.get(change.key["id"], {}), **present}


def _apply_reduced(table: Table, reduced: Reduced) -> None:
    if reduced.truncate:
        table.clear()
    for change in reduced.deletes:
        table.pop(change.key["id"], None)
    for change in reduced.upserts:
        _apply_one(table, change)


def _changes() -> st.SearchStrategy[list[Change]]:
    values = st.sampled_from(["x", "y", None, ABSENT])
    rows = st.dictionaries(st.sampled_from(["v", "w", "big"]), values)
    ids = st.integers(1, 3)
    one = st.one_of(
        st.builds(lambda i, row: ("put", i, row), ids, rows),
        st.builds(lambda i: ("drop", i, {}), ids),
        st.just(("truncate", 0, {})),
    )

    def build(parts: Sequence[tuple[str, int, Row]]) -> list[Change]:
        makers = {
            "drop": lambda o, i, _: drop(o, i),
            "truncate": lambda o, *_: truncate(o),
            "put": lambda o, i, r: put(o, i, **r),
        }
        return [makers[kind](offset, row_id, row) for offset, (kind, row_id, row) in enumerate(parts)]

    return st.lists(one, max_size=12).map(build)


@given(_changes(), st.integers(0, 3))
def test_reduced_or_one_by_one_the_table_is_the_same(changes: list[Change], rows_before: int) -> None:
    before: Table = {
        i: {"id": i, "v": "old", "w": "old", "big": "old", "extra": "old"} for i in range(1, rows_before + 1)
    }
    expected = {i: dict(row) for i, row in before.items()}
    try:
        for change in changes:
            _apply_one(expected, change)
    except OrphanRowError:
        expected = None
    try:
        _apply_reduced(before, reduce_changes(changes, ["id"]))
    except OrphanRowError:
        assert expected is None
        return
    if expected is not None:
        assert before == expected


def _outcome(changes: list[Change], identify: Callable[[Change], object] | None) -> Reduced | str:
    try:
        return reduce_changes(changes, ["id"], identify)
    except OrphanRowError as error:
        return str(error)


@given(_changes(), st.booleans())
@example([put(0, 1), drop(1, 1), put(2, 1), put(3, 1)], True)
def test_a_batch_reduced_at_once_comes_to_the_same_as_change_by_change(changes: list[Change], are_whole: bool) -> None:
    if are_whole:
        changes = [
            change if change.row is None else put(change.offset, change.row["id"], v="x", w=change.offset, big=None)
            for change in changes
        ]
    assert _outcome(changes, None) == _outcome(changes, lambda change: change.key["id"])
