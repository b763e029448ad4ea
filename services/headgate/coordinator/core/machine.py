"""The coordinator as a machine: which rule handles which input. The rules are in four packages beside it.

    spans        reports and deadlines of a span, its division, its removal without a sink
    feeds        what a feed is, discovery of its tables, its checkpoint
    sessions     membership of agents, the barrier at the start of a term, agents that join
    scheduling   rounds: what schedulers see, and how their proposals are started

This package has what all four use: every transition of a span (replication.py), the folded state and its indexes
(state.py, index.py), the decision so far (draft.py), the memory of a term (term.py). Requests (requests.py) use all
four.

An input is recorded, its rule drafts facts, a round of scheduling assigns what has become free, and feeds are brought
in line with their spans. Everything drafted is one decision. Before the barrier is over only memory and deaths are
written.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from headgate.coordinator.core import requests
from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.feeds import acceptance, checkpoint, discovery, feed_lifecycle
from headgate.coordinator.core.scheduling import relocation
from headgate.coordinator.core.scheduling.rounds import run_round
from headgate.coordinator.core.sessions import joining, membership
from headgate.coordinator.core.spans import copying, deadlines, dividing, maintaining, pausing, span_lifecycle
from headgate.coordinator.core.state import CoordinatorState, digest, evolve, new_state, start_counting
from headgate.coordinator.core.term import TermMemory
from headgate.coordinator.schedulers.contract import Scheduler
from headgate.coordinator.schedulers.standard import STANDARD
from headgate.eventlog.log import Delivery
from headgate.records.keys import AgentKey, AnswerKey, ProgressKey, RequestKey, SpanKey, TaskKey
from headgate.runtime.machine import (
    Arrived,
    Decision,
    EffectFinished,
    HolderSilent,
    Machine,
    NoTermError,
    Now,
    TermBegan,
    TimerFired,
)


def decide(state: CoordinatorState, given: Any, now: Now, schedulers: Sequence[Scheduler] = STANDARD) -> Decision:
    """Decide what follows from one input. Of ``state``, only its term's memory changes (state.py)."""
    if isinstance(given, TermBegan):
        state.term = TermMemory(given.owner_rev)
    if state.term is None:
        raise NoTermError(given)
    draft = CoordinatorDraft(state, state.term, now)
    match given:
        case TermBegan():
            start_counting(state)
            if membership.await_answers(draft):
                _open(draft)
        case Arrived(delivery=delivery):
            _on_record(draft, delivery)
        case TimerFired(name=name):
            _on_timer(draft, name)
        case HolderSilent(holder=(agent, session), lease_seconds=lease):
            reason = f"silent for a lease of {lease:g} s"
            if membership.end_session(draft, (agent, session), reason):
                _open(draft)
        case EffectFinished(effect=effect, result=result):
            feed_lifecycle.finish_effect(draft, effect, result)
        case _:
            raise TypeError(f"the coordinator knows no input {type(given).__name__}")
    return _finish(draft, schedulers)


def _on_record(draft: CoordinatorDraft, delivery: Delivery) -> None:
    key, value = delivery.key, delivery.value
    is_open = draft.term.is_open
    match key:
        case TaskKey() if value is not None:
            membership.note_word_of(draft, (key.agent, key.session))
            if is_open:
                span_lifecycle.review(draft, SpanKey(key.feed, key.span))
                feed_lifecycle.note_report(draft, key.feed, value)
        case ProgressKey() if value is not None:
            membership.note_word_of(draft, (key.agent, key.session))
            if is_open:
                span_lifecycle.note_progress(draft, SpanKey(key.feed, key.span), (key.agent, key.session))
                relocation.measure(draft, SpanKey(key.feed, key.span), (key.agent, key.session))
                draft.feeds_touched.add(key.feed)
        case AgentKey():
            if membership.note_agent(draft, (key.agent, key.session), left=value is None):
                _open(draft)
        case AnswerKey() if key.shard == draft.state.shard:
            # The state's record rather than the delivery's: evolve has determined which of two is the later.
            if membership.note_answer(
                draft, (key.agent, key.session), draft.state.answers.get((key.agent, key.session))
            ):
                _open(draft)
        case RequestKey():
            if value is None:
                requests.forget_outcome(draft, key.request)
            elif is_open:
                requests.answer_request(draft, key.request)
        case _:
            pass


