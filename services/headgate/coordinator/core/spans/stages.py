"""A span's stage on the way to replication: stage, agent, state and advice. All texts are here.

The checkpoint record, ``headgate why`` and every other text about a span agree, because they use this module. The
answer follows from the log alone, so a process that is not an owner can give it.

Stages (records/error_codes.py): **agent missing**, **barrier** (a new owner waits for agents to answer), **scheduling**
(assigned, or on its way between agents), **source**, **decode**, **sink**, **copying** (its rows are copied from the
source, also while its changes are applied between two turns), **paused** (by an operator). A failed span has the stage
of its error.
"""

from collections.abc import Mapping
from itertools import filterfalse
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.coordinator.core.index import LAG_HOLDS_MS
from headgate.coordinator.core.span_predicates import is_erring, is_open
from headgate.coordinator.core.state import CoordinatorState
from headgate.records.control import (
    Assignment,
    FeedRecorded,
    FeedState,
    PausedTable,
    ReplicationState,
    SpanDispatched,
    TaskReported,
    TaskState,
    WantedState,
)
from headgate.records.copy_states import CopyState, copy_state
from headgate.records.error_codes import (
    COPYING,
    COPYING_CODES,
    NO_ERRORS,
    PARTITIONS_GROWN,
    FailureStage,
    error_code_of,
)
from headgate.records.keys import SpanKey
from headgate.records.name_lists import shown_names
from headgate.records.refusals import is_warning
from headgate.records.row_copies import is_snapshot
from headgate.records.spans import paused_table

FLOWING: Final = "replicating"
"""The stage of a span that is not held up."""


class SpanStanding(msgspec.Struct, frozen=True):
    """``is_late`` marks a span that replicates, but late: it may have applied all since. ``since_ms``: since when.

    ``is_copying``: its rows are not all copied from the source yet.
    """

    stage: str
    agent: str | None = None
    detail: str = ""
    advice: str = ""
    is_late: bool = False
    since_ms: int | None = None
    is_copying: bool = False


def standing_of(state: CoordinatorState, key: SpanKey, unapplied: Mapping[str, int] | None = None) -> SpanStanding:
    """The span's stage. ``unapplied``: used instead of that of the feed's checkpoint (records/control.py)."""
    found, feed = _standing_of(state, key, unapplied), state.feeds.get(key.feed)
    if (
        feed is None
        or copy_state(feed, key.span, state.spans.get(key), state.requests.__contains__) is not CopyState.COPYING
    ):
        return found
    if found.stage == FLOWING or found.is_late:
        detail = "its rows are being copied from the source"
        return SpanStanding(FailureStage.COPYING, found.agent, detail, error_code_of(COPYING).advice, is_copying=True)
    detail = found.detail if found.stage == FailureStage.COPYING else f"{found.detail}; its rows are not all copied yet"
    return replace(found, detail=detail, is_copying=True)


def _standing_of(state: CoordinatorState, key: SpanKey, unapplied: Mapping[str, int] | None) -> SpanStanding:
    record = state.spans.get(key)
    feed = state.feeds.get(key.feed)
    paused = None if feed is None else paused_table(feed, key.span)
    if paused is not None and not is_open(record):
        return _of_paused(key, paused)
    if record is None or record.primary is None:
        return _of_unassigned(state, key, record)
    role = record.primary
    word = state.tasks.get(key, {}).get((role.agent, role.session))
    doing = word.state if word is not None and word.epoch == role.epoch else None
    if record.state is ReplicationState.REMOVING:
        return _of_closing(state, key, record, role.agent)
    if record.secondary is not None and record.state is ReplicationState.COMMIT:
        detail = f"moves: being drained and sealed for {record.secondary.agent}"
        advice = "wait: its writer is draining; if it hangs, another claims the table after a minute"
        return SpanStanding(FailureStage.SCHEDULING, role.agent, detail, advice)
    if record.state is ReplicationState.COMMIT:
        return _of_copy(role, word, record) if record.copy is not None else _of_start(role, doing, record.last_error)
    since_ms = unapplied_since(state, key) if unapplied is None else unapplied.get(key.span)
    return _of_replicating(state, key, record, role, since_ms)


def _of_paused(key: SpanKey, paused: PausedTable) -> SpanStanding:
    detail, since_ms = f"paused by {paused.by}", paused.since_ms
    if paused.copy is not None:
        advice = "wait: rows are copied next, and it then replicates by itself"
        return SpanStanding(FailureStage.COPYING, None, detail, advice, since_ms=since_ms)
    advice = f"`headgate table resume {key.feed} {paused.table}` resumes it"
    return SpanStanding(FailureStage.PAUSED, None, detail, advice, since_ms=since_ms)


