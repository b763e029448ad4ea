"""A sink that does not answer: who finds out, who is spared, and who never waits for it."""

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pymysql
import pytest
from pymysql.constants import CR

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import Failed
from headgate.agent.core.span.states import TaskPhase
from headgate.config.sink_spec import SinkSpec
from headgate.provisioning.time_scale import scaled_seconds
from headgate.replication import task_run
from headgate.replication.lane import Lane
from headgate.replication.queries import Queries
from headgate.replication.silent_sinks import PAUSE_SECONDS, SILENT_SECONDS, WAITING_SECONDS, SilentSinks
from headgate.replication.span_table import SpanTable
from headgate.replication.task_slots import OTHERS_SECONDS, SPARE_SLOTS, TaskSlots
from headgate.sinks.contract import SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.registry import server_of
from headgate.sinks.relational.mysql import faults as mysql
from headgate.sinks.relational.postgresql import faults as postgresql
from support.lanes_without_spark import Restarts, ended, is_on, lane_of, now_is, planned, result_of

from .conftest import RecordingParts, by_table, chunk, run, work

SERVER = "db:5432"
LOCAL = "localhost:5432"
"""The server of the feed that lanes without Spark have."""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sinks(clock: Clock) -> SilentSinks:
    return SilentSinks(clock)


def call(sinks: SilentSinks, clock: Clock, seconds: float, error: Exception | None = None) -> bool:
    """Ask the sink, which takes so long; whether it was reached at all."""
    reached = False
    try:
        with sinks.asked(SERVER):
            reached = True
            clock.now += seconds
            if error is not None:
                raise error
    except (SinkUnavailableError, SinkRefusedError):
        pass
    return reached


def test_after_one_call_was_not_answered_the_others_fail_at_once(sinks: SilentSinks, clock: Clock) -> None:
    assert call(sinks, clock, 10, SinkSilentError("timeout expired"))
    why = r"db:5432 has not answered since \d\d:\d\d:\d\d UTC \(timeout expired\)"
    with pytest.raises(SinkUnavailableError, match=why), sinks.asked(SERVER):
        pytest.fail("it is not asked")
    assert sinks.servers() == {SERVER: 10}
    with sinks.asked("other:5432"):
        pass


def test_it_is_tried_again_by_one_at_a_time(sinks: SilentSinks, clock: Clock) -> None:
    call(sinks, clock, 10, SinkSilentError("timeout expired"))
    clock.now += PAUSE_SECONDS
    with sinks.asked(SERVER):
        assert not call(sinks, clock, 0), "somebody tries already"
    assert call(sinks, clock, 0), "it has answered"


def test_it_stays_silent_until_it_answers(sinks: SilentSinks, clock: Clock) -> None:
    call(sinks, clock, 10, SinkSilentError("timeout expired"))
    clock.now += PAUSE_SECONDS
    assert call(sinks, clock, 10, SinkSilentError("timeout expired"))
    assert not call(sinks, clock, 0)
    assert sinks.servers() == {SERVER: 25}


def test_what_is_said_stays_the_same_for_as_long_as_it_lasts(sinks: SilentSinks, clock: Clock) -> None:
    call(sinks, clock, 10, SinkSilentError("timeout expired"))
    said = sinks.why(SERVER)
    clock.now += PAUSE_SECONDS
    call(sinks, clock, 10, SinkSilentError("nothing from the server"))
    assert sinks.why(SERVER) == said
    assert "(timeout expired)" in str(said)


@pytest.mark.parametrize(
    ("seconds", "error"),
    [
        (60, None),
        (60, SinkRefusedError("no table")),
        (60, SinkUnavailableError("a lock is held by somebody")),
        (SILENT_SECONDS / 2, SinkSilentError("connection refused")),
    ],
    ids=["slow", "refuses", "waits for a lock", "fails at once"],
)
def test_a_sink_that_answers_is_not_silent(
    sinks: SilentSinks, clock: Clock, seconds: float, error: Exception | None
) -> None:
    call(sinks, clock, seconds, error)
    assert sinks.why(SERVER) is None
    call(sinks, clock, 10, SinkSilentError("timeout expired"))
    clock.now += PAUSE_SECONDS
    call(sinks, clock, seconds, error)
    assert sinks.servers() == {}


