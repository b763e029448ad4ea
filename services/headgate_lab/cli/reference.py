"""Pages of docs/reference, made from the code: the three tables of transitions as diagrams, the topics with their keys.

``python -m headgate_lab.cli.reference`` writes them; tests/unit/docs/test_reference.py fails if they are not current.
"""

import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any, Final

from headgate.agent.core import transitions as session
from headgate.agent.core.span import transitions as span
from headgate.coordinator.core import replication
from headgate.eventlog.topics import CONTROL_TOPICS, ControlTopic
from headgate.records.base import Key
from headgate.records.control import Assignment, Epoch, ReplicationState, SpanDispatched
from headgate.records.keys import KEYS, DeadLetterKey, MemberKey, RequestKey

__all__ = ["FOLDER", "pages"]

FOLDER: Final = Path(__file__).parents[3] / "docs" / "reference"

_MADE: Final = "This page is made from the code by `python -m headgate_lab.cli.reference`."

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


def pages() -> dict[str, str]:
    """The text of every page, by its file's name."""
    return {"transitions.md": _transitions(), "topics.md": _topics()}


def _transitions() -> str:
    parts = [
        "# Transitions",
        "",
        f"What each machine does in each state. {_MADE} The tables are the code's own; a pair that",
        "is not in them is an error which ends the session or the term.",
        "",
        "## A span, as its owner sees it",
        "",
        "`coordinator/core/replication.py`. An arrow is a signal and the phase that follows; signals after which",
        "the phase stays are left out.",
        "",
        *_diagram(_owners_edges()),
        "",
        *_table(replication.TRANSITIONS),
        "",
        "## A span, as the dispatch record directs an agent's session",
        "",
        "`agent/core/transitions.py`. An arrow is a directive and the action it leads to; the action `keep`",
        "is left out.",
        "",
        *_diagram(_actions_edges(session.TRANSITIONS)),
        "",
        *_table(session.TRANSITIONS),
        "",
        "## A span's life in an agent",
        "",
        "`agent/core/span/transitions.py`. As above.",
        "",
        *_diagram(_actions_edges(span.TRANSITIONS)),
        "",
        *_table(span.TRANSITIONS),
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


def _actions_edges(table: Mapping[Any, StrEnum]) -> Iterable[tuple[str, str, str]]:
    """(state, action, signal); actions are told from states by their brackets."""
    for (state, signal), action in table.items():
        if action.value != "keep":
            yield "none" if state is None else state.value, f"do_{action.value}", signal.value


def _diagram(edges: Iterable[tuple[str, str, str]]) -> list[str]:
    """A Mermaid state diagram; several signals between two states share an arrow."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for start, end, signal in edges:
        grouped.setdefault((start, end), []).append(signal)
    arrows = [f"    {start} --> {end}: {', '.join(signals)}" for (start, end), signals in grouped.items()]
    return ["```mermaid", "stateDiagram-v2", *arrows, "```"]


def _table(table: Mapping[Any, StrEnum]) -> list[str]:
    states = list(dict.fromkeys(state for state, _ in table))
    signals = list(dict.fromkeys(signal for _, signal in table))
    rows = [
        f"| {signal.value} | "
        + " | ".join(table[state, signal].value if (state, signal) in table else "" for state in states)
        + " |"
        for signal in signals
    ]
    names = " | ".join("none" if state is None else state.value for state in states)
    return [f"| | {names} |", "|---" * (len(states) + 1) + "|", *rows]


def _topics() -> str:
    parts = [
        "# Control topics",
        "",
        f"The topics of coordinators and agents, with the keys on them and who writes each. {_MADE}",
        "The rights that each service needs are in [configuration](../configuration.md#rights-on-kafka), where a test",
        "grants exactly these.",
        "The full name of a topic is `<cluster>.<name>`.",
        "",
        "| topic | key | record | writer |",
        "|---|---|---|---|",
        *(
            f"| {form.topic} | `{_pattern(form)}` | `{form.record.__name__}` | {_writer(form)} |"
            for form in sorted(KEYS, key=lambda form: (form.topic, _pattern(form)))
        ),
        "",
        "| topic | partitions | settings, with three replicas |",
        "|---|---|---|",
        *(_settings(topic) for topic in CONTROL_TOPICS if topic.name in {form.topic for form in KEYS}),
    ]
    return "\n".join(parts) + "\n"


def _pattern(form: type[Key]) -> str:
    return "/".join((*form.prefix, *(f"<{name}>" for name in form.__struct_fields__)))


def _writer(form: type[Key]) -> str:
    if form.by_owner:
        return "the shard's owner"
    others = {MemberKey: "that coordinator", RequestKey: "an operator's command", DeadLetterKey: "an agent's session"}
    return others.get(form, "that session")


def _settings(topic: ControlTopic) -> str:
    settings = ", ".join(f"`{name}={value}`" for name, value in sorted(topic.settings(3).items()))
    return f"| {topic.name} | {'one per shard' if topic.sharded else '1'} | {settings} |"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{FOLDER / name}\n")
