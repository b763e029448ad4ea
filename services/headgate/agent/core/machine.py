"""A session of an agent as a pure machine: dispatch records in, task actions and reports out.

The owner never calls an agent. It writes who may do what with a span (SpanDispatched), and the agent reads there what
is meant for its session. From the newest record of a span follows a **directive**, from the task's state and the
directive follows an **action** (transitions.py, a table that holds every pair that can occur). What the executor then
reports about its tasks comes in as TaskObserved and leaves as facts under keys that only this session writes.

The state holds records only, the session's own facts among them, and only ``evolve`` changes it. Actions are thus
asked for again whenever a record is read again: the executor's calls are idempotent per (epoch, call); a lost effect
heals by itself. Times on records are for people; the pace of progress is set by a timer of the loop.
"""

from typing import Final

from msgspec.structs import replace

from headgate.agent.core.announcements import answered
from headgate.agent.core.executor import CopyOrder, SpanId, SpanTask, TaskStatus
from headgate.agent.core.messages import (
    AddTable,
    AgentInput,
    CheckNotRun,
    CloseTable,
    DropCopy,
    EndSession,
    ForgetTable,
    MaintainTable,
    NotRun,
    ProgressDue,
    ReadProgress,
    RemoveTable,
    SessionStarted,
    TaskObserved,
)
from headgate.agent.core.state import AgentState, role_of, task_count
from headgate.agent.core.transitions import TRANSITIONS, Directive, SessionAction
from headgate.records.base import Fact, Key
from headgate.records.control import (
    Epoch,
    FeedRecorded,
    ReplicationState,
    SpanDispatched,
    SpanProgressed,
    TaskReported,
    TaskState,
)
from headgate.records.fitting import fitted
from headgate.records.keys import AnswerKey, FeedKey, OwnerKey, ProgressKey, RequestKey, SessionKey, SpanKey, TaskKey
from headgate.records.levels import withheld
from headgate.records.spans import plan_of
from headgate.records.stored_names import plan_today
from headgate.runtime.machine import Arrived, Decision, Now, SetTimer, TimerFired
from headgate.runtime.table import UnknownTransitionError

PROGRESS_TIMER: Final = "progress"

PROGRESS_SECONDS: Final = 1.0
"""Pace of checkpoint records of a span: a person sees it move, and 200 spans stay 200 small records a second."""


LAG_GROWN_MS: Final = 10_000
"""A table that applies nothing is reported again each time its lag has grown by so much."""


class EpochWentBackError(Exception):
    """A role under a lower epoch than a task already had: the log contradicts itself, the session ends."""


def decide(state: AgentState, event: AgentInput, now: Now) -> Decision:
    """What follows from ``event``. Raises UnknownTransitionError or EpochWentBackError on a log that cannot be."""
    match event:
        case SessionStarted():
            return _join(
                _answers(state, now, started=True),
                *(_act(state, span, state.reports.get(span)) for span in sorted(state.dispatched)),
                Decision(effects=(SetTimer(PROGRESS_TIMER, PROGRESS_SECONDS),)),
            )
        case Arrived(delivery=delivery):
            return _on_record(state, delivery.key, now)
        case TaskObserved() | NotRun():
            return _on_answer(state, event, now)
        case TimerFired(name=name) if name == PROGRESS_TIMER:
            return Decision(effects=(ReadProgress(), SetTimer(PROGRESS_TIMER, PROGRESS_SECONDS)))
        case ProgressDue(statuses=statuses):
            return _join(*(_progress(state, status, now) for status in statuses))
        case _:
            return Decision()


def _on_record(state: AgentState, key: Key, now: Now) -> Decision:
    match key:
        case OwnerKey():
            return _answers(state, now, started=False)
        case SessionKey(agent=state.agent, session=state.session) if state.ended is not None:
            return Decision(effects=(EndSession(state.ended),))
        case SpanKey(feed=feed, span=span):
            return _act(state, SpanId(feed, span), state.reports.get(SpanId(feed, span)))
        case FeedKey(feed=feed):
            spans = [span for span in sorted(state.dispatched) if span.feed == feed]
            return _join(*(_act(state, span, state.reports.get(span)) for span in spans))
        case RequestKey(request=request):
            return _on_request(state, request)
        case _:
            return Decision()


def _on_request(state: AgentState, request: str) -> Decision:
    if request not in state.copies:
        return Decision(effects=(DropCopy(request),))
    spans = [span for span, record in sorted(state.dispatched.items()) if record.copy == request]
    return _join(*(_act(state, span, state.reports.get(span)) for span in spans))


