"""Every history of one span: whatever its surroundings do, in whatever order, the table has an answer to it."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from headgate.agent.core.executor import CopyOrder, MaintenanceReport, SpanId, SpanTask
from headgate.agent.core.span.failures import RETRY_SECONDS_MAX, back_off, counted, went_on, worst
from headgate.agent.core.span.inputs import (
    Add,
    BatchOver,
    CallFailed,
    Close,
    Completed,
    CopiedOn,
    CopyDue,
    DropCopy,
    Effect,
    Failed,
    Forget,
    JoinLane,
    LaneLost,
    LeaveLane,
    Limited,
    Looked,
    MaintainDue,
    MaintainFor,
    Open,
    Opened,
    Passed,
    Placed,
    Planned,
    Remove,
    RetryDue,
    Seal,
    Sealed,
    SentBack,
    Served,
    Settle,
    Settled,
    SettleDue,
    Slowed,
    SpanInput,
    SpanResult,
)
from headgate.agent.core.span.machine import ACTIONS, decide
from headgate.agent.core.span.progress import (
    QUARANTINE_WINDOW_SECONDS,
    SpanProgress,
    adopted,
    limited,
    quarantined_lately,
)
from headgate.agent.core.span.states import ENDING, OVER, REST_SECONDS, Span, Stop, TaskPhase
from headgate.agent.core.span.steps import adopt, go_on, limit, note_read
from headgate.agent.core.span.transitions import TRANSITIONS, TaskAction, TaskSignal, signal_of
from headgate.records.control import Epoch, SpanPlan, TaskState
from headgate.runtime.table import UnknownTransitionError

CALLING = frozenset({TaskPhase.OPENING, TaskPhase.CLAIMING, TaskPhase.SETTLING, TaskPhase.RECALLED, TaskPhase.SEALING})
"""One call to source or sink is under way."""

SPAN = SpanId("f", "t")
PLAN = SpanPlan(span="t", topic="t", table="public.t", start={0: 0})
EPOCHS = 2

Call = tuple[str, int, bool]


class World(msgspec.Struct, frozen=True):
    """A span, the call of its life that is not answered yet (kind, epoch, role), and the lane that has it."""

    span: Span | None = None
    call: Call | None = None
    lane: str | None = None
    claimed: int = 0
    """The epoch that the sink was last claimed with, as far as the span has been told."""


def task(n: int) -> SpanTask:
    """The first epoch's copies rows."""
    return SpanTask(SPAN, "0-1", 1, Epoch(1, n), PLAN, "{}", CopyOrder("r1", "{}") if n == 1 else None)


def result(code: str | None = None, *, retryable: bool = False) -> SpanResult:
    return SpanResult(SPAN, {0: 5}, 1, 1, None, None, 0, code, code, retryable, 0, 0, held=(0,) if code else ())


def possible(world: World) -> Iterator[SpanInput]:
    """All that may happen next."""
    span = world.span
    now = 1 if span is None else span.task.epoch.n
    for n in range(now, EPOCHS + 1):
        yield from (Add(task(n), True, 0, 1), Add(task(n), False, 0, 1), Close(task(n), 0))
    yield from (Remove(True), Remove(False), Forget(), DropCopy("r1"), DropCopy("r2"), MaintainFor("m1"))
    if span is None:
        return
    yield from (Slowed(1.0), Looked(span.progress.opening, {0: 5}), Looked(-1, {0: 5}))
    yield from (Completed(span.progress.opening, 7), Completed(-1, 7))
    yield from (Limited(span.progress.opening, {}, {}, 0), Limited(-1, {}, {}, 0))
    match world.call:
        case ("open", n, primary):
            yield Opened(Epoch(1, n), primary, {0: 5})
            yield CopiedOn("more rows")
            if span.is_maintained:
                yield Opened(Epoch(1, n), primary, {0: 5}, maintained=MaintenanceReport("m1", "", False, 1))
            if primary and span.task.copy is not None:
                yield Opened(Epoch(1, n), primary, {0: 5}, copying="some rows")
        case ("settle", _, _):
            yield Settled({0: 5})
        case ("seal", _, _):
            yield Sealed({0: 5})
    if world.call is not None:
        yield from (CallFailed("c", "", True), CallFailed("c", "", False))
    yield from of_lanes(span)
    if span.retry_at is not None:
        yield RetryDue()


