"""Live sessions, their answers, and the sync barrier at the start of a term.

The barrier. A new owner dispatches nothing before every live session has answered *its* announcement, or one lease has
passed. The answer follows the session's task reports in the same partition, so once it is read, so are they: the owner
then knows what each session runs. A session that has not answered when the lease is over is not a target, and its roles
count as lost, until it answers; the sink fences it in the meantime. Requests wait as well; heartbeats and reports are
kept.

What counts as an answer. ``SyncAnswered.owner_rev`` equal to this owner's; or null (the unrequested report of a new
session, "I run nothing") if it was read *after* this term began. Why a null is sufficient then, and only then: earlier
owners dispatched only to sessions whose answer they had read; their dispatch was committed before this owner's ``init``
fenced them; so that answer is below the end which this owner captured after ``init`` and replayed to. A null that comes
later is therefore from a session to which only this owner can have assigned a role. A null met in replay proves
nothing: the session may have been dispatched to since.

Starting sessions. An agent announces itself before its Spark is warm and answers no owner until it is: it is not a
target. A new owner waits only for sessions known from the log by an answer, a task report or a role. By the same
reasoning, no owner can have assigned anything to any other session.

Names. Two processes may run under one agent's name. The one whose announcement comes first on the log keeps it: the
other will read that, and end itself within a lease (``IdWatch`` of the agent). The owner follows the same order while
it reads live, and does not change it. When its term begins, or when the session that had the name is dead, it knows
only which one has announced itself more often (at one pace, so longer). Where that is wrong, which takes a change of
owners within the twins' first lease, it assigns to one that ends, and then to the other.

Death. ``HolderSilent`` writes SessionEnded, which is final. The owner deletes the dead session's keys: task reports a
minute later, progress as soon as a successor's progress has superseded it. When nothing is left, and no span names the
session, SessionEnded is deleted too, a minute after all else.

Why a zombie's late reports are harmless even then. A task report counts only under the epoch of a role, an answer only
under the owner_rev of a term, and neither ever repeats; no role names the session any more. What is left is a late
heartbeat (with a late answer to this very owner, at most): that looks like a session which starts and dies at once. It
is written dead again a lease later, and no process has touched what it might have been assigned since, because the
zombie itself checks its lease before it does anything. Reports without any announcement are ended and swept likewise.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.ranking import Ranking
from headgate.coordinator.core.sessions import joining
from headgate.coordinator.core.spans import span_lifecycle
from headgate.coordinator.core.term import SessionId
from headgate.records.control import SESSION_LEFT, SessionEnded, SyncAnswered
from headgate.records.keys import AgentKey, AnswerKey, ProgressKey, SessionKey, SpanKey, TaskKey

_NO_SPANS: Final[Ranking[SpanKey]] = Ranking()

SWEEP_SECONDS: Final = 60.0
"""How long a dead session's reports are kept for an investigation; and the pace of further checks."""

SWEEP_KEYS_MAX: Final = 1_000
"""Tombstones of one sweep: one transaction stays small beside TURN_FACTS_MAX of the loop (runtime/term.py)."""


def await_answers(draft: CoordinatorDraft) -> bool:
    """When a term begins: wait for every live session that is not starting; True if there is none to wait for."""
    live = [session for session in draft.state.index.live.in_order() if draft.is_live(session)]
    draft.term.awaited.update(session for session in live if not draft.state.is_starting(session))
    draft.set_timer("barrier", "", draft.state.lease_seconds)
    _give_names(draft, live)
    return not draft.term.awaited


def _give_names(draft: CoordinatorDraft, sessions: Iterable[SessionId]) -> None:
    agents = draft.state.agents
    for session in sorted(sessions, key=lambda one: (-agents[one].heartbeat, one)):
        _give_name(draft, session)


def _give_name(draft: CoordinatorDraft, session: SessionId) -> None:
    """Of several sessions of an agent one has its name for as long as it lives and is not replaced."""
    holder = draft.term.names.get(session[0])
    if holder != session and (holder is None or not draft.has_name(holder)):
        draft.term.names[session[0]] = session


