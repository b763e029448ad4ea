"""Transition tables of machines, written as text and read once, when their module is imported.

A table lists for each pair of phase and signal which action follows. There are two notations. A *grid* has a line per
signal and a column per phase; it suits machines that decide about nearly every pair. *Rows* have a line per phase, or
several, with ``signal:action`` for each pair that can occur.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

PhaseT = TypeVar("PhaseT")
SignalT = TypeVar("SignalT")
ActionT = TypeVar("ActionT")

COMMENT = "#"
CANNOT_BE = "-"


class UnknownTransitionError(Exception):
    """A signal in a phase in which it cannot occur: a bug, never to be ignored. The message names both, and of what."""


def read_grid(
    text: str,
    phase: Callable[[str], PhaseT],
    signal: Callable[[str], SignalT],
    action: Callable[[str], ActionT],
    short: Mapping[str, ActionT],
) -> dict[tuple[PhaseT, SignalT], ActionT]:
    """(phase, signal) → action. The first line names the phases. ``short``: actions that are written as one sign."""
    head, *rows = (line.split() for line in text.strip().splitlines())
    return {
        (phase(column), signal(row[0])): short[cell] if cell in short else action(cell)
        for row in rows
        for column, cell in zip(head[1:], row[1:], strict=True)
    }


def read_rows(
    text: str,
    phase: Callable[[str], PhaseT],
    signal: Callable[[str], SignalT],
    action: Callable[[str], ActionT],
) -> dict[tuple[PhaseT, SignalT], ActionT]:
    """(phase, signal) → action, for every pair that can occur.

    A line without a phase continues the one before. Lines of the phase ``*`` apply to every phase that is first named
    below them, unless the phase has its own; ``-`` takes a pair away. Lines that begin with ``#`` are comments.
    """
    table: dict[tuple[PhaseT, SignalT], ActionT] = {}
    always: dict[SignalT, ActionT] = {}
    named: str | None = None
    for line in text.splitlines():
        words = line.split()
        if not words or words[0] == COMMENT:
            continue
        if ":" not in words[0]:
            named = words.pop(0)
            if named != "*" and all(known != phase(named) for known, _ in table):
                table |= {(phase(named), each): made for each, made in always.items()}
        if named is None:
            raise ValueError(f"a table must begin with a phase, got {line!r}")
        for word in words:
            given, _, made = word.partition(":")
            if named == "*":
                always[signal(given)] = action(made)
            elif made == CANNOT_BE:
                del table[phase(named), signal(given)]
            else:
                table[phase(named), signal(given)] = action(made)
    return table