def of_lanes(span: Span) -> Iterator[SpanInput]:
    troubles = (SentBack(""), Failed("f", "", retryable=True), Failed("f", "", retryable=False))
    if span.phase is TaskPhase.WAITING:
        yield from (Placed("one"), *troubles)
    if span.lane is not None:
        yield from (Served(), LaneLost("", alone=True), LaneLost("", alone=False), *troubles)
    if span.writable:
        yield from (Planned(), Passed({("t", 0): 9}), SettleDue(), CopyDue(), MaintainDue(), Placed("two"))
    if span.lane is not None and span.phase in {TaskPhase.WRITING, TaskPhase.DRAINING}:
        for each in (None, result(), result("e", retryable=True), result("e")):
            yield BatchOver(each, {})


def told(world: World, given: SpanInput) -> World:
    """The world after it; fails if the machine has asked for what must not be."""
    before, step = world.span, decide(world.span, given, 0.0)
    span, call, lane, claimed = step.span, world.call, world.lane, world.claimed
    is_new = isinstance(given, Add | Close) and signal_of(before, given) in {TaskSignal.ADD, TaskSignal.CLOSE}
    if isinstance(given, Opened | Settled | Sealed | CallFailed) or is_new:
        call = None
    if isinstance(given, Opened) and given.primary and signal_of(before, given) is TaskSignal.OPENED:
        claimed = given.epoch.n
    for effect in step.effects:
        call, lane = performed(effect, span, call, lane)
    assert lane == (None if span is None else span.lane)
    assert (call is not None) == (span is not None and (span.phase in CALLING))
    if span is not None:
        check(span, claimed)
    return World(span, call, lane, claimed)


def performed(effect: Effect, span: Span | None, call: Call | None, lane: str | None) -> tuple[Call | None, str | None]:
    match effect:
        case JoinLane(lane=name):
            assert lane is None, "it left the other one first"
            return call, name
        case LeaveLane(lane=name):
            assert lane == name
            return call, None
        case Open() | Settle() | Seal():
            assert call is None, "one call at a time"
            assert span is not None
            primary = effect.primary if isinstance(effect, Open) else span.primary
            assert primary == span.primary, "it claims only where it is primary"
            return (type(effect).__name__.lower(), span.task.epoch.n, primary), lane
        case _:
            return call, lane


def check(span: Span, claimed: int) -> None:
    if span.phase in {TaskPhase.CLAIMED, TaskPhase.WRITING}:
        assert span.claimed
        assert span.primary
        assert claimed == span.task.epoch.n, "it writes under the epoch that it claimed with"
    assert (span.stop is not Stop.NOT) == (span.phase in ENDING) or span.phase in OVER
    assert (span.retry_at is not None) == (span.phase in {TaskPhase.RETRYING, TaskPhase.RESEALING})
    assert (span.lane is None) or span.phase not in {TaskPhase.OPENING, TaskPhase.WAITING, TaskPhase.RETRYING, *OVER}
    assert span.state is not TaskState.FAILED or span.error is not None
    assert span.state is not TaskState.STOPPED or span.error is None


def alike(world: World) -> World:
    """Without what only grows."""
    if world.span is None:
        return World()
    progress = SpanProgress(positions=world.span.positions)
    failures = {p: min(count, 1) for p, count in world.span.failures.items()}
    retry_at = None if world.span.retry_at is None else 1.0
    span = replace(world.span, progress=progress, failures=failures, losses=0, retry_at=retry_at, alone_until=0.0)
    span = replace(span, copied_at=0.0)
    return replace(world, span=span)


