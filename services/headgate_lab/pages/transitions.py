"""docs/reference/transitions.md: the tables of the five machines, and a diagram of each."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import count
from typing import Any, Final, get_args

from msgspec.structs import fields, replace

from headgate.agent.core import transitions as session
from headgate.agent.core.span import transitions as span
from headgate.coordinator.core import replication
from headgate.generation.changelog.core import phases as generation
from headgate.migration.core import transitions as migration
from headgate.records.control import Assignment, Epoch, ReplicationState, SpanDispatched
from headgate.records.migration import MigrationRecorded, MigrationState

_FORMS: Final = {
    replication.Phase.ABSENT: (ReplicationState.ABSENT, False, False),
    replication.Phase.PREPARE: (ReplicationState.PREPARE, True, True),
    replication.Phase.HANDOVER: (ReplicationState.COMMIT, True, True),
    replication.Phase.COMMIT: (ReplicationState.COMMIT, True, False),
    replication.Phase.REPLICATING: (ReplicationState.REPLICATING, True, False),
    replication.Phase.REMOVING: (ReplicationState.REMOVING, True, False),
    replication.Phase.ORPHANED: (ReplicationState.REMOVING, False, False),
}
"""An example of each phase: the record's state, and whether it has a primary and a secondary."""

_NOTHING_HAPPENS: Final = ("keep", "wait", "never")
"""Actions after which everything is as before, or that cannot be."""


def page() -> str:
    """The page."""
    parts = [
        "# Transitions",
        "",
        "The action of each state machine for each state and input. The tables are taken from the code. An empty field",
        "is an impossible pair: it is an error that ends the session or the term. This page is made from the code by",
        "`make docs`.",
        "",
        "## A span, as its owner sees it",
        "",
        "`coordinator/core/replication.py`. An arrow is a signal and the phase that follows; signals that do",
        "not change the phase are omitted.",
        "",
        *_diagram(_owners_edges()),
        "",
        *_table(replication.TRANSITIONS),
        "",
        "## A span, as the dispatch record directs an agent's session",
        "",
        "`agent/core/transitions.py`. An arrow is a directive and the action it leads to; the action `keep`",
        "is omitted.",
        "",
        *_diagram(_actions_edges(session.TRANSITIONS)),
        "",
        *_table(session.TRANSITIONS),
        "",
        "## A span's states in an agent",
        "",
        "`agent/core/span/transitions.py`. As above.",
        "",
        *_diagram(_actions_edges(span.TRANSITIONS)),
        "",
        *_table(span.TRANSITIONS),
        "",
        "## A schema change, as its owner sees it",
        "",
        "`migration/core/transitions.py`. An arrow is a signal and the phase that follows; signals that do",
        "not change the phase are omitted.",
        "",
        *_diagram(_migrations_edges()),
        "",
        *_table(migration.TRANSITIONS),
        "",
        "## A generation of a change log, as its owner sees it",
        "",
        "`generation/changelog/core/phases.py`. An arrow is a signal and the action it leads to; the action `wait` is",
        "omitted.",
        "",
        *_diagram(_actions_edges(generation.TRANSITIONS)),
        "",
        *_table(generation.TRANSITIONS),
    ]
    return "\n".join(parts) + "\n"


def _owners_edges() -> Iterable[tuple[str, str, str]]:
    """(phase, next phase, signal), by applying every signal to an example of every phase."""
    for (phase, signal), action in replication.TRANSITIONS.items():
        if action not in replication.ACTIONS:
            continue
        after = replication.phase(replication.apply(_example(phase), signal, _cause()).record)
        if after is not phase:
            yield phase.value, after.value, signal.value


def _example(phase: replication.Phase) -> SpanDispatched:
    state, has_primary, has_secondary = _FORMS[phase]
    return SpanDispatched(
        feed_id="0-1",
        incarnation=0,
        owner_rev=5,
        state=state,
        primary=Assignment("a1", "s1", Epoch(5, 1)) if has_primary else None,
        secondary=Assignment("a2", "s2", Epoch(5, 2)) if has_secondary else None,
        sealed=False,
        moving_request=None,
        failures=0,
        last_error=None,
    )


def _cause() -> replication.Cause:
    numbers = count(1)
    return replication.Cause(
        issue=lambda: Epoch(7, next(numbers)),
        owner_rev=7,
        reason="",
        target=("a3", "s3"),
        request="m",
        error_code="sink_unavailable",
        error="",
    )


def _migrations_edges() -> Iterable[tuple[str, str, str]]:
    """(phase, next phase, signal), by applying every signal to an example of every phase."""
    cause = migration.Cause(owner_rev=7, now_ms=0)
    for record in _migrations():
        before = migration.phase(record)
        for signal in migration.Signal:
            if migration.TRANSITIONS[before, signal] is not migration.Action.NEVER:
                after = migration.phase(migration.apply(record, signal, cause))
                if after is not before:
                    yield before.value, after.value, signal.value


def _migrations() -> Iterator[MigrationRecorded]:
    """An example of each phase; of one that is being ended one towards each end."""
    nothing = {int: 0, float: 0.0, str: "", bool: False}
    values: dict[str, Any] = {
        field.name: nothing.get(field.type, None if type(None) in get_args(field.type) else ())
        for field in fields(MigrationRecorded)
    }
    blank = MigrationRecorded(**values)
    for state in MigrationState:
        yield replace(blank, state=state)
    for ending in (MigrationState.FAILED, MigrationState.CANCELLED):
        yield replace(blank, state=MigrationState.RUNNING, ending=ending)


def _actions_edges(table: Mapping[Any, StrEnum]) -> Iterable[tuple[str, str, str]]:
    """(state, action, signal); actions are distinguished from states by their brackets."""
    for (state, signal), action in table.items():
        if action.value not in _NOTHING_HAPPENS:
            yield "none" if state is None else state.value, f"do_{action.value}", signal.value


def _diagram(edges: Iterable[tuple[str, str, str]]) -> list[str]:
    """A Mermaid state diagram; several signals between two states share an arrow."""
    grouped: dict[tuple[str, str], dict[str, None]] = {}
    for start, end, signal in edges:
        grouped.setdefault((start, end), {})[signal] = None
    arrows = [f"    {start} --> {end}: {', '.join(signals)}" for (start, end), signals in grouped.items()]
    return ["```mermaid", "stateDiagram-v2", *arrows, "```"]


def _table(table: Mapping[Any, StrEnum]) -> list[str]:
    states = list(dict.fromkeys(state for state, _ in table))
    signals = list(dict.fromkeys(signal for _, signal in table))
    rows = [
        f"| {signal.value} | " + " | ".join(_cell(table, state, signal) for state in states) + " |"
        for signal in signals
    ]
    names = " | ".join("none" if state is None else state.value for state in states)
    return [f"| | {names} |", "|---" * (len(states) + 1) + "|", *rows]


def _cell(table: Mapping[Any, StrEnum], state: Any, signal: Any) -> str:
    action = table.get((state, signal))
    return "" if action is None or action.value == "never" else action.value