def _of_copy(role: Assignment, word: TaskReported | None, record: SpanDispatched) -> SpanStanding:
    advice = "wait: it replicates as soon as they are copied. An error ends the copy, not the table"
    if is_snapshot(record.copy or ""):
        advice = "wait: it replicates as soon as they are copied"
    detail = "rows are being copied from the source"
    if word is not None and word.epoch == role.epoch and word.error_code in COPYING_CODES:
        detail += f": {word.error}"
    return SpanStanding(FailureStage.COPYING, role.agent, f"{detail}{_before(record.last_error)}", advice)


def unapplied_since(state: CoordinatorState, key: SpanKey) -> int | None:
    """The append time (ms) of the span's oldest change that is not applied, if it makes no progress."""
    feed, said = state.feeds.get(key.feed), state.feed_progress.get(key.feed)
    if feed is None or said is None or (said.feed_id, said.incarnation) != (feed.feed_id, feed.incarnation):
        return None
    return (said.unapplied or {}).get(key.span)


def _of_replicating(
    state: CoordinatorState, key: SpanKey, record: SpanDispatched, role: Assignment, since_ms: int | None
) -> SpanStanding:
    word = state.word_of_primary(key, record)
    if word is not None and word.error_code in NO_ERRORS:
        stage = error_code_of(word.error_code).stage
        return SpanStanding(stage, role.agent, _own_work(word), error_code_of(word.error_code).advice)
    if word is not None and is_erring(record, word):
        code = error_code_of(word.error_code)
        detail, advice = f"{word.error_code}: {word.error}", f"{code.advice}; the agent retries by itself"
        return SpanStanding(code.stage, role.agent, detail, advice)
    if since_ms is not None and record.failures:
        code = error_code_of(record.last_error)
        detail = f"failed {_times(record.failures)}; {record.last_error}; {role.agent} retries it"
        return SpanStanding(code.stage, role.agent, detail, code.advice, since_ms=since_ms)
    if since_ms is not None:
        # The source is compared with positions every ten seconds, and one batch of a backlog may take longer.
        detail = f"changes wait, and {role.agent} reports no error: it works off a backlog, or hangs"
        advice = (
            f"wait while `applied` grows in `headgate table list {key.feed}`. If it does not grow for a minute, check "
            "the sink and the agent's log, and end an agent that hangs: its tables move to other agents after a lease"
        )
        return SpanStanding(FailureStage.SINK, role.agent, detail, advice, is_late=True, since_ms=since_ms)
    progress = state.progress.get(key, {}).get((role.agent, role.session))
    if progress is not None and progress.epoch == role.epoch and progress.lag_ms >= LAG_HOLDS_MS:
        detail = f"its last batch became visible {progress.lag_ms / 1000:.1f} s after it was logged"
        advice = "wait while it catches up. If it stays late, check the sink's write latency, and start more agents"
        return SpanStanding(FailureStage.SINK, role.agent, detail, advice, is_late=True)
    return SpanStanding(FLOWING, role.agent)


def _own_work(word: TaskReported) -> str:
    if word.error_code == COPYING:
        return f"replicates, and is copied from the source: {word.error}"
    return f"changes wait for maintenance of the table: {word.error}"


def _of_start(role: Assignment, doing: TaskState | None, last_error: str | None) -> SpanStanding:
    before = _before(last_error)
    if doing is None:
        advice = "check the agent's log. End an agent that hangs: its tables move to other agents after a lease"
        detail = f"assigned, waiting for the agent's first report{before}"
        return SpanStanding(FailureStage.SCHEDULING, role.agent, detail, advice)
    if last_error:
        detail = f"it is being retried; {role.agent} reports {doing}{before}"
        code = error_code_of(last_error)
        return SpanStanding(code.stage, role.agent, detail, code.advice)
    if doing is TaskState.PREPARING:
        advice = "check that the agent reaches the broker and that offsets are retained"
        return SpanStanding(FailureStage.SOURCE, role.agent, "the source is being opened", advice)
    advice = "check that the sink answers and that no session holds the progress row locked"
    return SpanStanding(FailureStage.SINK, role.agent, f"the sink is being claimed; the agent reports {doing}", advice)


def _before(last_error: str | None) -> str:
    return f"; before: {last_error}" if last_error else ""


def _of_closing(state: CoordinatorState, key: SpanKey, record: SpanDispatched, agent: str) -> SpanStanding:
    feed = state.feeds.get(key.feed)
    if feed is not None and feed.abandoned:
        advice = "it is removed without its sink, so no other agent can take the table: end an agent that hangs"
        return SpanStanding(FailureStage.SINK, agent, "it must stop without the sink", advice)
    detail = f"its last position is being sealed at the sink{_before(record.last_error)}"
    return SpanStanding(FailureStage.SINK, agent, detail, "the sink must answer for the table to be sealed")