def test_whatever_happens_is_in_the_table_and_all_of_the_table_happens() -> None:
    met: set[tuple[TaskPhase, TaskSignal]] = set()
    seen, todo = {repr(World())}, deque([World()])
    ends: dict[str, set[str]] = {}
    while todo:
        world = todo.popleft()
        name = repr(world)
        ends[name] = set()
        for given in possible(world):
            met.add((TaskPhase.ABSENT if world.span is None else world.span.phase, signal_of(world.span, given)))
            after = alike(told(world, given))
            ends[name].add(repr(after))
            if repr(after) not in seen:
                seen.add(repr(after))
                todo.append(after)
    assert met == TRANSITIONS.keys(), (met - TRANSITIONS.keys(), TRANSITIONS.keys() - met)
    assert len(seen) > 200
    _check_that_all_come_to_an_end(ends)


def _check_that_all_come_to_an_end(ends: dict[str, set[str]]) -> None:
    """From everywhere there is a way to nothing."""
    leads_here: dict[str, set[str]] = {}
    for name, afters in ends.items():
        for after in afters:
            leads_here.setdefault(after, set()).add(name)
    reached, todo = {repr(World())}, [repr(World())]
    while todo:
        for name in leads_here.get(todo.pop(), set()) - reached:
            reached.add(name)
            todo.append(name)
    assert reached == ends.keys()


def test_every_action_is_in_the_table_and_is_a_function() -> None:
    assert set(TRANSITIONS.values()) == set(TaskAction) == ACTIONS.keys()


def test_a_pair_that_cannot_be_is_an_error_that_names_it() -> None:
    with pytest.raises(UnknownTransitionError, match=r"planned .* for a span that is absent"):
        decide(None, Planned(), 0.0)


