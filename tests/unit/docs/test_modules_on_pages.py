"""Modules that pages name exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from support.pages import PAGES, ROOT

SERVICES: Final = ROOT / "services"
PRODUCT: Final = SERVICES / "headgate"
ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
DOTTED: Final = re.compile(r"`((?:[a-z_]+\.)+[a-z_]+)`")
NAME: Final = re.compile(r"`([a-z_]+(?:\.[a-z_]+)*)`")


def exists(folder: Path, parts: list[str]) -> bool:
    """Whether the parts lead from a folder to a module, or to a name in a module."""
    for at, part in enumerate(parts):
        if (folder / part / "__init__.py").exists():
            folder /= part
            continue
        module = folder / f"{part}.py"
        rest = parts[at + 1 :]
        if not module.exists() and not rest:
            return folder != SERVICES and has_name(folder / "__init__.py", part)
        return module.exists() and (not rest or has_name(module, rest[0]))
    return True


def has_name(module: Path, name: str) -> bool:
    return re.search(rf"\b{name}\b", module.read_text(encoding="utf-8")) is not None


def lost(text: str) -> Iterator[str]:
    """Dotted names whose beginning is a package of ours, and whose end does not exist in it.

    One folder alone does not make a name one of a module: `views.open` is a value of the chart, `headgate.progress`
    a table.
    """
    for name in DOTTED.findall(text):
        parts = name.split(".")
        whole = parts if parts[0] in ("headgate", "headgate_lab") else ["headgate", *parts]
        is_ours = len(whole) > 2 and (SERVICES.joinpath(*whole[: 2 if whole == parts else 3]) / "__init__.py").exists()
        if is_ours and not exists(SERVICES, whole):
            yield name


def lost_on_paths(page: str) -> Iterator[str]:
    """Names of the tables of docs/architecture.md: a dotted one is a module, others are in folders named before."""
    for row in (line for line in page.splitlines() if "→" in line and line.startswith("| ")):
        folders: list[Path] = []
        for name in NAME.findall(row):
            parts = name.split(".")
            if len(parts) > 1 or (PRODUCT / name).is_dir():
                folders.append(PRODUCT.joinpath(*parts[:-1]) if len(parts) > 1 else PRODUCT / name)
                is_there = exists(PRODUCT, parts)
            else:
                is_there = any((folder / f"{name}.py").exists() or exists(folder, [name]) for folder in folders)
            if not is_there:
                yield name


def test_every_module_that_a_page_names_exists() -> None:
    pages = [*PAGES, *sorted((ROOT / "docs" / "reference").glob("*.md")), *sorted(ROOT.glob("*.md"))]
    assert {page.name: found for page in pages if (found := list(lost(page.read_text(encoding="utf-8"))))} == {}


def test_every_module_on_the_paths_of_the_architecture_exists() -> None:
    assert list(lost_on_paths(ARCHITECTURE.read_text(encoding="utf-8"))) == []


def test_a_module_that_does_not_exist_is_found() -> None:
    text = "`agent.shell.life`, `agent.shell.turns`, `views.open`, `headgate_lab.pages.nothing`, `headgate.progress`"
    assert list(lost(text)) == ["agent.shell.life", "headgate_lab.pages.nothing"]
    row = "| driver | `replication.stream`, `lane` → `nowhere` → `agent.core.span` → `machine` → `agent.core.gone` |"
    assert list(lost_on_paths(row)) == ["nowhere", "agent.core.gone"]
