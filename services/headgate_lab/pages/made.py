"""Which pages there are."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from headgate_lab.pages import clauses, codes, imports, metrics, rights, settings, topics, transitions
from headgate_lab.pages.prose import filled

DOCS: Final = Path(__file__).parents[3] / "docs"

_MAKERS: Final[Mapping[str, Callable[[], str]]] = {
    "error-codes.md": codes.error_codes_page,
    "exit-codes.md": codes.exit_codes_page,
    "metrics.md": metrics.page,
    "reference/clauses.md": clauses.page,
    "reference/imports.md": imports.page,
    "reference/rights.md": rights.page,
    "reference/settings.md": settings.page,
    "reference/topics.md": topics.page,
    "reference/transitions.md": transitions.page,
}

PAGES: Final = tuple(_MAKERS)
"""Their paths below docs/. All that is in docs/reference is made."""


def page(name: str) -> str:
    """The text of one of PAGES."""
    return filled(_MAKERS[name]())