def test_a_call_that_waits_is_named_before_it_gives_up(sinks: SilentSinks, clock: Clock) -> None:
    with sinks.asked(SERVER):
        clock.now += WAITING_SECONDS - 1
        assert (sinks.why_waiting(SERVER), sinks.reports(), sinks.servers()) == (None, [], {})
        clock.now += 1
        with sinks.asked(SERVER):
            (report,) = sinks.reports()
        assert re.search(r"db:5432 has not answered a call since \d\d:\d\d:\d\d UTC", report)
        assert sinks.why_waiting(SERVER) == report
        assert sinks.reports() == [], "once is enough for the log"
        assert sinks.servers() == {SERVER: WAITING_SECONDS}
        assert sinks.why(SERVER) is None, "others may still ask it"
    assert (sinks.why_waiting(SERVER), sinks.servers()) == (None, {})


def test_a_server_that_answers_again_is_told_of_once(sinks: SilentSinks, clock: Clock) -> None:
    call(sinks, clock, 1)
    call(sinks, clock, 10, SinkSilentError("timeout expired"))
    assert (sinks.recovered(), sinks.due()) == (set(), set())
    clock.now += PAUSE_SECONDS
    assert sinks.due() == {SERVER}
    with sinks.asked(SERVER):
        assert sinks.due() == set(), "it is tried"
    assert (sinks.recovered(), sinks.recovered()) == ({SERVER}, set())


@pytest.mark.parametrize(
    ("spec", "server"),
    [
        (SinkSpec(type="postgresql", dsn="host=DB user=u dbname=one"), "db:5432"),
        (SinkSpec(type="postgresql", dsn="host=db user=v dbname=two port=5432"), "db:5432"),
        (SinkSpec(type="postgresql", dsn="host=db hostaddr=10.0.0.1 dbname=two"), "10.0.0.1:5432"),
        (SinkSpec(type="mysql", dsn="mysql://u@db/one"), "db:3306"),
        (SinkSpec(type="mysql", dsn="mysql://u@db/one?unix_socket=/run/db.sock"), "/run/db.sock"),
    ],
)
def test_sinks_of_one_server_are_silent_together(spec: SinkSpec, server: str) -> None:
    assert server_of(spec) == server


def lost(number: int) -> pymysql.Error:
    return pymysql.OperationalError(number, "what PyMySQL says")


@pytest.mark.parametrize(
    ("error", "is_silent"),
    [
        (psycopg.OperationalError("nothing from the server for 30 s"), True),
        (psycopg.InterfaceError("the connection is closed"), True),
        (psycopg.errors.LockNotAvailable("canceling statement due to lock timeout"), False),
        (psycopg.errors.AdminShutdown("terminating connection"), False),
        (psycopg.errors.TooManyConnections("too many"), False),
    ],
)
def test_a_postgresql_that_says_anything_is_not_silent(error: psycopg.Error, *, is_silent: bool) -> None:
    assert isinstance(postgresql.sink_error(error, "writing"), SinkSilentError) is is_silent
    assert isinstance(postgresql.sink_error(error, "writing"), SinkUnavailableError)


@pytest.mark.parametrize(
    ("number", "is_silent"), [(CR.CR_SERVER_LOST, True), (CR.CR_CONN_HOST_ERROR, True), (1205, False), (1040, False)]
)
def test_a_mysql_that_says_anything_is_not_silent(number: int, *, is_silent: bool) -> None:
    assert isinstance(mysql.sink_error(lost(number), "writing"), SinkSilentError) is is_silent
    assert isinstance(mysql.sink_error(lost(number), "writing"), SinkUnavailableError)


# --- in a worker ---