def _of_unassigned(state: CoordinatorState, key: SpanKey, record: SpanDispatched | None) -> SpanStanding:
    if record is not None and record.failures:
        code = error_code_of(record.last_error)
        detail = f"failed {_times(record.failures)}; {record.last_error}"
        is_closed = record.state is ReplicationState.REMOVING
        again = "it is retried" if is_closed else f"`headgate feed resume {key.feed}` tries again at once"
        return SpanStanding(code.stage, None, detail, f"{code.advice}; {again}")
    if (missing := _missing(state)) is not None:
        return missing
    silent = _unanswered(state, key)
    if silent:
        detail = f"a new owner waits for {shown_names(silent)} to answer, for one lease at most"
        return SpanStanding(FailureStage.BARRIER, None, detail, "wait. If the agent never answers, end its process")
    if record is not None and record.state is ReplicationState.REMOVING:
        return SpanStanding(
            FailureStage.SCHEDULING, None, "waits for an agent to seal it", "at least one agent must be alive"
        )
    old = [other.span for other in state.index.overlapping(key) if is_open(state.spans.get(other))]
    if old:
        detail = f"its table is divided otherwise now: waits for {shown_names(old)} to be sealed"
        return SpanStanding(FailureStage.SCHEDULING, None, detail, "wait: what was written before is drained first")
    detail = "waits for an agent with free capacity, or for one that has not stopped writing it yet"
    advice = "wait; if it stays, look for an agent with free capacity: `headgate agent list`"
    return SpanStanding(FailureStage.SCHEDULING, None, detail, advice)


def _missing(state: CoordinatorState) -> SpanStanding | None:
    """Why no agent can be assigned a span; None if one can."""
    live = list(state.index.live.in_order())
    if not live:
        return SpanStanding(
            FailureStage.AGENT_MISSING, None, "no agent is alive", "start an agent: `headgate serve agent`"
        )
    if not all(state.is_starting(session) for session in live):
        return None
    names = shown_names(sorted({agent for agent, _ in live}))
    return SpanStanding(
        FailureStage.AGENT_MISSING, None, f"agents are starting: {names}", "wait: Spark takes a while to start"
    )


def _unanswered(state: CoordinatorState, key: SpanKey) -> list[str]:
    """Agents that the owner's barrier waits for; empty once the barrier is over."""
    if state.term is not None:
        return sorted({agent for agent, _ in state.term.awaited})
    said = (state.spans.get(key), state.feeds.get(key.feed), state.feed_progress.get(key.feed))
    if any(record is not None and record.owner_rev == state.owner_rev for record in said):
        return []  # it has decided something in this term, which it does only after the barrier
    late = set()
    for session in state.index.live.in_order():
        answer = state.answers.get(session)
        if not state.is_starting(session) and (answer is None or answer.owner_rev != state.owner_rev):
            late.add(session[0])
    return sorted(late)


def feed_held_by(state: CoordinatorState, feed: str, *, has_owner: bool, kept_by: str = "") -> tuple[str, ...]:
    """What holds the feed as a whole, whatever its tables do: one text each, with what to do.

    ``kept_by``: the migration that pauses and resumes the feed, if there is one.
    """
    record = state.feeds[feed]
    lines = []
    if not has_owner:
        lines.append(f"its shard {state.shard} has no owner; start one: `headgate serve coordinator`")
    if record.state is FeedState.FAILED:
        lines.append(f"it has failed: {record.error}; remove the cause, then `headgate feed resume {feed}`")
    elif record.wanted is WantedState.FINISHED:
        is_over = record.state is FeedState.FINISHED
        lines += [] if is_over else ["it has reached its target_ts; its last tables are being sealed"]
    elif record.error_code == PARTITIONS_GROWN:
        lines.append(f"it was stopped: {record.error}")
    elif record.abandoned:
        lines.append(
            "an operator has given its sink up; it is gone once every agent has stopped its tables, or has ended"
        )
    elif record.wanted is WantedState.REMOVED:
        lines.append("an operator has removed it; it is gone once every table is sealed and the sink is cleaned")
    elif record.wanted is not WantedState.RUNNING and kept_by:
        lines.append(
            f"migration {kept_by} has paused it and resumes it by itself: `headgate why {kept_by}`. Leave the feed "
            "alone, because resuming it by hand ends the migration"
        )
    elif record.wanted is not WantedState.RUNNING:
        lines.append(f"an operator wants it {record.wanted.value}; `headgate feed resume {feed}` resumes it")
        lines += _paused_copies(state, feed, record)
    elif not record.spans:
        lines.append("it has no table yet; a table joins by itself once its topic exists")
    if record.wanted is WantedState.RUNNING:
        lines.extend(filterfalse(is_warning, record.notices))  # warnings hold nothing
    return tuple(lines)


def _paused_copies(state: CoordinatorState, feed: str, record: FeedRecorded) -> list[str]:
    names = [
        plan.table
        for plan in record.spans
        if copy_state(record, plan.span, state.spans.get(SpanKey(feed, plan.span)), state.requests.__contains__)
        is not None
    ]
    if not names:
        return []
    return [f"rows of {shown_names(sorted(names))} are not all copied yet; the copy continues when the feed is resumed"]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times in a row"