def test_a_table_line_that_lets_a_secondary_write_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the search is for."""
    monkeypatch.setitem(TRANSITIONS, (TaskPhase.OPENING, TaskSignal.OUTDATED), TaskAction.ENTER)
    with pytest.raises(AssertionError):
        test_whatever_happens_is_in_the_table_and_all_of_the_table_happens()


def test_what_went_to_quarantine_counts_for_an_hour() -> None:
    one = replace(result(), quarantined=2)
    progress = adopted(adopted(SpanProgress(positions={0: 0}), one, 0.0), one, 10.0)
    assert quarantined_lately(progress, QUARANTINE_WINDOW_SECONDS) == 4
    assert quarantined_lately(progress, QUARANTINE_WINDOW_SECONDS + 1) == 2
    assert adopted(progress, one, QUARANTINE_WINDOW_SECONDS + 11).set_aside == ((QUARANTINE_WINDOW_SECONDS + 11, 2),)


def test_a_partition_that_moves_begins_to_count_anew() -> None:
    failures = counted(counted(counted({}, (0,)), (0,)), (0, 1))
    assert worst(failures) == 3
    assert worst(went_on(failures, ())) == 3, "it stands where it stood"
    assert worst(went_on(failures, (1,))) == 3
    assert worst(went_on(failures, (0,))) == 1


def test_failures_of_the_whole_span_end_with_any_progress() -> None:
    failures = counted(counted(counted({}), (2,)), (2,))
    assert worst(failures) == 2
    failures = counted(went_on(failures, [0]))
    assert worst(failures) == 2
    assert worst(counted(failures)) == 2
    assert worst(went_on(failures, [2])) == 0


def test_a_delay_grows_up_to_a_bound_after_any_number_of_failures() -> None:
    """A seal is tried for as long as it may succeed: after 1 024 failures a doubled float is out of range."""
    delays = [back_off(failures) for failures in (1, 2, 3, 8, 1_025, 100_000)]
    assert delays == [0.25, 0.5, 1.0, RETRY_SECONDS_MAX, RETRY_SECONDS_MAX, RETRY_SECONDS_MAX]


def written(**about: Any) -> Span:
    """A span between two batches, whose progress is ``about``."""
    progress = SpanProgress(**{"positions": {0: 5, 1: 7}, **about})
    return Span(
        task(1), 1, primary=True, phase=TaskPhase.CLAIMED, since=0.0, claimed=True, target_ts=100, progress=progress
    )


@pytest.mark.parametrize(
    ("about", "awaited", "writable"),
    [
        ({}, {0: 5, 1: 7}, True),
        ({"resolved": {0: 99, 1: 100}}, {0: 5}, True),
        ({"cut": frozenset({0})}, {1: 7}, True),
        ({"cut": frozenset({0}), "resolved": {1: 100}}, {}, False),
    ],
)
def test_a_partition_that_has_reached_the_target_is_awaited_no_more(
    about: dict[str, Any], awaited: dict[int, int], *, writable: bool
) -> None:
    span = written(**about)
    assert (span.awaited, span.writable, span.is_at_target) == (awaited, writable, not writable)


@pytest.mark.parametrize(
    ("limits", "readable"),
    [
        ({}, {0: 5, 1: 7}),
        ({0: 5}, {1: 7}),
        ({0: 6}, {0: 5, 1: 7}),
        ({0: 5, 1: 7}, {}),
    ],
)
def test_of_a_change_log_what_waits_for_others_is_awaited_but_not_read(
    limits: dict[int, int], readable: dict[int, int]
) -> None:
    span = written(limits=limits)
    assert (span.awaited, span.readable) == ({0: 5, 1: 7}, readable)


def test_what_is_no_streams_any_more_counts_as_read_and_no_position_goes_back() -> None:
    at = limited(SpanProgress(positions={0: 5, 1: 7}), Limited(1, firsts={0: 9, 1: 3}, limits={}, limits_at=4))
    assert [at.reached(partition) for partition in (0, 1)] == [9, 7]
    assert at.read_to == {0: 9}


def test_limits_of_an_earlier_opening_or_an_earlier_look_are_old_news() -> None:
    span = written(opening=2, limits={0: 5}, limits_at=10)
    for told in (Limited(1, {}, {}, 11), Limited(2, {}, {}, 9)):
        assert limit(span, told, 0.0).span == span
    assert limit(span, Limited(2, {}, {0: 6}, 10), 0.0).span.progress.limits == {0: 6}


def test_the_sink_is_owed_a_position_that_has_rested_for_long_enough() -> None:
    assert not written().owes(REST_SECONDS * 2), "nothing rests"
    resting = written(rests_since=1.0)
    assert not resting.owes(REST_SECONDS + 0.9)
    assert resting.owes(REST_SECONDS + 1.0)
    assert not replace(resting, phase=TaskPhase.WRITING).owes(REST_SECONDS * 2), "a batch has it"


def test_a_lag_is_that_of_the_last_batch_and_none_while_there_is_nothing_to_read() -> None:
    timed = replace(result(), oldest_append_ms=100, visible_ms=130)
    assert written(lag_ms=9).status(0, 0.0).lag_ms == 9
    assert written(lag_ms=9).status(0, 0.0, lane_is_idle=True).lag_ms == 0
    batches = (timed, replace(timed, positions={}), replace(timed, error_code="e"), replace(timed, visible_ms=90))
    lags = [adopted(SpanProgress(positions={0: 0}, lag_ms=9), each, 0.0).lag_ms for each in batches]
    assert lags == [30, 30, 30, 0]
    refused = replace(timed, positions={}, error_code="e")
    assert adopted(SpanProgress(positions={0: 0}, lag_ms=9), refused, 0.0).lag_ms == 9, "nothing became visible"


def test_only_what_has_moved_a_position_is_counted() -> None:
    told = replace(result(), rows=2, bytes=20, newest_source_ms=7)
    one = adopted(SpanProgress(positions={0: 0}), told, 0.0)
    assert (one.rows, one.bytes, one.seen_ms) == (2, 20, 7)
    other = adopted(one, replace(told, positions={}, newest_source_ms=9), 0.0)
    assert (other.rows, other.bytes, other.seen_ms) == (2, 20, 7)


def failing(**about: Any) -> Span:
    """A claimed span whose last batch failed in partition 0."""
    return replace(written(**about), error=("sink_unavailable", "away", True), failures={0: 1})


def test_an_error_is_over_once_nothing_is_left_to_apply() -> None:
    reopened = Opened(Epoch(1, 1), primary=True, positions={0: 5, 1: 7})
    opening = replace(failing(), phase=TaskPhase.CLAIMING)
    assert go_on(opening, reopened, 0.0).span.error is None
    assert go_on(opening, replace(reopened, backlog=1), 0.0).span.error is not None, "the next batch tells"


def test_an_error_is_over_once_the_partition_that_failed_turns_out_to_have_nothing_for_it() -> None:
    for other in (Passed({("t", 1): 9}), BatchOver(None, {("t", 1): 9})):
        step = note_read if isinstance(other, Passed) else adopt
        assert step(failing(), other, 0.0).span.error is not None, "partition 0 has not been read beyond"
        assert step(failing(), replace(other, ends={("t", 0): 6}), 0.0).span.error is None


def test_a_lag_grows_while_a_change_is_not_applied_whether_or_not_the_lane_reads() -> None:
    refused = replace(result(), positions={}, error_code="e", oldest_append_ms=1_000)
    stuck = replace(written(), progress=adopted(written(lag_ms=90_000).progress, refused, 0.0))
    for lane_is_idle in (False, True):
        assert [stuck.status(now, 0.0, lane_is_idle=lane_is_idle).lag_ms for now in (5_000, 65_000)] == [4_000, 64_000]
    unread = adopted(stuck.progress, replace(refused, oldest_append_ms=None), 0.0)
    assert unread.unapplied_ms == 1_000, "the sink's session was lost before a change was read"
    assert adopted(stuck.progress, result(), 0.0).unapplied_ms is None, "it was applied"


def test_a_batch_that_was_held_back_for_the_sinks_interval_is_not_late() -> None:
    held = written(lag_ms=59_000)
    assert [replace(held, commit_interval_seconds=s).status(0, 0.0).lag_ms for s in (0, 50, 60)] == [59_000, 9_000, 0]
    refused = replace(result(), positions={}, error_code="e", oldest_append_ms=1_000)
    stuck = replace(held, commit_interval_seconds=60, progress=adopted(held.progress, refused, 0.0))
    assert stuck.status(31_000, 0.0).lag_ms == 30_000, "what a batch could not apply waits for something else"


def test_a_claimed_span_knows_its_sinks_interval() -> None:
    opened = Opened(Epoch(1, 1), primary=True, positions={0: 5}, commit_interval_seconds=60)
    claimed = go_on(replace(written(), phase=TaskPhase.CLAIMING), opened, 0.0).span
    assert claimed is not None
    assert claimed.commit_interval_seconds == 60


def test_somebody_waits_for_the_end_of_a_feed_of_a_stream_and_of_a_copy() -> None:
    noon_ms = 1_795_262_400_000
    span = replace(written(positions={0: 3, 1: 9}), target_ts=None)
    ends = replace(span, target_ts=noon_ms << 18)
    assert [each.is_awaited(now) for each in (span, ends) for now in (noon_ms - 1, noon_ms)] == [0, 0, 0, 1]
    there = replace(ends, progress=replace(ends.progress, resolved={0: noon_ms << 18, 1: noon_ms << 18}))
    assert not there.is_awaited(noon_ms), "it has all that the feed wants"
    limits = [{0: 4}, {0: 3}, {1: 8}, {}]
    assert [replace(span, progress=replace(span.progress, limits=each)).is_awaited(0) for each in limits] == [
        1,
        0,
        0,
        0,
    ]
    assert replace(span, copying="some rows").is_awaited(0)


@pytest.mark.parametrize(("rows", "code"), [('{"keys": null}', "copying"), ('{"keys": [["1"]]}', None)])
def test_a_table_is_reported_as_copied_before_its_first_range_and_until_it_is_done(rows: str, code: str | None) -> None:
    claiming = replace(written(), phase=TaskPhase.CLAIMING, task=replace(task(1), copy=CopyOrder("r1", rows)))
    assert (claiming.served, claiming.status(0, 0.0).error_code) == (TaskState.PREPARING, code)
    assert replace(claiming, primary=False).status(0, 0.0).error_code is None
    opened = Opened(Epoch(1, 1), primary=True, positions={0: 5}, copying=code and "5 rows are copied")
    going = go_on(claiming, opened, 0.0).span
    assert going is not None
    assert going.status(0, 0.0).error_code == code
    done = go_on(replace(going, phase=TaskPhase.CLAIMING), replace(opened, copying=None), 0.0).span
    assert done is not None
    assert done.status(0, 0.0).error_code is None


def test_a_lag_grows_while_a_batch_waits_for_its_sink() -> None:
    planned = decide(written(lag_ms=9), Planned(), 10.0).span
    assert planned is not None
    assert [planned.status(0, now).lag_ms for now in (10.0, 70.0)] == [9, 60_000]
    assert planned.status(0, 70.0, lane_is_idle=True).lag_ms == 60_000
    unread = replace(result("sink_unavailable", retryable=True), positions={}, oldest_append_ms=None)
    failed = decide(planned, BatchOver(unread, {}), 70.0).span
    assert failed is not None
    again = replace(failed, phase=TaskPhase.CLAIMED)
    for waiting in (failed, decide(again, Planned(), 80.0).span):
        assert waiting is not None
        assert waiting.status(0, 90.0).lag_ms == 80_000, "no task has read how old its changes are"


@pytest.mark.parametrize(
    ("over", "lag_ms"),
    [
        (BatchOver(result(), {}), 0),
        (BatchOver(None, {}), 0),
        (BatchOver(replace(result(), positions={}), {}), 0),
        (BatchOver(replace(result("sink_column_missing", retryable=True), oldest_append_ms=None), {}), 20_000),
    ],
)
def test_a_batch_that_is_over_waits_no_more_except_for_what_it_left(over: BatchOver, lag_ms: int) -> None:
    planned = decide(written(), Planned(), 10.0).span
    done = decide(planned, over, 70.0).span
    assert done is not None
    assert done.status(0, 90.0, lane_is_idle=True).lag_ms == lag_ms


def test_a_span_that_is_opened_with_nothing_left_to_apply_waits_for_nothing() -> None:
    opening = replace(written(waits_since=10.0), phase=TaskPhase.CLAIMING)
    reopened = Opened(Epoch(1, 1), primary=True, positions={0: 5, 1: 7})
    assert go_on(opening, reopened, 0.0).span.status(0, 90.0).lag_ms == 0
    assert go_on(opening, replace(reopened, backlog=1), 0.0).span.status(0, 90.0).lag_ms == 80_000


def test_columns_that_a_batch_lacked_are_known_until_it_is_opened_again() -> None:
    over = BatchOver(replace(result("sink_column_missing", retryable=True), lacking={"c": "int32"}), {})
    failed = decide(replace(written(), phase=TaskPhase.WRITING), over, 0.0).span
    assert failed is not None
    assert (failed.phase, failed.lacking) == (TaskPhase.RETRYING, {"c": "int32"})
    again = decide(failed, RetryDue(), 1.0).span
    refused = decide(again, CallFailed("sink_column_missing", "not added", retryable=True), 1.0).span
    assert refused is not None
    assert refused.lacking == {"c": "int32"}, "it is tried again"
    again = decide(refused, RetryDue(), 2.0).span
    opened = decide(again, Opened(refused.task.epoch, refused.primary, {0: 5}), 2.0).span
    assert opened is not None
    assert opened.lacking == {}


def test_advice_about_columns_goes_with_the_error_of_the_next_batch_that_lacks_some() -> None:
    reopening = replace(written(), phase=TaskPhase.CLAIMING)
    opened = decide(reopening, Opened(Epoch(1, 1), primary=True, positions={0: 5, 1: 7}, advice="Run it"), 0.0).span
    assert opened is not None
    assert opened.phase is TaskPhase.CLAIMED, "the other partition is written"
    for lacking, text in (({"c": "int32"}, "it failed. Run it"), ({}, "it failed")):
        over = replace(result("sink_column_missing", retryable=True), error="it failed", lacking=lacking)
        failed = decide(replace(opened, phase=TaskPhase.WRITING), BatchOver(over, {}), 0.0).span
        assert failed is not None
        assert failed.error == ("sink_column_missing", text, True)
