"""A class's name has one meaning: a reader who has met it in one folder meets nothing else by it in another."""

import ast
from collections import defaultdict
from pathlib import Path

SERVICES = Path(__file__).parents[2] / "services"

SHARED_MAX = 2
"""A name of two classes is mostly one idea at two levels, as a port and the engine behind it."""

ONE_IDEA = {
    "PlacedRequest": "a request and its offset, in the state of each owner: digests need the type of the request"
}
"""Names of more classes which mean the same everywhere."""


def modules_by_class() -> dict[str, list[str]]:
    """Name → the modules that define a class of it. Names with an underscore are a module's own."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SERVICES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(SERVICES)))
    return found


def test_a_name_is_not_that_of_many_classes() -> None:
    shared = {name: modules for name, modules in modules_by_class().items() if len(modules) > SHARED_MAX}
    assert {name: modules for name, modules in shared.items() if name not in ONE_IDEA} == {}
    assert set(ONE_IDEA) <= set(shared), "no longer shared: take it out of the list"