def note_answer(draft: CoordinatorDraft, session: SessionId, answer: SyncAnswered | None) -> bool:
    """Record an answer; True if it was the last one awaited."""
    term = draft.term
    if answer is not None and answer.owner_rev is None:
        term.newcomers.add(session)
    if term.is_open:
        joining.note_answered(draft, session)
    if session not in term.awaited or not draft.is_answered(session):
        return False
    term.awaited.discard(session)
    return not term.awaited


def note_agent(draft: CoordinatorDraft, session: SessionId, *, left: bool) -> bool:
    """Record a heartbeat, or, ``left``, a session's own farewell; True if the barrier waited for no other session."""
    if left:
        return end_session(draft, session, f"{SESSION_LEFT}it deleted its announcement")
    if session not in draft.state.ended:
        _give_name(draft, session)
    return False


def end_session(draft: CoordinatorDraft, session: SessionId, reason: str) -> bool:
    """Write the session dead and take its roles; True if the barrier waited for no other session."""
    if session in draft.state.ended:
        return False
    ended = SessionEnded(owner_rev=draft.term.owner_rev, reason=reason, ended_ms=draft.now.wall_ms)
    draft.put(SessionKey(*session), ended)
    draft.set_timer("sweep", session, SWEEP_SECONDS)
    draft.term.passed_over.pop(session, None)
    draft.term.met.discard(session)
    draft.term.joiners.pop(session, None)
    if draft.term.names.get(session[0]) == session:
        del draft.term.names[session[0]]
        _give_names(draft, draft.state.index.namesakes.get(session[0], set()) - {session})
    if draft.term.is_open:
        span_lifecycle.review_soon(draft, sorted(draft.state.index.roles.get(session, _NO_SPANS).in_order()))
        return False
    was_awaited = session in draft.term.awaited
    draft.term.awaited.discard(session)
    return was_awaited and not draft.term.awaited


def note_word_of(draft: CoordinatorDraft, session: SessionId) -> None:
    """Schedule the clean-up of a session that has ended, or is unknown, and has written or left something."""
    if not draft.state.is_live(session) and not draft.has_timer("sweep", session):
        draft.set_timer("sweep", session, SWEEP_SECONDS)


def sweep(draft: CoordinatorDraft, session: SessionId) -> None:
    """Delete what a dead session has left and no process needs any more, a piece at a time; SessionEnded comes last."""
    state = draft.state
    if session in state.agents and session not in state.ended:
        return
    if session not in state.ended:
        # It has reports, but neither announcement nor death: a late report of a session that was forgotten.
        end_session(draft, session, "unknown: it writes, but has not announced itself")
        return
    has_traces = session in state.agents or session in state.answers or session in state.index.words
    if not has_traces and not state.index.roles.get(session):
        draft.put(SessionKey(*session), None)
        return
    if session in state.agents:
        draft.put(AgentKey(*session), None)
    if session in state.answers:
        draft.put(AnswerKey(*session, state.shard), None)
    left = draft.term.sweeping.setdefault(session, deque(sorted(state.index.words.get(session, _NO_SPANS).in_order())))
    for _ in range(min(len(left), SWEEP_KEYS_MAX)):
        _sweep_words(draft, session, left.popleft())
    if not left:
        del draft.term.sweeping[session]
    draft.set_timer("sweep", session, 0.0 if left else SWEEP_SECONDS)


def _sweep_words(draft: CoordinatorDraft, session: SessionId, key: SpanKey) -> None:
    if session in draft.state.tasks.get(key, ()):
        draft.put(TaskKey(key.feed, key.span, *session), None)
    if session in draft.state.progress.get(key, ()) and _is_superseded(draft, key, session):
        draft.put(ProgressKey(key.feed, key.span, *session), None)


def _is_superseded(draft: CoordinatorDraft, key: SpanKey, session: SessionId) -> bool:
    if draft.feed(key.feed) is None or draft.span(key) is None:
        return True
    words = draft.state.progress[key]
    mine = words[session]
    return any(other.epoch > mine.epoch for name, other in words.items() if name != session)
