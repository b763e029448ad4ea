"""The agent's machine: every pair of its table, what it answers to owners, and what it does with late records."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.agent.core.executor import SpanId, TaskStatus
from headgate.agent.core.machine import PROGRESS_TIMER, EpochWentBackError, decide
from headgate.agent.core.messages import (
    AddTable,
    CheckNotRun,
    CloseTable,
    EndSession,
    ForgetTable,
    NotRun,
    ProgressDue,
    ReadProgress,
    RemoveTable,
    SessionStarted,
    TaskObserved,
)
from headgate.agent.core.state import AgentState, evolve, new_state
from headgate.agent.core.transitions import TRANSITIONS, Directive, SessionAction
from headgate.eventlog.log import Delivery, Partition
from headgate.records.base import Key, Record
from headgate.records.control import (
    Assignment,
    Epoch,
    FeedRecorded,
    OwnerAnnounced,
    ReplicationState,
    SessionEnded,
    SpanDispatched,
    SpanPlan,
    SpanProgressed,
    SyncAnswered,
    TaskReported,
    TaskState,
    WantedState,
)
from headgate.records.keys import FeedKey, OwnerKey, ProgressKey, SessionKey, SpanKey, TaskKey
from headgate.records.spans import plan_of
from headgate.runtime.machine import Arrived, Decision, Now, SetTimer, TimerFired
from headgate.runtime.table import UnknownTransitionError
from support import build
from support.codec import decode, encode

NOW = Now(monotonic=50.0, wall_ms=1_000)
SPAN = SpanId("shop", "public.goods")
PLAN = SpanPlan(span="public.goods", topic="shop.public.goods", table="public.goods", start={0: 3})
ME = ("a1", "s1")
OTHER = ("a2", "s2")


def session() -> AgentState:
    return new_state(*ME, shards=2)


def arrive(state: AgentState, key: Key, value: Record | None, offset: int = 5) -> Decision:
    evolve(state, key, value, offset)
    decision = decide(state, Arrived(Delivery(Partition(key.topic, 0), offset, key, value)), NOW)
    return adopt(state, decision)


def adopt(state: AgentState, decision: Decision) -> Decision:
    for fact in decision.facts:
        evolve(state, fact.key, fact.value, -1)
    return decision


def owner(rev: int | None) -> OwnerAnnounced:
    return build.owner_announced(owner_rev=rev, version="1")


def feed(feed_id: str = "0-7", incarnation: int = 1) -> FeedRecorded:
    return build.feed_recorded(feed_id=feed_id, incarnation=incarnation, spans=(PLAN,))


def dispatch(
    state: ReplicationState,
    primary: tuple[str, str] | None = None,
    secondary: tuple[str, str] | None = None,
    *,
    n: int = 1,
    rev: int = 1,
) -> SpanDispatched:
    """The primary has epoch n, the secondary n + 1."""
    return build.span_dispatched(
        feed_id="0-7",
        owner_rev=rev,
        state=state,
        primary=None if primary is None else Assignment(*primary, Epoch(rev, n)),
        secondary=None if secondary is None else Assignment(*secondary, Epoch(rev, n + 1)),
    )


def status(state: TaskState, *, n: int = 1, rows: int = 0, error: str | None = None) -> TaskStatus:
    return TaskStatus(
        id=SPAN,
        feed_id="0-7",
        epoch=Epoch(1, n),
        state=state,
        positions={0: 3 + rows},
        seen_ts=None,
        rows=rows,
        bytes=rows * 10,
        lag_ms=4,
        error_code=None if error is None else "sink_refused",
        error=error,
        retryable=False,
    )


def observe(state: AgentState, seen: TaskStatus) -> Decision:
    return adopt(state, decide(state, TaskObserved(seen), NOW))


# What each directive looks like on the log, for a task whose epoch is (1, 5).
RECORDS = {
    Directive.NONE: dispatch(ReplicationState.REPLICATING, OTHER, n=9),
    Directive.PREPARE: dispatch(ReplicationState.PREPARE, OTHER, ME, n=4),
    Directive.PREPARE_ANEW: dispatch(ReplicationState.PREPARE, OTHER, ME, n=6),
    Directive.REPLICATE: dispatch(ReplicationState.REPLICATING, ME, n=5),
    Directive.REPLICATE_ANEW: dispatch(ReplicationState.COMMIT, ME, n=6),
    Directive.DRAIN: dispatch(ReplicationState.COMMIT, ME, OTHER, n=5),
    Directive.CLOSE: dispatch(ReplicationState.REMOVING, ME, n=6),
    Directive.ABANDON: dispatch(ReplicationState.REMOVING, ME, n=5),
    Directive.ABANDON_ANEW: dispatch(ReplicationState.REMOVING, ME, n=6),
}

EFFECTS = {
    SessionAction.KEEP: (),
    SessionAction.WAIT: (),
    SessionAction.PREPARE: (AddTable, True),
    SessionAction.REPLICATE: (AddTable, False),
    SessionAction.SEAL: (RemoveTable, True),
    SessionAction.STOP: (RemoveTable, False),
    SessionAction.CLOSE: (CloseTable,),
    SessionAction.FORGET: (ForgetTable,),
    SessionAction.SAY_STOPPED: (CheckNotRun,),
}


def shape(decision: Decision) -> tuple[object, ...]:
    if not decision.effects:
        return ()
    (effect,) = decision.effects
    match effect:
        case AddTable(prepare=prepare):
            return (AddTable, prepare)
        case RemoveTable(seal=seal):
            return (RemoveTable, seal)
        case _:
            return (type(effect),)


@pytest.mark.parametrize(("task", "directive"), list(itertools.product([None, *TaskState], Directive)))
def test_every_pair_leads_to_its_action_or_is_refused(task: TaskState | None, directive: Directive) -> None:
    state = session()
    arrive(state, FeedKey("shop"), feed())
    if task is not None:
        state.dispatched[SPAN] = RECORDS[Directive.NONE]  # a record that is there, if not about us any more
        observe(state, status(task, n=5))
    record = RECORDS[directive]
    if directive in (Directive.ABANDON, Directive.ABANDON_ANEW):
        state.feeds["shop"] = replace(feed(), wanted=WantedState.REMOVED, abandoned=True)
    # While something runs that is not the role's, the epoch makes no difference: it is stopped first.
    without_task = {Directive.PREPARE, Directive.REPLICATE, Directive.DRAIN, Directive.ABANDON}
    if task is None and directive in without_task:
        # The log cannot say this to a session without a task: the same record means a new epoch to it.
        assert (task, directive) not in TRANSITIONS
        return
    if (task, directive) not in TRANSITIONS:
        with pytest.raises(UnknownTransitionError, match=r"shop/public\.goods"):
            arrive(state, SpanKey("shop", "public.goods"), record)
        return
    decision = arrive(state, SpanKey("shop", "public.goods"), record)
    assert shape(decision) == EFFECTS[TRANSITIONS[task, directive]]
    for effect in decision.effects:
        if isinstance(effect, AddTable | CloseTable):
            assert effect.task.plan == PLAN
            assert effect.task.epoch in {Epoch(1, 5), Epoch(1, 6), Epoch(1, 7)}


def test_the_table_holds_no_pair_twice_and_misses_only_the_impossible() -> None:
    missing = set(itertools.product([None, *TaskState], Directive)) - set(TRANSITIONS)
    assert missing == {
        (None, Directive.PREPARE),
        (None, Directive.REPLICATE),
        (None, Directive.DRAIN),
        (None, Directive.ABANDON),
        (TaskState.REPLICATING, Directive.PREPARE),
    }


def test_who_has_a_role_in_an_abandoned_feed_says_that_it_runs_nothing() -> None:
    state = session()
    arrive(state, FeedKey("shop"), replace(feed(), wanted=WantedState.REMOVED, abandoned=True))
    role = dispatch(ReplicationState.REMOVING, ME, n=6)
    asked = arrive(state, SpanKey("shop", "public.goods"), role)
    assert asked == Decision(effects=(CheckNotRun(SPAN, Epoch(1, 6)),)), "nothing is said before the executor was asked"
    (fact,) = adopt(state, decide(state, NotRun(SPAN, Epoch(1, 6)), NOW)).facts
    assert isinstance(fact.value, TaskReported)
    assert (fact.value.state, fact.value.epoch) == (TaskState.STOPPED, Epoch(1, 6))
    assert arrive(state, SpanKey("shop", "public.goods"), role) == Decision()
    assert decide(state, NotRun(SPAN, Epoch(1, 6)), NOW) == Decision(), "it is said once"


def test_that_nothing_runs_is_said_only_of_the_role_that_was_asked_about() -> None:
    state = session()
    assert decide(state, NotRun(SPAN, Epoch(1, 6)), NOW) == Decision(), "nothing is dispatched"
    arrive(state, FeedKey("shop"), replace(feed(), wanted=WantedState.REMOVED, abandoned=True))
    arrive(state, SpanKey("shop", "public.goods"), dispatch(ReplicationState.REMOVING, ME, n=7))
    assert decide(state, NotRun(SPAN, Epoch(1, 6)), NOW) == Decision(), "it has another role by now"
    arrive(state, SpanKey("shop", "public.goods"), dispatch(ReplicationState.REMOVING, OTHER, n=7))
    assert decide(state, NotRun(SPAN, Epoch(1, 7)), NOW) == Decision(), "it is another's by now"


@pytest.mark.parametrize("role", [ME, OTHER])
def test_a_seal_that_is_tried_again_and_again_ends_when_the_sink_is_abandoned(role: tuple[str, str]) -> None:
    state = session()
    arrive(state, FeedKey("shop"), feed())
    arrive(state, SpanKey("shop", "public.goods"), dispatch(ReplicationState.COMMIT, ME, n=5))
    observe(state, status(TaskState.STOPPING, n=5))
    assert arrive(state, SpanKey("shop", "public.goods"), dispatch(ReplicationState.REMOVING, role, n=5)).effects == ()
    abandoned = replace(feed(), wanted=WantedState.REMOVED, abandoned=True)
    assert arrive(state, FeedKey("shop"), abandoned).effects == (RemoveTable(SPAN, seal=False),)
    observe(state, status(TaskState.STOPPED, n=5))
    gone = arrive(state, SpanKey("shop", "public.goods"), None)
    assert gone.effects == (ForgetTable(SPAN),)


def test_a_session_answers_unasked_and_then_once_per_owner() -> None:
    state = session()
    evolve(state, OwnerKey(1), owner(None), 12)
    started = adopt(state, decide(state, SessionStarted(), NOW))
    answers = [fact.value for fact in started.facts]
    assert [(a.owner_rev) for a in answers if isinstance(a, SyncAnswered)] == [None, None, 12]
    assert SetTimer(PROGRESS_TIMER, 1.0) in started.effects

    assert arrive(state, OwnerKey(1), owner(12)).facts == ()
    (fact,) = arrive(state, OwnerKey(1), owner(None), offset=20).facts
    assert isinstance(fact.value, SyncAnswered)
    assert fact.value.owner_rev == 20
    assert arrive(state, OwnerKey(1), owner(12)).facts == (), "a stale owner's heartbeat is nothing"


def test_a_dispatch_waits_for_the_very_feed_it_is_about() -> None:
    state = session()
    record = dispatch(ReplicationState.COMMIT, ME)
    assert arrive(state, SpanKey("shop", "public.goods"), record).effects == ()
    assert arrive(state, FeedKey("shop"), feed(feed_id="0-2")).effects == ()
    assert arrive(state, FeedKey("shop"), feed(incarnation=2)).effects == ()
    assert arrive(state, FeedKey("shop"), replace(feed(), revision=1)).effects == ()
    (effect,) = arrive(state, FeedKey("shop"), feed()).effects
    assert isinstance(effect, AddTable)
    assert not effect.prepare


def test_records_of_a_lower_owner_do_not_count() -> None:
    state = session()
    arrive(state, FeedKey("shop"), feed())
    arrive(state, SpanKey("shop", "public.goods"), dispatch(ReplicationState.REPLICATING, OTHER, rev=9))
    stale = dispatch(ReplicationState.COMMIT, ME, rev=8, n=50)
    assert arrive(state, SpanKey("shop", "public.goods"), stale).effects == ()


def test_no_claim_without_a_record_that_names_us_primary() -> None:
    state = session()
    arrive(state, FeedKey("shop"), feed())
    for record in (
        dispatch(ReplicationState.PREPARE, OTHER, ME),
        dispatch(ReplicationState.COMMIT, OTHER, ME),
        dispatch(ReplicationState.PREPARE, None, ME),
    ):
        decision = arrive(state, SpanKey("shop", "public.goods"), record)
        assert all(isinstance(effect, AddTable) and effect.prepare for effect in decision.effects)


def test_a_new_role_waits_for_the_stop_under_way() -> None:
    state = session()
    arrive(state, FeedKey("shop"), feed())
    arrive(state, SpanKey("shop", "public.goods"), dispatch(ReplicationState.COMMIT, ME, OTHER, n=1))
    observe(state, status(TaskState.STOPPING))
    assert arrive(state, SpanKey("shop", "public.goods"), dispatch(ReplicationState.COMMIT, ME, n=4)).effects == ()
    decision = observe(state, status(TaskState.STOPPED))
    assert [type(fact.value) for fact in decision.facts] == [TaskReported, SpanProgressed]
    (effect,) = decision.effects
    assert isinstance(effect, AddTable)
    assert effect.task.epoch == Epoch(1, 4)


def test_a_task_nobody_asked_for_any_more_is_stopped_as_soon_as_it_shows() -> None:
    state = session()
    arrive(state, FeedKey("shop"), feed())
    arrive(state, SpanKey("shop", "public.goods"), dispatch(ReplicationState.COMMIT, ME))
    arrive(state, SpanKey("shop", "public.goods"), dispatch(ReplicationState.COMMIT, OTHER, n=2))
    assert shape(observe(state, status(TaskState.PREPARING))) == (RemoveTable, False)
    assert shape(observe(state, status(TaskState.STOPPED))) == (ForgetTable,)


def test_a_failure_is_reported_once_and_tried_again_under_a_new_epoch_only() -> None:
    state = session()
    arrive(state, FeedKey("shop"), feed())
    record = dispatch(ReplicationState.REPLICATING, ME)
    arrive(state, SpanKey("shop", "public.goods"), record)
    decision = observe(state, status(TaskState.FAILED, error="no rights"))
    report = decision.facts[0].value
    assert isinstance(report, TaskReported)
    assert (report.state, report.error_code, report.error) == (TaskState.FAILED, "sink_refused", "no rights")
    assert decision.effects == ()
    assert observe(state, status(TaskState.FAILED, error="no rights")).facts == ()
    assert arrive(state, SpanKey("shop", "public.goods"), record).effects == ()
    again = arrive(state, SpanKey("shop", "public.goods"), dispatch(ReplicationState.COMMIT, ME, n=2))
    assert shape(again) == (AddTable, False)


def test_progress_is_paced_by_a_timer_and_says_only_news() -> None:
    state = session()
    assert decide(state, TimerFired(PROGRESS_TIMER), NOW).effects == (ReadProgress(), SetTimer(PROGRESS_TIMER, 1.0))
    observe(state, status(TaskState.REPLICATING))
    due = ProgressDue((status(TaskState.REPLICATING, rows=5),))
    (fact,) = adopt(state, decide(state, due, NOW)).facts
    assert isinstance(fact.value, SpanProgressed)
    assert (fact.value.positions, fact.value.rows, fact.value.resolved_ts) == ({0: 8}, 5, None)
    assert decide(state, due, NOW).facts == ()
    assert decide(state, ProgressDue((status(TaskState.PREPARED, rows=9),)), NOW).facts == ()


def test_what_was_passed_over_is_told_once_all_can_read_it() -> None:
    state = session()
    observe(state, status(TaskState.REPLICATING))
    for level, told in ((1, (0, None)), (2, (7, "public.audit"))):
        arrive(state, OwnerKey(0), replace(owner(3), level=level), 9)
        met = replace(status(TaskState.REPLICATING, rows=level), passed_over=7, passed_over_table="public.audit")
        (fact,) = adopt(state, decide(state, ProgressDue((met,)), NOW)).facts
        assert isinstance(fact.value, SpanProgressed)
        assert (fact.value.passed_over, fact.value.passed_over_table) == told


def test_a_task_that_has_caught_up_says_so_once() -> None:
    state = session()
    observe(state, status(TaskState.REPLICATING))
    behind = replace(status(TaskState.REPLICATING, rows=5), lag_ms=9_000)
    adopt(state, decide(state, ProgressDue((behind,)), NOW))
    idle = ProgressDue((replace(behind, lag_ms=0),))
    (fact,) = adopt(state, decide(state, idle, NOW)).facts
    assert isinstance(fact.value, SpanProgressed)
    assert (fact.value.rows, fact.value.lag_ms) == (5, 0)
    assert decide(state, idle, NOW).facts == ()


def test_a_lag_that_grows_while_nothing_is_applied_is_reported_now_and_then() -> None:
    state = session()
    observe(state, status(TaskState.REPLICATING))
    stuck = replace(status(TaskState.REPLICATING, rows=5), lag_ms=1_000)
    adopt(state, decide(state, ProgressDue((stuck,)), NOW))
    reported = []
    for lag_ms in range(2_000, 40_000, 1_000):
        for fact in adopt(state, decide(state, ProgressDue((replace(stuck, lag_ms=lag_ms),)), NOW)).facts:
            assert isinstance(fact.value, SpanProgressed)
            reported.append(fact.value.lag_ms)
    assert reported == [11_000, 21_000, 31_000]


def test_evidence_that_rises_is_told_though_nothing_was_written_and_told_once() -> None:
    state = session()
    observe(state, status(TaskState.REPLICATING))
    resolved = replace(status(TaskState.REPLICATING, rows=5), resolved_ts=70)
    adopt(state, decide(state, ProgressDue((resolved,)), NOW))
    assert decide(state, ProgressDue((resolved,)), NOW).facts == ()
    risen = ProgressDue((replace(resolved, resolved_ts=90),))
    (fact,) = adopt(state, decide(state, risen, NOW)).facts
    assert isinstance(fact.value, SpanProgressed)
    assert fact.value.resolved_ts == 90
    assert decide(state, risen, NOW).facts == ()


TEXTS = st.none() | st.text(st.characters(), max_size=9) | st.sampled_from(["\ud800", "x" * 20_000])
NUMBERS = st.integers(-(2**80), 2**80)


@given(
    error=TEXTS,
    code=TEXTS,
    table=TEXTS,
    times=st.tuples(st.none() | NUMBERS, st.none() | NUMBERS),
    counts=st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS),
)
def test_what_outsiders_say_is_written_whatever_it_is(
    error: str | None,
    code: str | None,
    table: str | None,
    times: tuple[int | None, int | None],
    counts: tuple[int, int, int, int],
) -> None:
    state = session()
    arrive(state, OwnerKey(0), replace(owner(3), level=2), 9)
    arrive(state, SpanKey("shop", "public.goods"), dispatch(ReplicationState.COMMIT, ME, n=1))
    said = replace(
        status(TaskState.FAILED, rows=1),
        error=error,
        error_code=code,
        passed_over_table=table,
        seen_ts=times[0],
        resolved_ts=times[1],
    )
    said = replace(said, rows=counts[0], bytes=counts[1], lag_ms=counts[2], passed_over=counts[3])
    decision = observe(state, said)
    assert len(decision.facts) == 2
    for fact in decision.facts:
        assert decode(fact.key.topic, *encode(fact)) == (fact.key, fact.value)
    assert observe(state, said).facts == (), "what was told is remembered as it was told"


def test_a_span_the_owner_has_deleted_leaves_no_words() -> None:
    state = session()
    key = SpanKey("shop", "public.goods")
    arrive(state, FeedKey("shop"), feed())
    arrive(state, key, dispatch(ReplicationState.COMMIT, ME, n=1))
    observe(state, status(TaskState.REPLICATING, rows=2))
    adopt(state, decide(state, ProgressDue((status(TaskState.REPLICATING, rows=2),)), NOW))
    arrive(state, key, None)
    observe(state, status(TaskState.STOPPING, rows=2))
    over = observe(state, status(TaskState.STOPPED, rows=2))
    assert [(type(fact.key), fact.value) for fact in over.facts[-2:]] == [(TaskKey, None), (ProgressKey, None)]
    assert over.effects == (ForgetTable(SPAN),)
    assert (state.reports, state.progress) == ({}, {})
    # The name may come again, under a higher epoch.
    again = arrive(state, key, dispatch(ReplicationState.COMMIT, ME, n=5))
    assert isinstance(again.effects[0], AddTable)


def test_a_span_that_was_deleted_and_is_anothers_now_keeps_its_last_words() -> None:
    """The owner may need them; they go when the owner deletes the span, or this session."""
    state = session()
    key = SpanKey("shop", "public.goods")
    arrive(state, FeedKey("shop"), feed())
    arrive(state, key, dispatch(ReplicationState.COMMIT, ME, n=1))
    observe(state, status(TaskState.REPLICATING, rows=2))
    arrive(state, key, None)
    arrive(state, key, dispatch(ReplicationState.COMMIT, OTHER, n=3))
    observe(state, status(TaskState.STOPPING, rows=2))
    over = observe(state, status(TaskState.STOPPED, rows=2))
    assert all(fact.value is not None for fact in over.facts)
    assert over.effects == (ForgetTable(SPAN),)


@pytest.mark.parametrize(
    "recorded", ["public.goods", "public.goods~0 public.goods~1-2", "public.goods~0-1 public.goods~2"]
)
@pytest.mark.parametrize(
    ("span", "start"),
    [("public.goods", {0: 3, 1: 4, 2: 5}), ("public.goods~0", {0: 3}), ("public.goods~1-2", {1: 4, 2: 5})],
)
def test_a_part_is_run_whatever_division_the_feeds_record_has(recorded: str, span: str, start: dict[int, int]) -> None:
    """Dispatch and changefeed have no order: a span is dispatched before, or after, the division it comes from."""
    whole = replace(PLAN, start={0: 3, 1: 4, 2: 5})
    plans = tuple(plan for name in recorded.split() if (plan := plan_of((whole,), name)) is not None)
    state = session()
    arrive(state, FeedKey("shop"), replace(feed(), spans=plans))
    (added,) = arrive(state, SpanKey("shop", span), dispatch(ReplicationState.COMMIT, ME, n=1)).effects
    assert isinstance(added, AddTable)
    assert added.task.plan == SpanPlan(span, "shop.public.goods", "public.goods", start)


def test_the_log_can_end_a_session() -> None:
    state = session()
    dead = SessionEnded(1, "no heartbeat", 0)
    assert arrive(state, SessionKey("a1", "other"), dead).effects == ()
    assert arrive(state, SessionKey(*ME), dead).effects == (EndSession("no heartbeat"),)


def test_a_role_below_the_tasks_epoch_is_a_contradiction() -> None:
    state = session()
    arrive(state, FeedKey("shop"), feed())
    observe(state, status(TaskState.REPLICATING, n=7))
    with pytest.raises(EpochWentBackError):
        arrive(state, SpanKey("shop", "public.goods"), dispatch(ReplicationState.REPLICATING, ME, n=3))
