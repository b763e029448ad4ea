"""Whether a range of a table's key is the same range of its copy's, so that it may be deleted there as a whole."""

import pytest

from headgate.migration.strategies.contract import CopyPlan, DescribedColumn, DescribedTable
from headgate.migration.strategies.postgresql.ranges import is_ordered_alike


def keyed(kind: str) -> DescribedTable:
    return DescribedTable("s", "t", (DescribedColumn("id", kind),), {"t_pkey": ("id",)}, "")


@pytest.mark.parametrize(
    ("before", "after", "is_alike"),
    [
        ("integer", "bigint", True),
        ("uuid", "uuid", True),
        ("text", "text", False),
        ("character varying(20)", "character varying(40)", False),
        ("integer", "text", False),
        ("uuid", "text", False),
        ("mood", "mood", False),
    ],
)
def test_keys_are_ordered_alike_where_their_type_says_so(before: str, after: str, *, is_alike: bool) -> None:
    plan = CopyPlan(keyed(before), keyed(after), "shadow", (("id", "id"),), (("id", "id"),), ())
    assert is_ordered_alike(plan) is is_alike
