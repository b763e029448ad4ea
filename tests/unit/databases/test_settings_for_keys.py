"""Whether PostgreSQL's planner is told to look some keys up by an index, or left alone."""

import pytest

from headgate.databases.postgresql.key_ranges import BY_KEYS, Index, for_keys

KEY = ("a", "b")


@pytest.mark.parametrize(
    ("columns", "is_unique", "known", "expected"),
    [
        ("ab", True, "ab", True),
        ("ba", False, "ab", True),
        ("abc", True, "ab", True),  # the sink's key is the first part of the source's
        ("a", True, "ab", True),
        ("b", True, "b", True),
        ("sab", True, "abs", True),  # of a slice, whose column is s
        ("a", False, "ab", False),  # each key may read as many rows as have its first column
        ("ab", True, "a", False),
        ("ab", True, "b", False),
        ("acb", True, "ab", False),
        ("b", False, "b", False),
        ("s", False, "s", False),
        ("ab", True, "", False),
    ],
)
def test_keys_are_looked_up_by_an_index_that_finds_no_other_rows(
    columns: str, is_unique: bool, known: str, expected: bool
) -> None:
    assert (for_keys([Index(tuple(columns), is_unique)], KEY, set(known)) == BY_KEYS) is expected


def test_one_index_of_several_is_enough() -> None:
    indexes = [Index(("c",), is_unique=True), Index(("a", "b"), is_unique=False)]
    assert for_keys(indexes, KEY, {*KEY}) == BY_KEYS
    assert for_keys([], KEY, {*KEY}) != BY_KEYS
