"""How tests wait: none gives up sooner than others do, nor takes a lease that a busy machine lets run out.

A bound that is shorter than the usual one asserts a time. One that held for years fails once in some hundred runs, when
three other workers keep both cores.
"""

import ast
from collections.abc import Iterator
from functools import cache

from headgate.config.settings import Settings
from support.pages import ROOT
from support.waiting import DEADLINE_SECONDS

TESTS, FOLDERS = ROOT / "tests", ("unit", "integration", "e2e", "support", "fixtures")


@cache
def trees() -> list[tuple[str, ast.Module]]:
    """What may wait, by its path below tests/."""
    paths = [path for folder in FOLDERS for path in sorted((TESTS / folder).rglob("*.py"))]
    texts = ((path.relative_to(TESTS).as_posix(), path.read_text(encoding="utf-8")) for path in paths)
    return [(path, ast.parse(text)) for path, text in texts if "eventually(" in text or "lease_seconds=" in text]


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def name_of(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def number(node: ast.expr | None) -> float | None:
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None


def bound_of(call: ast.Call) -> ast.expr | None:
    """``seconds`` of a call of ``eventually``, if it is given."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "seconds"]
    return named[0] if named else call.args[2] if len(call.args) > 2 else None


def facts(awaited: ast.expr, tree: ast.Module) -> list[ast.AST]:
    """What is awaited, and the functions of this file that it names."""
    names = {node.id for node in ast.walk(awaited) if isinstance(node, ast.Name)}
    return [awaited, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names)]


def test_nobody_gives_up_sooner_than_others() -> None:
    waits = [
        (path, call.lineno, number(bound_of(call)))
        for path, tree in trees()
        for call in calls(tree)
        if name_of(call) == "eventually"
    ]
    assert len(waits) > 300, "nothing is found any more"
    assert [each for each in waits if each[2] is not None and each[2] < DEADLINE_SECONDS] == []


def test_what_is_awaited_of_all_is_not_awaited_of_none() -> None:
    """``all(… for … if …)`` holds of nothing: before what is meant has come, the wait is over."""
    found = [
        (path, inner.lineno)
        for path, tree in trees()
        for call in calls(tree)
        if name_of(call) == "eventually" and call.args
        for fact in facts(call.args[0], tree)
        for inner in calls(fact)
        if name_of(inner) == "all" and inner.args
        for condition in ast.walk(inner.args[0])
        if isinstance(condition, ast.comprehension) and condition.ifs
    ]
    assert found == []


def test_leases_are_the_default_at_least() -> None:
    """A service, or an owner on a thread, that a busy machine lets wait for two seconds loses a shorter one."""
    leases = [
        (path, call.lineno, number(keyword.value))
        for path, tree in trees()
        if not path.startswith("unit/")  # most of theirs are of a clock of their own
        for call in calls(tree)
        for keyword in call.keywords
        if keyword.arg in {"lease_seconds", "holder_lease_seconds"}
    ]
    assert len(leases) > 5, "nothing is found any more"
    # An owner that resigns announces none.
    assert [each for each in leases if each[2] is not None and 0 < each[2] < Settings().lease_seconds] == []
