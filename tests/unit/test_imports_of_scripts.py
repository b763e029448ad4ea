"""Programs that tests start as processes: what they import from the house exists. Nothing else reads them."""

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]
PROGRAMS: Final = sorted(
    path for path in TESTS.rglob("*.py") if path.name != "conftest.py" and not path.name.startswith("test_")
)


def imported(path: Path) -> list[tuple[str, str]]:
    """Module and name of each import from the product and the lab."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.module]
    return [
        (str(each.module), alias.name)
        for each in found
        if str(each.module).split(".")[0] in {"headgate", "headgate_lab"}
        for alias in each.names
    ]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(TESTS)))
def test_what_a_program_imports_exists(path: Path) -> None:
    missing = [
        f"{module}.{name}"
        for module, name in imported(path)
        if not hasattr(importlib.import_module(module), name) and find_spec(f"{module}.{name}") is None
    ]
    assert missing == []
