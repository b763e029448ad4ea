"""How tests wait: none gives up sooner than others do, nor takes a lease that a busy machine lets run out.

A bound that is shorter than the usual one asserts a time. One that held for years fails once in some hundred runs, when
three other workers keep both cores.
"""

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from headgate.config.settings import Settings
from support.pages import ROOT
from support.waiting import DEADLINE_SECONDS

TESTS, FOLDERS = ROOT / "tests", ("unit", "integration", "e2e", "simulation", "containers", "support", "fixtures")

WAITING = ("eventually(", "lease_seconds=", "mark.timeout(", '"why"')
SCALED = "scaled_seconds"


@cache
def trees() -> list[tuple[str, ast.Module]]:
    """What may wait, by its path below tests/."""
    paths = [path for folder in FOLDERS for path in sorted((TESTS / folder).rglob("*.py"))]
    texts = ((path.relative_to(TESTS).as_posix(), path.read_text(encoding="utf-8")) for path in paths)
    return [(path, ast.parse(text)) for path, text in texts if any(word in text for word in WAITING)]


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def name_of(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def number(node: ast.expr | None) -> float | None:
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None


@cache
def waits() -> list[tuple[str, ast.Module, ast.Call]]:
    """Each call of ``eventually``, with its file."""
    return [(path, tree, call) for path, tree in trees() for call in calls(tree) if name_of(call) == "eventually"]


def bound_of(call: ast.Call) -> ast.expr | None:
    """``seconds`` of a call of ``eventually``, if it is given."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "seconds"]
    return named[0] if named else call.args[2] if len(call.args) > 2 else None


@cache
def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def facts(awaited: ast.expr, tree: ast.Module) -> list[ast.AST]:
    """What is awaited, and the functions of this file that it names."""
    names = {node.id for node in ast.walk(awaited) if isinstance(node, ast.Name)}
    return [awaited, *(function for function in functions(tree) if function.name in names)]


TEXTS = frozenset({"stdout", "stderr", "output"})


def values(fact: ast.expr, tree: ast.Module) -> Iterator[ast.expr | None]:
    """What a wait goes by: the body of a lambda, or what the function that is named, or called, returns."""
    value = fact.body if isinstance(fact, ast.Lambda) else fact
    called = value.func if isinstance(value, ast.Call) else value
    yield value
    for function in functions(tree):
        if isinstance(called, ast.Name) and function.name == called.id:
            yield from (each.value for each in ast.walk(function) if isinstance(each, ast.Return))


def is_done(node: ast.expr) -> bool:
    return number(node) == 0 or (isinstance(node, ast.Attribute) and node.attr == "DONE")


def is_why(node: ast.expr, function: ast.FunctionDef) -> bool:
    """Whether this is the exit code of ``headgate("why", …)``, which a name of the function may stand for."""
    if not isinstance(node, ast.Attribute) or node.attr != "exit_code":
        return False
    named = node.value.id if isinstance(node.value, ast.Name) else None
    given = [
        each.value
        for each in ast.walk(function)
        if isinstance(each, ast.Assign) and named in {name.id for name in each.targets if isinstance(name, ast.Name)}
    ]
    return any(
        isinstance(call, ast.Call) and name_of(call) == "headgate" and ast.unparse(call.args[0]) == "'why'"
        for call in [node.value, *given]
        if isinstance(call, ast.Call) and len(call.args) > 1
    )


def test_nobody_gives_up_sooner_than_others() -> None:
    bounds = [(path, call.lineno, number(bound_of(call))) for path, _, call in waits()]
    assert len(bounds) > 300, "nothing is found any more"
    assert [each for each in bounds if each[2] is not None and each[2] < DEADLINE_SECONDS] == []


def is_scaled(bound: ast.expr, tree: ast.Module) -> bool:
    """Whether a bound, or what a name in it stands for in this file, is stretched by HEADGATE_TIME_SCALE."""
    names = {node.id for node in ast.walk(bound) if isinstance(node, ast.Name)}
    assigned = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and any(ast.unparse(target) in names for target in node.targets)
    ]
    return SCALED in names or any(is_scaled(value, tree) for value in assigned)


def bounds_of_tests(tree: ast.Module) -> Iterator[ast.expr]:
    """What stands in marks: ``pytest.mark.timeout(…)``."""
    return (call.args[0] for call in calls(tree) if ast.unparse(call.func).endswith("mark.timeout"))


def test_each_bound_of_a_test_is_stretched_on_a_slow_machine() -> None:
    """conftest.py stretches the usual bound, and none that a mark puts in its place."""
    found = [(path, bound.lineno, is_scaled(bound, tree)) for path, tree in trees() for bound in bounds_of_tests(tree)]
    assert len(found) > 30, "nothing is found any more"
    assert [each for each in found if not each[2]] == []


def test_no_wait_is_stretched_twice() -> None:
    """``eventually`` stretches by itself what it is given."""
    found = [
        (path, call.lineno)
        for path, tree in trees()
        for call in calls(tree)
        if name_of(call) == "eventually" and (bound := bound_of(call)) is not None and is_scaled(bound, tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "scaled"),
    [
        ("mark.timeout(900)", False),
        ("mark.timeout(scaled_seconds(900))", True),
        ("RUN = 900\nmark.timeout(RUN + 60)", False),
        ("RUN = scaled_seconds(900)\nALL = 2 * RUN\nmark.timeout(ALL + 60)", True),
        ("from elsewhere import RUN\nmark.timeout(RUN)", False),
    ],
)
def test_a_bound_that_is_not_stretched_is_found(source: str, *, scaled: bool) -> None:
    tree = ast.parse(source)
    assert [is_scaled(bound, tree) for bound in bounds_of_tests(tree)] == [scaled]


def test_what_is_awaited_of_all_is_not_awaited_of_none() -> None:
    """``all(… for … if …)`` holds of nothing: before what is meant has come, the wait is over."""
    found = [
        (path, inner.lineno)
        for path, tree, call in waits()
        for fact in facts(call.args[0], tree)
        for inner in calls(fact)
        if name_of(inner) == "all" and inner.args
        for condition in ast.walk(inner.args[0])
        if isinstance(condition, ast.comprehension) and condition.ifs
    ]
    assert found == []


def test_a_text_is_not_awaited_for_itself() -> None:
    """A command that has found nothing says so: ``[]`` with ``-o json``, which is a text, and true."""
    found = [
        (path, call.lineno)
        for path, tree, call in waits()
        for value in values(call.args[0], tree)
        if isinstance(value, ast.Attribute) and value.attr in TEXTS
    ]
    assert found == []


def test_that_nothing_holds_a_feed_is_awaited() -> None:
    """A change that was written, or reported, a moment ago holds its feed as late: ``why`` says either, for a while."""
    said = {
        (path, node.lineno)
        for path, tree in trees()
        for function in functions(tree)
        for asserted in (node for node in ast.walk(function) if isinstance(node, ast.Assert))
        for node in ast.walk(asserted.test)
        if isinstance(node, ast.Compare) and is_done(node.comparators[0]) and is_why(node.left, function)
    }
    assert said == set()


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
