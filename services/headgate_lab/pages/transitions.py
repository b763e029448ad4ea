"""docs/reference/transitions.md: the tables of the five machines, and pictures of the states that users see."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import count
from typing import Any, Final, get_args

from msgspec.structs import fields, replace

from headgate.agent.core import transitions as session
from headgate.agent.core.span import transitions as span
from headgate.agent.core.span.states import TaskPhase
from headgate.coordinator.core import replication
from headgate.generation.changelog.core import phases as generation
from headgate.migration.core import transitions as migration
from headgate.records.control import Assignment, Epoch, ReplicationState, SpanDispatched, TaskState
from headgate.records.migration import MigrationRecorded, MigrationState
from headgate_lab.pages import agent_states, feed_states
from headgate_lab.pages.state_chart import Edge, chart

_FORMS: Final = {
    replication.SpanPhase.ABSENT: (ReplicationState.ABSENT, False, False),
    replication.SpanPhase.PREPARE: (ReplicationState.PREPARE, True, True),
    replication.SpanPhase.HANDOVER: (ReplicationState.COMMIT, True, True),
    replication.SpanPhase.COMMIT: (ReplicationState.COMMIT, True, False),
    replication.SpanPhase.REPLICATING: (ReplicationState.REPLICATING, True, False),
    replication.SpanPhase.REMOVING: (ReplicationState.REMOVING, True, False),
    replication.SpanPhase.ORPHANED: (ReplicationState.REMOVING, False, False),
}
"""An example of each phase: the record's state, and whether it has a primary and a secondary."""


def page() -> str:
    """The page."""
    parts = [
        "# Transitions",
        "",
        "The action of each state machine for each state and input. The tables are taken from the code. An empty field",
        "is an impossible pair: it is an error that ends the session or the term. This page is made from the code by",
        "`make docs`.",
        "",
        "In a picture, an arrow leads from a state to the state that follows, and its label has the inputs that lead",
        "there. Inputs that do not change the state are omitted. Nothing leaves a state in a grey box.",
        "",
        "## A feed",
        "",
        "`coordinator/core/feeds/feed_lifecycle.py`. A feed is `stopping`, `finishing` or `removing` until each of",
        "its tables is sealed: no agent can write it then. A feed has no table of transitions: each step follows from",
        "its tables' states. A test compares the picture with what the scenarios record.",
        "",
        "![The states of a feed](../pictures/states-feed.svg)",
        "",
        "## A span, as its owner sees it",
        "",
        "`coordinator/core/replication.py`.",
        "",
        "![The states of a span](../pictures/states-span.svg)",
        "",
        *_table(replication.TRANSITIONS),
        "",
        "## A span, as the dispatch record directs an agent's session",
        "",
        "`agent/core/transitions.py`. What the executor reports by itself is in brackets.",
        "",
        "![The states of a task](../pictures/states-task.svg)",
        "",
        *_table(session.TRANSITIONS),
        "",
        "## A span's states in an agent",
        "",
        "`agent/core/span/transitions.py`. The first picture shows a span that runs, the second one how it ends.",
        "`add` under a new epoch leads from every state to `opening`, and `close` to `sealing`: they are drawn",
        "only where nothing is run.",
        "",
        "![The states of a span that runs in an agent](../pictures/states-agent-span.svg)",
        "",
        "In the second picture a span is *free* while neither a call nor a batch has it",
        f"({_named(agent_states.FREE)}), and *calling* while a call to source or sink is under way",
        f"({_named(agent_states.CALLING)}).",
        "",
        "![The end of a span in an agent](../pictures/states-agent-span-end.svg)",
        "",
        *_table(span.TRANSITIONS),
        "",
        "## A schema change, as its owner sees it",
        "",
        "`migration/core/transitions.py`.",
        "",
        "![The states of a schema change](../pictures/states-migration.svg)",
        "",
        *_table(migration.TRANSITIONS),
        "",
        "## A generation of a change log, as its owner sees it",
        "",
        "`generation/changelog/core/phases.py`.",
        "",
        "![The states of a generation of a change log](../pictures/states-change-log.svg)",
        "",
        *_table(generation.TRANSITIONS),
    ]
    return "\n".join(parts) + "\n"


def feed_picture() -> str:
    """pictures/states-feed.svg."""
    return chart("states-feed", "The states of a feed", feed_states.STATES, feed_states.EDGES)


def span_picture() -> str:
    """pictures/states-span.svg."""
    return chart("states-span", "The states of a span", _values(replication.SpanPhase), _owners_edges())


def task_picture() -> str:
    """pictures/states-task.svg."""
    return chart("states-task", "The states of a task", ["absent", *_values(TaskState)], agent_states.session_edges())


def agent_span_picture() -> str:
    """pictures/states-agent-span.svg."""
    title = "The states of a span that runs in an agent"
    return _of_span("states-agent-span", title, agent_states.running_edges())


def agent_span_end_picture() -> str:
    """pictures/states-agent-span-end.svg."""
    title = "The end of a span in an agent"
    return _of_span("states-agent-span-end", title, agent_states.ending_edges())


def _of_span(name: str, title: str, edges: Sequence[Edge]) -> str:
    """The chart with the states that it needs, in the order of their lives."""
    used = {state for start, end, _ in edges for state in (start, end)}
    order = ["absent", "free", "calling", *(phase for phase in _values(TaskPhase) if phase != "absent")]
    return chart(name, title, [state for state in order if state in used], edges)


def _named(phases: Iterable[StrEnum]) -> str:
    return ", ".join(f"`{phase.value}`" for phase in phases)


def migration_picture() -> str:
    """pictures/states-migration.svg."""
    states = [phase for phase in _values(migration.MigrationPhase) if phase != "awaiting_approval"]
    title = "The states of a schema change"
    return chart("states-migration", title, ["awaiting_approval", *states], _migrations_edges())


def change_log_picture() -> str:
    """pictures/states-change-log.svg."""
    title = "The states of a generation of a change log"
    return chart("states-change-log", title, [*_values(generation.SwitchPhase), "retired"], _generations_edges())


def _values(phases: Iterable[StrEnum]) -> list[str]:
    return [phase.value for phase in phases]


def _owners_edges() -> Iterable[tuple[str, str, str]]:
    """(phase, next phase, signal), by applying every signal to an example of every phase."""
    for (phase, signal), action in replication.TRANSITIONS.items():
        if action not in replication.ACTIONS:
            continue
        after = replication.phase(replication.apply(_example(phase), signal, _cause()).record)
        if after is not phase:
            yield phase.value, after.value, signal.value


def _example(phase: replication.SpanPhase) -> SpanDispatched:
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


def _generations_edges() -> Iterable[tuple[str, str, str]]:
    """(phase, next phase, signal)."""
    after = {action: phase.value for action, phase in generation.PHASE_AFTER.items()}
    after[generation.SwitchAction.RETIRE] = "retired"
    for (phase, signal), action in generation.TRANSITIONS.items():
        if action in after:
            yield phase.value, after[action], signal.value


def _migrations_edges() -> Iterable[tuple[str, str, str]]:
    """(phase, next phase, signal), by applying every signal to an example of every phase."""
    cause = migration.Cause(owner_rev=7, now_ms=0)
    for record in _migrations():
        before = migration.phase(record)
        for signal in migration.MigrationSignal:
            if migration.TRANSITIONS[before, signal] is not migration.MigrationAction.NEVER:
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
