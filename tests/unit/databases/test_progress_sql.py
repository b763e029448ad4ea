"""Only databases/ has SQL on the fence's tables."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HEADGATE: Final = Path(__file__).parents[3] / "services" / "headgate"

# Migrations keep what they remember in headgate.migration and headgate.migration_owner, tables of their own.
ON_THE_FENCE: Final = re.compile(
    r"\b(?:FROM|INTO|UPDATE|TABLE|JOIN|EXISTS|ONLY)\s+`?headgate`?\.(?!`?migration(?:_owner)?\b)|'headgate\.(?!migration_owner')\w*'"
)


def _texts(tree: ast.Module) -> Iterator[str]:
    """Every text of a module that the code uses: not its docstrings."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


def test_only_databases_has_sql_on_the_fence_s_tables() -> None:
    found = {
        f"{path.relative_to(HEADGATE)}: {text.strip()[:60]}"
        for path in sorted(HEADGATE.rglob("*.py"))
        if path.relative_to(HEADGATE).parts[0] != "databases"
        for text in _texts(ast.parse(path.read_text(encoding="utf-8")))
        if ON_THE_FENCE.search(text)
    }
    assert not found, "call a function of databases/*/progress.py instead, or add one"


def test_the_pattern_finds_what_it_is_for() -> None:
    texts = [text for path in HEADGATE.glob("databases/*/progress.py") for text in _texts(ast.parse(path.read_text()))]
    assert sum(bool(ON_THE_FENCE.search(text)) for text in texts) > len(("postgresql", "mysql"))
