"""The witness: who is told which ENDs, and up to when a span is said to be complete. The broker is a list."""

import json
from collections.abc import Iterator

import pytest

from headgate.agent.executor import SpanId, SpanTask
from headgate.agent.lane import transactions
from headgate.agent.lane.keeper import Board
from headgate.agent.lane.plan import SpanResult
from headgate.agent.lane.span import SpanRun
from headgate.agent.lane.transactions import FAR_MS, WHOLE_SECONDS, TransactionTopic
from headgate.changes.transactions import End, Standing, Tail
from headgate.records.control import Epoch, SpanPlan, TaskState
from headgate.records.ts import ts_of_ms

WHOLE = Standing(None, True)


class Log:
    """The transaction topic, and per table what stands before the sink's position: its tail, and where ENDs begin."""

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.before: dict[str, tuple[Standing, int]] = {}
        self.resting: set[str] = set()
        self.went_to: list[int] = []

    def add(self, transaction: str, ms: int, **counts: int) -> None:
        self.ends.append(End(transaction, ms, {f"public.{table}": count for table, count in counts.items()}))


class ListReader:
    """EndReader on a Log; at most ``AT_ONCE`` ENDs a read."""

    AT_ONCE = 2

    def __init__(self, log: Log, _topic: str, start: int) -> None:
        self._log = log
        self.next = start

    def go_to(self, start: int) -> None:
        self.next = start
        self._log.went_to.append(start)

    def read(self, _seconds: float) -> list[tuple[int, End]]:
        first, self.next = self.next, min(self.next + self.AT_ONCE, len(self._log.ends))
        return [(offset, self._log.ends[offset]) for offset in range(first, self.next)]

    def close(self) -> None:
        pass


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    made = Log()
    monkeypatch.setattr(transactions, "EndReader", ListReader)
    monkeypatch.setattr(
        transactions, "look_back", lambda _, topic, _p: made.before.get(topic.rpartition(".")[2], (WHOLE, 0))
    )
    monkeypatch.setattr(transactions, "rests_at", lambda _, topic, _p: topic.rpartition(".")[2] in made.resting)
    monkeypatch.setattr(transactions, "first_end", lambda _, _topic, start: start)
    return made


@pytest.fixture
def topic(log: Log) -> TransactionTopic:
    return TransactionTopic(Board(), log, "shop.transaction")  # type: ignore[arg-type]  # the broker is a list


def run_of(table: str, **source: object) -> SpanRun:
    spec = {
        "feed": "f",
        "source": {"topics": [f"shop.public.{table}"], "transaction_topic": "shop.transaction", **source},
        "sink": {"type": "postgresql", "dsn": ""},
    }
    plan = SpanPlan(span=table, topic=f"shop.public.{table}", table=f"public.{table}", start={0: 0})
    run = SpanRun(SpanTask(SpanId("f", table), "0-1", 1, Epoch(1, 1), plan, json.dumps(spec)), "c", primary=True)
    run.state, run.claimed = TaskState.REPLICATING, True
    run.opened({0: 0})
    return run


def batch(run: SpanRun, tail: Tail, rows: int = 1, cut: tuple[int, ...] = ()) -> None:
    positions = {0: run.positions[0] + rows} if rows else {}
    run.adopt(
        SpanResult(run.task.id, positions, rows, rows, None, None, 0, None, None, False, 0, 0, tail=tail, cut=cut)
    )


def applied(run: SpanRun, transaction: str, order: int = 1) -> None:
    batch(run, Tail(transaction, order))


def complete(topic: TransactionTopic, *runs: SpanRun) -> list[int | None]:
    """Up to which ms each is complete, the claim's own millisecond excluded, once all ENDs have been read."""
    for _ in range(10):
        topic.turn(runs)
    return [None if (ts := run.status().resolved_ts) is None else (ts + 1) >> 18 for run in runs]


def test_each_table_waits_for_its_own_transactions(log: Log, topic: TransactionTopic) -> None:
    a, b, idle = run_of("a"), run_of("b"), run_of("idle")
    assert complete(topic, a, b, idle) == [None, None, None]
    log.add("1", 10, a=1, b=2)
    log.add("2", 20, b=1)
    log.add("3", 30, a=1)
    assert complete(topic, a, b, idle) == [10, 10, 30]
    applied(a, "1")
    assert complete(topic, a, b, idle) == [30, 10, 30]
    applied(b, "1", order=1)
    assert complete(topic, a, b, idle)[1] == 10
    applied(b, "2")
    assert complete(topic, a, b, idle) == [30, 30, 30]


def test_a_transaction_of_the_same_millisecond_may_follow(log: Log, topic: TransactionTopic) -> None:
    a = run_of("a")
    log.add("1", 10)
    complete(topic, a)
    assert a.status().resolved_ts == ts_of_ms(10) - 1


