"""A state machine as a picture: a column for each state, and a row for each transition, in the order of the table.

An arrow leads from the state to the one that follows. Its label has the inputs that lead there. Rows do not cross, so
the picture needs no layout, and a new transition adds a row.
"""

import textwrap
from collections.abc import Iterable
from typing import Final

from headgate_lab.pages import svg

Edge = tuple[str, str, str]
"""State, next state, input."""

_COLUMN: Final = 118.0
_MARGIN: Final = 74.0
_HEAD: Final = 46.0
_LINE: Final = 13.0
_LABEL: Final = 10.5
_LABEL_CHARACTERS: Final = 58
"""Longer lists of inputs take another line."""


def chart(name: str, title: str, states: Iterable[str], edges: Iterable[Edge]) -> str:
    """The picture. States that nothing leaves have a grey box."""
    columns = {state: _MARGIN + _COLUMN * at for at, state in enumerate(states)}
    rows = [(start, end, _wrapped(inputs)) for (start, end), inputs in _grouped(edges).items()]
    left = {start for start, _, _ in rows}
    width = 2 * _MARGIN + _COLUMN * (len(columns) - 1)
    height = _HEAD + sum(_row_height(label) for _, _, label in rows) + 22
    parts = [
        svg.line([(x, _HEAD - 6), (x, height - 10)], colour=svg.FAINT, dash="2 4", width=1) for x in columns.values()
    ]
    for state, x in columns.items():
        wide = max(svg.width_of(state, 12) + 14, 60)
        parts.append(svg.box(x - wide / 2, 12, wide, 26, fill="#ffffff" if state in left else "#e7e9ec"))
        parts.append(svg.text(x, 29.5, state, bold=True))
    y = _HEAD
    for start, end, label in rows:
        y += _row_height(label)
        middle = (columns[start] + columns[end]) / 2
        half = max(svg.width_of(each, _LABEL) for each in label) / 2
        middle = min(max(middle, half + 6), width - half - 6)
        colour = svg.BLUE if columns[end] > columns[start] else svg.AMBER
        parts.append(svg.arrow(name, [(columns[start], y), (columns[end], y)], colour=colour))
        parts.append(f'<circle cx="{columns[start]:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>')
        for at, each in enumerate(reversed(label)):
            parts.append(svg.label(middle, y - 7 - at * _LINE, each, size=_LABEL))
    return svg.document(name, title, width, height, parts)


def _grouped(edges: Iterable[Edge]) -> dict[tuple[str, str], list[str]]:
    """Inputs between the same two states share an arrow."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for start, end, given in edges:
        inputs = grouped.setdefault((start, end), [])
        if given not in inputs:
            inputs.append(given)
    return grouped


def _wrapped(inputs: list[str]) -> list[str]:
    return textwrap.wrap(", ".join(inputs), _LABEL_CHARACTERS, break_long_words=False, break_on_hyphens=False)


def _row_height(label: list[str]) -> float:
    return 17 + _LINE * len(label)
