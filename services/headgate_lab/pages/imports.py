"""docs/reference/imports.md: which folder knows which, as a picture and as a table."""

from collections.abc import Mapping
from typing import Final

import grimp

_GENERATION: Final = ("generation", "generation/owner", "generation/changelog", "generation/timestamps")
_DIVIDED: Final = ("coordinator", "agent", *_GENERATION, "migration")
"""Folders whose inner folders are layers of their own."""

Known = dict[str, set[str]]


def page() -> str:
    """The page."""
    known = {folder: others for folder, others in sorted(_imports().items()) if others}
    parts = [
        "# Folders and their imports",
        "",
        "Which folder of `services/` imports which; `.importlinter` holds the contracts. The picture leaves out the",
        "lab, and every arrow that a longer way of arrows replaces. This page is made from the code by `make docs`.",
        "",
        "```mermaid",
        "flowchart TD",
        *(
            f"    {folder} --> {other}"
            for folder, others in _reduced(known).items()
            for other in sorted(others)
            if not folder.startswith("lab/")
        ),
        "```",
        "",
        "| folder | imports |",
        "|---|---|",
        *(f"| {folder} | {', '.join(sorted(others))} |" for folder, others in known.items()),
    ]
    return "\n".join(parts) + "\n"


def _imports() -> Known:
    """Folder → the other folders that a module of it imports."""
    graph = grimp.build_graph("headgate", "headgate_lab")
    known: Known = {}
    for module in graph.modules:
        others = known.setdefault(_folder(module), set())
        others |= {_folder(other) for other in graph.find_modules_directly_imported_by(module)}
    return {folder: others - {folder, "headgate"} for folder, others in known.items()}


def _folder(module: str) -> str:
    package, *path = module.split(".")
    folder = "".join(path[:1])
    for part in path[1:]:
        if folder in _DIVIDED:
            folder = f"{folder}/{part}"
    return f"lab/{folder}" if package == "headgate_lab" else folder or package


def _reduced(known: Mapping[str, set[str]]) -> Known:
    """Without what follows from the rest. Folders import each other in no circle."""
    return {
        folder: {other for other in others if not any(other in _reached(known, way) for way in others if way != other)}
        for folder, others in known.items()
    }


def _reached(known: Mapping[str, set[str]], folder: str) -> set[str]:
    others = known.get(folder, set())
    return others.union(*(_reached(known, other) for other in others))