def test_commit_order_decides_where_a_clock_went_back(log: Log, topic: TransactionTopic) -> None:
    a = run_of("a")
    log.add("1", 10)
    log.add("2", 50)
    log.add("3", 20, a=1)
    assert complete(topic, a) == [50], "what is missing was committed after that time was reached"


def test_a_span_that_is_opened_goes_on_from_what_is_before_the_sinks_position(
    log: Log, topic: TransactionTopic
) -> None:
    for number in range(1, 8):
        log.add(str(number), number * 10, a=1)
    a = run_of("a")
    log.before["a"] = (Standing(Tail("5", 1), True), 3)
    assert complete(topic, a) == [60]
    a.opened({0: 3})
    assert a.status().resolved_ts is None, "evidence is sought anew"
    log.before["a"] = (Standing(Tail("7", 1), True), 5)
    assert complete(topic, a) == [70]


def test_a_newcomer_is_told_what_the_others_know_and_claims_nothing_before(log: Log, topic: TransactionTopic) -> None:
    for number in range(1, 8):
        log.add(str(number), number * 10, **({"late": 1} if number < 7 else {}))
    a, late = run_of("a"), run_of("late")
    log.before["a"] = (WHOLE, 6)
    assert complete(topic, a) == [70]
    topic.turn([a, late])
    assert (late.status().resolved_ts, log.went_to) == (None, [0]), "not all that may be missing is known yet"
    assert complete(topic, a, late) == [70, 10], "times are those of the log, not of what was read before"
    applied(late, "6")
    log.add("8", 80)
    assert complete(topic, a, late) == [80, 80]


def test_a_batch_that_ends_while_the_log_is_looked_at_is_not_forgotten(
    log: Log, topic: TransactionTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = run_of("a")
    log.add("1", 10, a=1)
    log.add("2", 20, a=1)

    def meanwhile(*_: object) -> tuple[Standing, int]:
        applied(a, "2")
        return Standing(Tail("1", 1), True), 0

    monkeypatch.setattr(transactions, "look_back", meanwhile)
    assert complete(topic, a) == [20]


def test_a_span_that_is_opened_while_the_log_is_looked_at_is_looked_at_again(
    log: Log, topic: TransactionTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = run_of("a")
    log.add("1", 10, a=1)
    looks = []

    def meanwhile(_source: object, _topic: str, position: int) -> tuple[Standing, int]:
        looks.append(position)
        if len(looks) == 1:
            a.opened({0: 5})
        return WHOLE, 0

    monkeypatch.setattr(transactions, "look_back", meanwhile)
    assert complete(topic, a) == [10]
    assert looks == [0, 5]


def test_a_span_far_behind_is_told_nothing_until_it_is_close(log: Log, topic: TransactionTopic) -> None:
    a = run_of("a")
    log.add("1", 10, a=1)
    assert complete(topic, a) == [10]
    a.lag_ms = FAR_MS + 1
    topic.turn([a])
    assert a.evidence is None
    log.add("2", 20, a=1)
    applied(a, "2")
    assert complete(topic, a) == [10], "what was claimed stays true"
    a.lag_ms = 0
    assert complete(topic, a) == [20]


def test_a_span_that_is_cut_ends_at_the_feeds_target(log: Log, topic: TransactionTopic) -> None:
    noon_ms = 1_795_262_400_000
    target = ts_of_ms(noon_ms + 25)
    a, b = run_of("a", target_ts=target), run_of("b", target_ts=target)
    log.add("1", noon_ms + 10, a=1, b=1)
    log.add("2", noon_ms + 30, a=1)
    applied(b, "1")
    a.lag_ms = FAR_MS + 1
    batch(a, Tail("2", 0), rows=0, cut=(0,))
    assert (a.is_at_target, a.writable, a.awaited, b.is_at_target) == (True, False, {}, False)
    complete(topic, a, b)
    assert a.status().resolved_ts == b.status().resolved_ts == target, "not beyond: what comes next is not wanted"
    assert b.is_at_target


def test_no_end_counts_the_rows_of_a_snapshot(
    log: Log, topic: TransactionTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked, changed, only, behind = (run_of(name) for name in ("marked", "changed", "only", "behind"))
    runs = (marked, changed, only, behind)
    log.before = {name: (Standing(), 0) for name in ("marked", "changed", "only", "behind")}
    log.resting = {"only"}
    log.add("1", 10)
    log.add("2", 20, changed=1)
    log.add("3", 30)
    now = [100.0]
    monkeypatch.setattr(transactions.time, "monotonic", lambda: now[0])
    assert complete(topic, *runs) == [None] * 4, "their snapshots may be on their way, and have been read in part"
    log.before["marked"] = (WHOLE, 0)
    applied(changed, "2")
    now[0] += WHOLE_SECONDS / 2
    assert complete(topic, *runs) == [30, 30, None, None]
    now[0] += WHOLE_SECONDS / 2
    assert complete(topic, *runs) == [30, 30, 30, None], "what was sent before an END has long been there"
