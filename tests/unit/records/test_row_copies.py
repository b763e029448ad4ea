"""What names rows to copy is read back as it was written, and what names none is refused in words."""

import pytest

from headgate.cli.row_copies import portions
from headgate.records.row_copies import (
    KEY_BYTES_MAX,
    KEYS_MAX,
    RowCopy,
    is_by_ranges,
    is_whole,
    read_row_copy,
    shown_row_copy,
)


def test_rows_are_read_as_they_were_written() -> None:
    rows = RowCopy(keys=(("1", "ä"), ("2", "")), columns=("a", "b"), delete=True)
    assert read_row_copy(shown_row_copy(rows)) == rows


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "not valid"),
        ('{"keys": []}', "no rows"),
        ('{"keys": [["1"]], "among": "x"}', "not valid"),
        ('{"keys": [["1"]], "where": "x"}', "not by both"),
        ('{"keys": null, "where": "x", "delete": true}', "Leave out the condition"),
        ('{"keys": [["1", "2"]], "columns": ["a"]}', "must have 1 values"),
        ('{"keys": null, "columns": ["a"]}', "Name no columns"),
        ('{"keys": null, "rows_per_second": 0}', "at least 1"),
        ('{"keys": [["1"]], "rows_per_second": 5}', "for a copy of a whole table"),
        (shown_row_copy(RowCopy(keys=(("1",),) * (KEYS_MAX + 1))), "more than one request may name"),
    ],
)
def test_what_names_no_rows_is_refused(text: str | None, words: str) -> None:
    found = read_row_copy(text)
    assert isinstance(found, str)
    assert words in found


def test_more_rows_than_a_request_may_name_are_several_requests() -> None:
    keys = [(str(number),) for number in range(2 * KEYS_MAX + 1)]
    found = list(portions(keys))
    assert [len(portion) for portion in found] == [KEYS_MAX, KEYS_MAX, 1]
    assert [key for portion in found for key in portion] == keys
    long = ("x" * (KEY_BYTES_MAX // 2 + 1),)
    assert list(portions([long, long])) == [(long,), (long,)]
    assert list(portions([])) == []


def test_a_whole_table_is_named_by_no_keys() -> None:
    rows = RowCopy(keys=None, delete=True, rows_per_second=5)
    assert read_row_copy(shown_row_copy(rows)) == rows
    assert is_whole(shown_row_copy(rows))
    assert not is_whole(shown_row_copy(RowCopy(keys=(("1",),))))
    assert not is_whole("{}")


def test_a_copy_with_a_condition_is_by_ranges_and_not_of_the_whole_table() -> None:
    rows = RowCopy(keys=None, where="x > 1")
    text = shown_row_copy(rows)
    assert read_row_copy(text) == rows
    assert (is_by_ranges(text), is_whole(text)) == (True, False)
    assert "where" not in shown_row_copy(RowCopy(keys=None)), "an older agent does not know the field"
