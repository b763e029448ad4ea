"""Which types of two databases take each other's text for the same value."""

import pytest

from headgate.tables.paired_tables import is_taken


@pytest.mark.parametrize(
    ("kind", "other", "taken"),
    [
        ("int4", "bigint", True),
        ("uuid", "uuid", True),
        ("uuid", "varchar", True),
        ("uuid", "char", True),
        ("text", "char", False),
        ("char", "uuid", False),
        ("bytea", "text", False),
    ],
)
def test_a_type_is_taken_where_its_text_means_the_same(kind: str, other: str, *, taken: bool) -> None:
    assert is_taken(kind, other) is taken
