"""What counts as a guard, and that a flip is exactly one."""

import ast
import re

import pytest

from mutation.guards import flipped, guards_of

SOURCE = """
def fits(a, b):
    if a and not b:
        return a == b
    return [x for x in a if x] if b else a or 1
"""


def test_every_operand_filter_and_returned_comparison_is_a_guard() -> None:
    assert [guard.name for guard in guards_of(SOURCE)] == [
        "fits: a",
        "fits: not b",
        "fits: a == b",
        "fits: b",
        "fits: x",
    ]


@pytest.mark.parametrize("guard", guards_of(SOURCE), ids=lambda guard: guard.name)
def test_a_flip_changes_one_guard_and_nothing_else(guard) -> None:
    before, after = ast.unparse(ast.parse(SOURCE)), ast.unparse(flipped(SOURCE, guard))
    places = [match.start() for match in re.finditer("not ", after)]
    assert before in {after[:place] + after[place + len("not ") :] for place in places}
    assert after.count("not ") == before.count("not ") + 1


def test_a_guard_that_stands_twice_in_a_function_has_two_names() -> None:
    names = [guard.name for guard in guards_of("def f(a):\n    if a: pass\n    if a: pass\n")]
    assert names == ["f: a", "f: a #2"]
