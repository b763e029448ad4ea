"""Which pages and pictures are made."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from headgate_lab.pages import (
    architecture,
    clauses,
    codes,
    dashboard,
    imports,
    metrics,
    pictures,
    rights,
    settings,
    topics,
    transitions,
    versions,
    views,
)
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
    "reference/versions.md": versions.page,
    "reference/views.md": views.page,
    "pictures/architecture.svg": architecture.picture,
    "pictures/dashboard.svg": dashboard.picture,
    "pictures/states-agent-span.svg": transitions.agent_span_picture,
    "pictures/states-agent-span-end.svg": transitions.agent_span_end_picture,
    "pictures/states-change-log.svg": transitions.change_log_picture,
    "pictures/states-feed.svg": transitions.feed_picture,
    "pictures/states-migration.svg": transitions.migration_picture,
    "pictures/states-span.svg": transitions.span_picture,
    "pictures/states-task.svg": transitions.task_picture,
} | {f"pictures/{name}.svg": partial(pictures.picture, name) for name in pictures.names()}

PAGES: Final = tuple(_MAKERS)
"""Their paths below docs/. All that is in docs/reference is made, and each picture."""


def page(name: str) -> str:
    """The text of one of PAGES."""
    made = _MAKERS[name]()
    return filled(made) if name.endswith(".md") else made
