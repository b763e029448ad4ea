"""Rows of two kinds of databases compared as ``headgate verify`` does: each value brought to one form first."""

from headgate.verify.comparing import compare_table
from headgate.verify.contract import Side
from headgate_lab.demo.compare import Comparison, MismatchedRow
from headgate_lab.demo.schema import ShopTable


def compare_across(source: Side, target: Side, table: ShopTable) -> Comparison:
    """All rows and columns of a table; a column that is not compared is a difference too. Raises as verify does."""
    found = compare_table(source, target, table.full_name, table.full_name)
    shown = [
        MismatchedRow(table.full_name, tuple(one.key.values()), f"{one.kind} {', '.join(one.columns)}".rstrip())
        for one in found.examples
    ]
    lonely = (*found.columns_missing, *found.columns_surplus, *found.columns_unlike)
    shown += [MismatchedRow(table.full_name, (), f"column {column} was not compared") for column in lonely]
    return Comparison(table.full_name, found.rows, found.differences + len(lonely), tuple(shown))