def test_the_tables_of_a_task_find_out_once(
    parts: RecordingParts, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def apply(batch: Any) -> Any:
        asked.append(batch.claim.table)
        clock.now += 10
        raise SinkSilentError("timeout expired")

    monkeypatch.setattr(parts, "apply", apply)
    monkeypatch.setattr(task_run, "silent_sinks", SilentSinks(clock))
    names = [f"t{number}" for number in range(12)]
    result = run([work(name, {0: 0}) for name in names], [chunk(name, 0, [0]) for name in names])
    assert len(asked) == 1
    assert {span.error_code for _, span in by_table(result)} == {"sink_unavailable"}
    assert all(span.retryable for _, span in by_table(result))
    assert [span.is_silent for _, span in by_table(result)].count(True) == 1


# --- in the driver ---


def test_a_batch_that_was_not_answered_spares_the_next_ones(
    table: SpanTable, queries: Queries, lifecycle: Restarts
) -> None:
    lane, other = lane_of(queries, "l", {0: 0}), lane_of(queries, "m", {1: 0})
    span, spared = is_on(table, lane, {0: 0}, "a"), is_on(table, other, {1: 0}, "b")
    assert planned(queries, lane) == [{0: 0}]
    failed = result_of(
        span,
        positions={},
        rows=0,
        error_code="sink_unavailable",
        error="timeout",
        retryable=True,
        wall_ms=40_000,
        is_silent=True,
    )
    ended(queries, lane, failed)
    assert planned(queries, other) == []
    status = now_is(table, spared).status(0, 0.0)
    assert (status.error_code, status.retryable) == ("sink_unavailable", True)
    assert "the sink server localhost:5432 has not answered since " in str(status.error)
    assert queries.batch_coordinator.is_silent(other)


@pytest.mark.parametrize(("wall_ms", "is_silent"), [(10, True), (40_000, False)], ids=["quick", "answered"])
def test_a_failure_that_is_no_silence_spares_nobody(
    table: SpanTable, queries: Queries, lifecycle: Restarts, wall_ms: int, *, is_silent: bool
) -> None:
    lane, other = lane_of(queries, "l", {0: 0}), lane_of(queries, "m", {1: 0})
    span, beside = is_on(table, lane, {0: 0}, "a"), is_on(table, other, {1: 0}, "b")
    assert planned(queries, lane) == [{0: 0}]
    failed = result_of(
        span,
        positions={},
        rows=0,
        error_code="sink_unavailable",
        error="a lock is held by somebody",
        retryable=True,
        wall_ms=wall_ms,
        is_silent=is_silent,
    )
    ended(queries, lane, failed)
    assert planned(queries, other) == [{1: 0}]
    assert now_is(table, beside).error is None


def failed_at(table: SpanTable, queries: Queries, lane: Lane, name: str, code: str) -> SpanId:
    """A span that a call has just failed for, so that it waits for its next attempt."""
    span = is_on(table, lane, {0: 0}, name)
    table.apply(span, Failed(code, "no", retryable=True))
    assert now_is(table, span).phase is TaskPhase.RETRYING
    return span


def test_tables_of_a_sink_that_answers_again_do_not_wait_for_their_next_attempt(
    table: SpanTable, queries: Queries, lifecycle: Restarts, clock: Clock
) -> None:
    lifecycle.silent_sinks = SilentSinks(clock)
    lane = lane_of(queries, "l", {0: 0})
    spans = [failed_at(table, queries, lane, name, "sink_unavailable") for name in ("a", "b", "c")]
    refused = failed_at(table, queries, lane, "d", "sink_refused")
    lifecycle.silent_sinks.failed(LOCAL, "timeout expired", 10)
    lifecycle.called.clear()

    def turned() -> list[str]:
        with table.changed:
            lifecycle.turn(0.0)  # nothing is due by itself
        return lifecycle.called

    assert turned() == []
    clock.now += PAUSE_SECONDS
    assert turned() == ["a"], "one of them tries"
    with lifecycle.silent_sinks.asked(LOCAL):
        pass
    assert turned() == ["a", "b", "c"]
    assert {now_is(table, span).phase for span in spans} == {TaskPhase.OPENING}
    assert now_is(table, refused).phase is TaskPhase.RETRYING


def test_a_table_whose_batch_waits_for_the_sink_says_so(
    table: SpanTable, queries: Queries, lifecycle: Restarts, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle.silent_sinks = SilentSinks(clock)
    asked: list[SpanId] = []
    monkeypatch.setattr(lifecycle, "_check", lambda span: asked.append(span.id))
    monkeypatch.setattr(lifecycle._pool, "submit", lambda _server, work, *given: work(*given))
    lane = lane_of(queries, "l", {0: 0})
    span, now = is_on(table, lane, {0: 0}, "a"), time.monotonic()
    assert planned(queries, lane) == [{0: 0}]
    lane.applying_since = now - WAITING_SECONDS
    queries._check_sinks([lane])
    queries._check_sinks([lane])
    assert asked == [span], "one question at a time"
    later = now_is(table, span).since + WAITING_SECONDS
    assert lifecycle.why_waiting(now_is(table, span), later) is None, "the sink has answered"
    with lifecycle.silent_sinks.asked(LOCAL):
        clock.now += WAITING_SECONDS
        assert LOCAL in str(lifecycle.why_waiting(now_is(table, span), later))
        assert lifecycle.why_waiting(now_is(table, span), later - 1) is None, "the table has not waited for long"


# --- on Spark ---


def taken(slots: TaskSlots, sink: str, *, is_light: bool = False, given_up: Callable[[], bool] = lambda: True) -> Any:
    return slots.taken(sink, is_light=is_light, given_up=given_up)


def test_one_feed_alone_has_every_core() -> None:
    for slots in (TaskSlots(4, SPARE_SLOTS), TaskSlots(4, 0)):
        with taken(slots, "a") as tasks:
            assert tasks == 4


def test_a_batch_has_as_many_tasks_as_were_set_and_never_more_than_cores() -> None:
    with taken(TaskSlots(8, SPARE_SLOTS, tasks=2), "a") as tasks:
        assert tasks == 2
    with taken(TaskSlots(2, SPARE_SLOTS, tasks=8), "a") as tasks:
        assert tasks == 2


def test_beside_a_sink_that_holds_its_tasks_another_one_goes_on() -> None:
    slots = TaskSlots(2, SPARE_SLOTS)
    with taken(slots, "dead") as dead, taken(slots, "dead", is_light=True) as more, taken(slots, "good") as good:
        assert (dead, more, good) == (2, 1, 1)
        with taken(slots, "dead") as none, taken(slots, "dead", is_light=True) as nor_light:
            assert (none, nor_light) == (0, 0)
    with taken(slots, "good") as tasks:
        assert tasks == 2


def test_a_cluster_keeps_a_core_free_while_others_have_work(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = TaskSlots(4, 0)
    with taken(slots, "good", is_light=True):
        pass
    with taken(slots, "dead") as dead, taken(slots, "good", is_light=True) as good:
        assert (dead, good) == (3, 1)
    monkeypatch.setattr("headgate.replication.task_slots.OTHERS_SECONDS", -OTHERS_SECONDS)
    with taken(slots, "dead") as dead:
        assert dead == 4


def test_a_batch_waits_for_its_place_until_its_lane_ends() -> None:
    slots, leaving, waiting = TaskSlots(1, 0), threading.Event(), threading.Event()
    got: list[int] = []

    def given_up() -> bool:
        waiting.set()
        return leaving.is_set()

    def wait() -> None:
        with slots.taken("a", is_light=False, given_up=given_up) as tasks:
            got.append(tasks)

    thread = threading.Thread(target=wait)
    with taken(slots, "a") as tasks:
        assert tasks == 1
        thread.start()
        assert waiting.wait(scaled_seconds(30))
        leaving.set()
        thread.join(scaled_seconds(30))
    assert got == [0]