def _answers(state: AgentState, now: Now, *, started: bool) -> Decision:
    """Unasked to every shard at the start, then to every owner_rev not yet answered."""
    facts = []
    for shard in range(state.shards):
        rev = state.owners.get(shard)
        if started:
            facts.append(_answer(state, shard, None, now))
        if rev is not None and state.answers.get(shard) != rev:
            facts.append(_answer(state, shard, rev, now))
    return Decision(facts=tuple(facts))


def _answer(state: AgentState, shard: int, rev: int | None, now: Now) -> Fact:
    return Fact(AnswerKey(state.agent, state.session, shard), answered(rev, task_count(state), now.wall_ms))


def _on_answer(state: AgentState, event: TaskObserved | NotRun, now: Now) -> Decision:
    match event:
        case TaskObserved(status=status):
            return _on_status(state, status, now)
        case NotRun(span=span, epoch=epoch):
            return _never_run(state, span, epoch, now)


def _on_status(state: AgentState, status: TaskStatus, now: Now) -> Decision:
    told = TaskReported(
        feed_id=status.feed_id,
        epoch=status.epoch,
        state=status.state,
        positions=status.positions,
        error_code=status.error_code,
        error=status.error,
        retryable=status.retryable,
        reported_ms=now.wall_ms,
    )
    done = status.maintained
    if done is not None and done.request is not None:
        told = replace(told, maintained=done.request, maintenance=done.text, maintenance_failed=done.has_failed)
    report, last = fitted(told), state.reports.get(status.id)
    if last is not None and _said(last) == _said(report):
        return Decision()
    key = TaskKey(status.id.feed, status.id.span, state.agent, state.session)
    final = _progress(state, status, now) if status.state in {TaskState.STOPPED, TaskState.FAILED} else Decision()
    return _join(Decision(facts=(Fact(key, report),)), final, _act(state, status.id, report))


def _said(report: TaskReported) -> tuple[object, ...]:
    """What makes a report another one than the one before."""
    return (report.epoch, report.state, report.error, report.maintained)


def _progress(state: AgentState, status: TaskStatus, now: Now) -> Decision:
    """A checkpoint record if there is something new; a task that has not claimed has nothing to report."""
    last = state.progress.get(status.id)
    if not status.has_claimed:
        return Decision()
    moved = last is None or (last.epoch, last.positions, last.rows) != (status.epoch, status.positions, status.rows)
    lag_changed = last is not None and (
        (last.lag_ms > 0 and status.lag_ms == 0) or status.lag_ms - last.lag_ms >= LAG_GROWN_MS
    )
    told = SpanProgressed(
        feed_id=status.feed_id,
        epoch=status.epoch,
        positions=status.positions,
        seen_ts=status.seen_ts,
        resolved_ts=status.resolved_ts,
        rows=status.rows,
        bytes=status.bytes,
        lag_ms=status.lag_ms,
        progressed_ms=now.wall_ms,
        passed_over=status.passed_over,
        passed_over_table=status.passed_over_table,
    )
    value = fitted(told)
    resolved = last is not None and value.resolved_ts is not None and last.resolved_ts != value.resolved_ts
    if not moved and not lag_changed and not resolved:
        return Decision()
    key = ProgressKey(status.id.feed, status.id.span, state.agent, state.session)
    return Decision(facts=(Fact(key, withheld(value, state.level)),))


def _act(state: AgentState, span: SpanId, report: TaskReported | None) -> Decision:
    """The action that the span's newest record and the task's state ask for."""
    record = state.dispatched.get(span)
    directive = directive_of(state, record, report, state.feeds.get(span.feed))
    task_state = None if report is None else report.state
    action = TRANSITIONS.get((task_state, directive))
    if action is None:
        raise UnknownTransitionError(f"{span.feed}/{span.span}: task is {task_state}, dispatched is {directive}")
    match action:
        case SessionAction.KEEP if task_state is TaskState.REPLICATING and directive is Directive.REPLICATE:
            asked = None if record is None else record.maintain
            is_done = report is not None and report.maintained == asked
            return Decision() if asked is None or is_done else Decision(effects=(MaintainTable(span, asked),))
        case SessionAction.KEEP | SessionAction.WAIT:
            return Decision()
        case SessionAction.SEAL | SessionAction.STOP:
            return Decision(effects=(RemoveTable(span, seal=action is SessionAction.SEAL),))
        case SessionAction.SAY_STOPPED:
            return _ask_whether_run(state, span)
        case SessionAction.FORGET:
            return Decision(facts=_last_words(state, span) if record is None else (), effects=(ForgetTable(span),))
        case SessionAction.PREPARE | SessionAction.REPLICATE | SessionAction.CLOSE:
            return _start(state, span, action)