def _on_timer(draft: CoordinatorDraft, name: str) -> None:
    purpose = draft.term.timers.pop(name, None)
    if purpose is None:
        return
    rule = TIMERS.get(purpose.kind)
    if rule is None:
        raise TypeError(f"no rule for timer {name}")
    rule(draft, purpose.subject)


def _end_barrier(draft: CoordinatorDraft, _subject: Any) -> None:
    if not draft.term.is_open:
        _open(draft)


def _weigh(draft: CoordinatorDraft, _subject: Any) -> None:
    draft.term.loads.is_due = True


def _even_out(draft: CoordinatorDraft, _subject: Any) -> None:
    draft.term.is_even_due = True


def _write_checkpoint(draft: CoordinatorDraft, name: str) -> None:
    feed_lifecycle.conclude(draft, name, checkpoint.write(draft, name))


TIMERS: Final[Mapping[str, Callable[[CoordinatorDraft, Any], None]]] = {
    "barrier": _end_barrier,
    "prepare": deadlines.expire_prepare,
    "start": deadlines.expire_starts,
    "drain": deadlines.expire_drains,
    "stop": deadlines.expire_stops,
    "review": span_lifecycle.review_piece,
    "undrained": relocation.give_up_drain,
    "delete": feed_lifecycle.delete_piece,
    "retry": lambda draft, key: draft.term.retry_due.put(key),
    "rest": lambda draft, key: draft.term.resting.discard(key),
    "checkpoint": _write_checkpoint,
    "sweep": membership.sweep,
    "resolve": acceptance.ask_again,
    "forget": feed_lifecycle.retry_forget,
    "stuck": feed_lifecycle.give_up,
    "drained": relocation.end_hold,
    "balance": _weigh,
    "even": _even_out,
    "abandon": lambda draft, name: draft.feeds_touched.add(name),
    "discover": discovery.look,
    "schedule": lambda _draft, _subject: None,
}
"""The rule of each kind of timer; the round of scheduling that follows every input is part of it."""


def _open(draft: CoordinatorDraft) -> None:
    """The barrier is over: review everything once, as the last owner would have done bit by bit."""
    draft.term.is_open = True
    draft.term.awaited.clear()
    draft.cancel_timer("barrier", "")
    state = draft.state
    for session in sorted({*state.ended, *state.index.words}):
        membership.note_word_of(draft, session)
    span_lifecycle.review_soon(draft, sorted(state.spans))
    joining.note_present(draft)
    requests.catch_up(draft)


def _finish(draft: CoordinatorDraft, schedulers: Sequence[Scheduler]) -> Decision:
    if draft.term.is_open:
        run_round(draft, schedulers)
        relocation.settle(draft)
        dividing.settle(draft)
        pausing.settle(draft)
        copying.settle(draft)
        maintaining.settle(draft)
        for name in sorted(draft.feeds_touched):
            feed_lifecycle.settle_feed(draft, name)
            if draft.feed(name) is not None:
                checkpoint.note_change(draft, name)
    return draft.decision()


State = CoordinatorState
"""The state of this machine, for code that only passes it on."""


def coordinator(schedulers: Sequence[Scheduler]) -> Machine[CoordinatorState]:
    """The machine with these schedulers, in the order in which they are called."""
    return Machine(
        new_state=new_state, evolve=evolve, decide=partial(decide, schedulers=tuple(schedulers)), digest=digest
    )


COORDINATOR: Final = coordinator(STANDARD)
