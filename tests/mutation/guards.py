"""Every guard of a module, and the module with one of them flipped.

A guard is a condition that decides something: the test of an ``if``, a ``while`` or a conditional expression, the
filter of a comprehension, the guard of a ``case``, each operand of ``and`` and ``or``, and what a predicate returns.
Flipping puts a ``not`` before it. A guard is named by what stands there (``spans.review: record is None``), not by
its line, so that a list of names survives edits elsewhere; the same text twice in one function is numbered.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Guard", "flipped", "guards_of"]

DECIDING_FIELDS = {
    (ast.If, "test"),
    (ast.While, "test"),
    (ast.IfExp, "test"),
    (ast.comprehension, "ifs"),
    (ast.match_case, "guard"),
}
"""Where an expression decides what happens."""

Path = tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class Guard:
    """One guard: ``path`` leads from the module's tree to it, ``name`` is unique in its module.

    ``function``: the lines of the outermost function around it, None if it stands in none.
    """

    name: str
    line: int
    last_line: int
    function: range | None
    path: Path


def guards_of(source: str) -> list[Guard]:
    """All guards of a module's text, in the order of the text."""
    tree = ast.parse(source)
    seen: Counter[str] = Counter()
    guards = []
    for path, node, functions in _walk(tree, (), ()):
        text = " ".join(ast.unparse(node).split())
        name = f"{functions[-1].name if functions else 'module'}: {text}"
        outermost = functions[0] if functions else None
        around = None if outermost is None else range(outermost.lineno, (outermost.end_lineno or 0) + 1)
        seen[name] += 1
        numbered = name if seen[name] == 1 else f"{name} #{seen[name]}"
        guards.append(Guard(numbered, node.lineno, node.end_lineno or node.lineno, around, path))
    return guards


def flipped(source: str, guard: Guard) -> ast.Module:
    """The module's tree with this one guard negated, its lines kept."""
    tree = ast.parse(source)
    parent: ast.AST = tree
    for field, index in guard.path[:-1]:
        parent = _child(parent, field, index)
    field, index = guard.path[-1]
    node = _child(parent, field, index)
    assert isinstance(node, ast.expr)
    negated = ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=node), node)
    if index is None:
        setattr(parent, field, negated)
    else:
        getattr(parent, field)[index] = negated
    return ast.fix_missing_locations(tree)


def _child(parent: ast.AST, field: str, index: int | None) -> ast.AST:
    value = getattr(parent, field)
    found = value if index is None else value[index]
    assert isinstance(found, ast.AST)
    return found


def _walk(
    node: ast.AST, path: Path, functions: tuple[ast.FunctionDef, ...]
) -> Iterator[tuple[Path, ast.expr, tuple[ast.FunctionDef, ...]]]:
    if isinstance(node, ast.FunctionDef):
        functions = (*functions, node)
    for field, value in ast.iter_fields(node):
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST):
                continue
            here = (*path, (field, index))
            if isinstance(child, ast.expr) and _decides(node, field, child):
                yield here, child, functions
            yield from _walk(child, here, functions)


def _decides(parent: ast.AST, field: str, child: ast.expr) -> bool:
    if isinstance(child, ast.Constant) or (isinstance(child, ast.BoolOp) and isinstance(child.op, ast.And)):
        return False  # of a conjunction every operand is tried, which says more than trying the whole
    is_comparison = isinstance(child, ast.Compare) or (isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not))
    match parent:
        case ast.BoolOp(op=ast.Or()) | ast.Return():
            # ``x or default`` is a value, not a decision: only comparisons and negations can be told apart from it.
            return is_comparison
        case ast.BoolOp():
            return True
        case _:
            return (type(parent), field) in DECIDING_FIELDS