def _ask_whether_run(state: AgentState, span: SpanId) -> Decision:
    """Of a role for which no task was observed; an effect that began one may have been asked for in this very turn."""
    role = role_of(state, state.dispatched[span])
    return Decision() if role is None else Decision(effects=(CheckNotRun(span, role.epoch),))


def _never_run(state: AgentState, span: SpanId, epoch: Epoch, now: Now) -> Decision:
    """The word of a session that was given a role and runs nothing under it, now or later."""
    record = state.dispatched.get(span)
    directive = directive_of(state, record, state.reports.get(span), state.feeds.get(span.feed))
    role = None if record is None else role_of(state, record)
    if record is None or role is None or role.epoch != epoch or directive is not Directive.ABANDON_ANEW:
        return Decision()
    said = TaskReported(record.feed_id, epoch, TaskState.STOPPED, {}, None, None, False, now.wall_ms)
    return Decision(facts=(Fact(TaskKey(span.feed, span.span, state.agent, state.session), said),))


def _last_words(state: AgentState, span: SpanId) -> tuple[Fact, ...]:
    """The owner has deleted the span: this session deletes its own records of it."""
    task = TaskKey(span.feed, span.span, state.agent, state.session)
    progress = ProgressKey(span.feed, span.span, state.agent, state.session)
    return (Fact(task, None), *((Fact(progress, None),) if span in state.progress else ()))


def _start(state: AgentState, span: SpanId, action: SessionAction) -> Decision:
    """Starting needs the feed as accepted; it may arrive after the dispatch, which is then looked at again."""
    record = state.dispatched[span]
    role = role_of(state, record)
    feed = state.feeds.get(span.feed)
    if role is None or feed is None or not _is_under(record, feed):
        return Decision()
    plan = plan_of(feed.spans, span.span)
    if plan is None:
        return Decision()
    copy = None
    if record.copy is not None and action is SessionAction.REPLICATE:
        if record.copy not in state.copies:
            return Decision()  # it may arrive after the dispatch; if it was deleted, the owner dispatches without it
        copy = CopyOrder(record.copy, state.copies[record.copy])
    plan = plan_today(feed.spec, plan)
    task = SpanTask(span, record.feed_id, record.incarnation, role.epoch, plan, feed.spec, copy)
    if action is SessionAction.CLOSE:
        return Decision(effects=(CloseTable(task),))
    return Decision(effects=(AddTable(task, prepare=action is SessionAction.PREPARE),))


def _is_under(record: SpanDispatched, feed: FeedRecorded) -> bool:
    """Whether the record was made for the feed as it is recorded here, neither an older nor a newer form of it."""
    made_for = (record.feed_id, record.incarnation, record.revision)
    return made_for == (feed.feed_id, feed.incarnation, feed.revision)


def directive_of(
    state: AgentState, record: SpanDispatched | None, report: TaskReported | None, feed: FeedRecorded | None = None
) -> Directive:
    """What ``record``, of ``feed``, asks of this session, whose task last reported ``report``."""
    role = None if record is None else role_of(state, record)
    is_over = report is None or report.state in (TaskState.STOPPED, TaskState.FAILED)
    if feed is not None and feed.abandoned and report is not None and feed.feed_id == report.feed_id and not is_over:
        return Directive.ABANDON
    if record is None or role is None:
        return Directive.NONE
    if report is not None and role.epoch < report.epoch:
        raise EpochWentBackError(f"role under epoch {role.epoch}, but a task has run under {report.epoch}")
    known = report is not None and role.epoch == report.epoch
    if feed is not None and feed.abandoned and feed.feed_id == record.feed_id:
        return Directive.ABANDON if known else Directive.ABANDON_ANEW
    if role is not record.primary:
        return Directive.PREPARE if known else Directive.PREPARE_ANEW
    ending = record.state is ReplicationState.REMOVING or (
        record.state is ReplicationState.COMMIT and record.secondary is not None
    )
    if ending:
        return Directive.DRAIN if known else Directive.CLOSE
    return Directive.REPLICATE if known else Directive.REPLICATE_ANEW


def _join(*decisions: Decision) -> Decision:
    return Decision(
        facts=tuple(fact for decision in decisions for fact in decision.facts),
        effects=tuple(effect for decision in decisions for effect in decision.effects),
    )
