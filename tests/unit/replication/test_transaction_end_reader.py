"""Transaction ends: who is told which ENDs, and up to when a span is said to be complete. The broker is a list."""

import json
from collections.abc import Iterator

import pytest

from headgate.agent.core.executor import SpanId, SpanTask
from headgate.agent.core.span.inputs import BatchOver, Opened, Placed, Planned, SentBack, Served, SpanResult
from headgate.formats.transactions import End, TransactionProgress
from headgate.records.control import Epoch, Positions, SpanPlan
from headgate.records.source_tables import Tail
from headgate.records.ts import ts_of_ms
from headgate.replication import transaction_end_reader as reader
from headgate.replication.queries import Queries
from headgate.replication.span_table import SpanTable
from headgate.replication.transaction_end_reader import FAR_MS, WHOLE_SECONDS, TransactionTopic
from headgate.sources.topic_ids import TopicReplacedError
from support.lanes_without_spark import lane_of, now_is

WHOLE = TransactionProgress(None, True)


class Log:
    """The transaction topic, and per table what stands before the sink's position: its tail, and where ENDs begin."""

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.before: dict[str, tuple[TransactionProgress, int]] = {}
        self.resting: set[str] = set()
        self.went_to: list[int] = []
        self.topic_id = "one"

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
    monkeypatch.setattr(reader, "EndReader", ListReader)
    monkeypatch.setattr(reader, "look_back", lambda _, topic, _p: made.before.get(topic.rpartition(".")[2], (WHOLE, 0)))
    monkeypatch.setattr(reader, "rests_at", lambda _, topic, _p: topic.rpartition(".")[2] in made.resting)
    monkeypatch.setattr(reader, "first_end", lambda _, _topic, start: start)
    monkeypatch.setattr(reader, "topic_id_of", lambda _, _topic: made.topic_id)
    monkeypatch.setattr(
        reader, "topic_ids", lambda _, topics: dict.fromkeys(topics, made.topic_id) if made.topic_id else {}
    )
    return made


@pytest.fixture
def topic(log: Log, table: SpanTable) -> TransactionTopic:
    return TransactionTopic(table, log, "shop.transaction", lambda _: False)  # type: ignore[arg-type]  # a list


@pytest.fixture
def spans(table: SpanTable, queries: Queries) -> "Spans":
    return Spans(table, queries)


class Spans:
    """Spans that are written on a lane."""

    def __init__(self, table: SpanTable, queries: Queries) -> None:
        self._table = table
        self._lane = lane_of(queries, "a", {0: 0})

    def of(self, name: str, **source: object) -> SpanId:
        spec = {
            "feed": "f",
            "source": {"topics": [f"shop.public.{name}"], "transaction_topic": "shop.transaction", **source},
            "sink": {"type": "postgresql", "dsn": "dbname=x"},
        }
        plan = SpanPlan(span=name, topic=f"shop.public.{name}", table=f"public.{name}", start={0: 0})
        task = SpanTask(SpanId("f", name), "0-1", 1, Epoch(1, 1), plan, json.dumps(spec))
        self._table.add(task, primary=True)
        target_ts = source.get("target_ts")
        assert target_ts is None or isinstance(target_ts, int)
        self._place(task.id, {0: 0}, target_ts)
        return task.id

    def opened(self, span: SpanId, positions: Positions) -> None:
        self._table.apply(span, SentBack("it is opened again"))
        self._place(span, positions)

    def _place(self, span: SpanId, positions: Positions, target_ts: int | None = None) -> None:
        self._table.apply(span, Opened(Epoch(1, 1), True, positions, target_ts=target_ts))
        self._table.apply(span, Placed("a"))
        self._table.apply(span, Served())

    def batch(self, span: SpanId, tail: Tail | None, rows: int = 1, cut: tuple[int, ...] = (), lag_ms: int = 0) -> None:
        positions = {0: now_is(self._table, span).positions[0] + rows} if rows else {}
        result = SpanResult(
            span, positions, rows, rows, 0, None, lag_ms, None, None, False, 0, 0, tail=tail, cut=cut
        )  # fmt: skip
        self._table.apply(span, Planned())
        self._table.apply(span, BatchOver(result, {}))

    def applied(self, span: SpanId, transaction: str, order: int = 1) -> None:
        self.batch(span, Tail(transaction, order))

    def turn(self, topic: TransactionTopic, *spans: SpanId) -> None:
        topic.turn(self._table.members(spans))

    def resolved_ts(self, span: SpanId) -> int | None:
        return now_is(self._table, span).status(0, 0.0).resolved_ts

    def complete(self, topic: TransactionTopic, *spans: SpanId) -> list[int | None]:
        """Up to which ms each is complete, the claim's own millisecond excluded, once all ENDs have been read."""
        for _ in range(10):
            self.turn(topic, *spans)
        return [None if (ts := self.resolved_ts(span)) is None else (ts + 1) >> 18 for span in spans]


def test_each_table_waits_for_its_own_transactions(log: Log, topic: TransactionTopic, spans: Spans) -> None:
    a, b, idle = spans.of("a"), spans.of("b"), spans.of("idle")
    assert spans.complete(topic, a, b, idle) == [None, None, None]
    log.add("1", 10, a=1, b=2)
    log.add("2", 20, b=1)
    log.add("3", 30, a=1)
    assert spans.complete(topic, a, b, idle) == [10, 10, 30]
    spans.applied(a, "1")
    assert spans.complete(topic, a, b, idle) == [30, 10, 30]
    spans.applied(b, "1", order=1)
    assert spans.complete(topic, a, b, idle)[1] == 10
    spans.applied(b, "2")
    assert spans.complete(topic, a, b, idle) == [30, 30, 30]


def test_a_transaction_of_the_same_millisecond_may_follow(log: Log, topic: TransactionTopic, spans: Spans) -> None:
    a = spans.of("a")
    log.add("1", 10)
    spans.complete(topic, a)
    assert spans.resolved_ts(a) == ts_of_ms(10) - 1


def test_commit_order_decides_where_a_clock_went_back(log: Log, topic: TransactionTopic, spans: Spans) -> None:
    a = spans.of("a")
    log.add("1", 10)
    log.add("2", 50)
    log.add("3", 20, a=1)
    assert spans.complete(topic, a) == [50], "what is missing was committed after that time was reached"


def test_a_span_that_is_opened_goes_on_from_what_is_before_the_sinks_position(
    log: Log, topic: TransactionTopic, spans: Spans
) -> None:
    for number in range(1, 8):
        log.add(str(number), number * 10, a=1)
    a = spans.of("a")
    log.before["a"] = (TransactionProgress(Tail("5", 1), True), 3)
    assert spans.complete(topic, a) == [60]
    spans.opened(a, {0: 3})
    assert spans.resolved_ts(a) is None, "evidence is sought anew"
    log.before["a"] = (TransactionProgress(Tail("7", 1), True), 5)
    assert spans.complete(topic, a) == [70]


def test_a_newcomer_is_told_what_the_others_know_and_claims_nothing_before(
    log: Log, topic: TransactionTopic, spans: Spans
) -> None:
    for number in range(1, 8):
        log.add(str(number), number * 10, **({"late": 1} if number < 7 else {}))
    a, late = spans.of("a"), spans.of("late")
    log.before["a"] = (WHOLE, 6)
    assert spans.complete(topic, a) == [70]
    spans.turn(topic, a, late)
    assert (spans.resolved_ts(late), log.went_to) == (None, [0]), "not all that may be missing is known yet"
    assert spans.complete(topic, a, late) == [70, 10], "times are those of the log, not of what was read before"
    spans.applied(late, "6")
    log.add("8", 80)
    assert spans.complete(topic, a, late) == [80, 80]


def test_a_batch_that_ends_while_the_log_is_looked_at_is_not_forgotten(
    log: Log, topic: TransactionTopic, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = spans.of("a")
    log.add("1", 10, a=1)
    log.add("2", 20, a=1)

    def meanwhile(*_: object) -> tuple[TransactionProgress, int]:
        spans.applied(a, "2")
        return TransactionProgress(Tail("1", 1), True), 0

    monkeypatch.setattr(reader, "look_back", meanwhile)
    assert spans.complete(topic, a) == [20]


def test_a_span_that_is_opened_while_the_log_is_looked_at_is_looked_at_again(
    log: Log, topic: TransactionTopic, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = spans.of("a")
    log.add("1", 10, a=1)
    looks = []

    def meanwhile(_source: object, _topic: str, position: int) -> tuple[TransactionProgress, int]:
        looks.append(position)
        if len(looks) == 1:
            spans.opened(a, {0: 5})
        return WHOLE, 0

    monkeypatch.setattr(reader, "look_back", meanwhile)
    assert spans.complete(topic, a) == [10]
    assert looks == [0, 5]


def test_a_span_far_behind_is_told_nothing_until_it_is_close(log: Log, topic: TransactionTopic, spans: Spans) -> None:
    a = spans.of("a")
    log.add("1", 10, a=1)
    assert spans.complete(topic, a) == [10]
    spans.batch(a, None, rows=0, lag_ms=FAR_MS + 1)
    spans.turn(topic, a)
    assert topic._members == {}
    log.add("2", 20, a=1)
    spans.batch(a, Tail("2", 1), lag_ms=FAR_MS + 1)
    assert spans.complete(topic, a) == [10], "what was claimed stays true"
    spans.batch(a, None, rows=0)
    assert spans.complete(topic, a) == [20]


def test_a_span_that_is_cut_ends_at_the_feeds_target(
    log: Log, table: SpanTable, topic: TransactionTopic, spans: Spans
) -> None:
    noon_ms = 1_795_262_400_000
    target = ts_of_ms(noon_ms + 25)
    a, b = spans.of("a", target_ts=target), spans.of("b", target_ts=target)
    log.add("1", noon_ms + 10, a=1, b=1)
    log.add("2", noon_ms + 30, a=1)
    spans.applied(b, "1")
    spans.batch(a, Tail("2", 0), rows=0, cut=(0,), lag_ms=FAR_MS + 1)
    found, other = now_is(table, a), now_is(table, b)
    assert (found.is_at_target, found.writable, found.awaited, other.is_at_target) == (True, False, {}, False)
    spans.complete(topic, a, b)
    assert spans.resolved_ts(a) == spans.resolved_ts(b) == target, "not beyond: what comes next is not wanted"
    assert now_is(table, b).is_at_target


def test_no_end_counts_the_rows_of_a_snapshot(
    log: Log, topic: TransactionTopic, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked, changed, only, behind = (spans.of(name) for name in ("marked", "changed", "only", "behind"))
    runs = (marked, changed, only, behind)
    log.before = {name: (TransactionProgress(), 0) for name in ("marked", "changed", "only", "behind")}
    log.resting = {"only"}
    log.add("1", 10)
    log.add("2", 20, changed=1)
    log.add("3", 30)
    now = [100.0]
    monkeypatch.setattr(reader.time, "monotonic", lambda: now[0])
    assert spans.complete(topic, *runs) == [None] * 4, "their snapshots may be on their way, and have been read in part"
    log.before["marked"] = (WHOLE, 0)
    spans.applied(changed, "2")
    now[0] += WHOLE_SECONDS / 2
    assert spans.complete(topic, *runs) == [30, 30, None, None]
    now[0] += WHOLE_SECONDS / 2
    assert spans.complete(topic, *runs) == [30, 30, 30, None], "what was sent before an END has long been there"


def test_ends_of_a_re_created_transaction_topic_are_no_evidence(
    topic: TransactionTopic, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "TOPIC_SECONDS", 0.0)
    topic.turn([])
    log.topic_id = "two"
    with pytest.raises(TopicReplacedError, match="its id was one and is two now"):
        topic.turn([])


def test_a_broker_that_does_not_know_the_transaction_topic_for_a_moment_says_nothing_of_it(
    topic: TransactionTopic, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "TOPIC_SECONDS", 0.0)
    log.topic_id = ""
    topic.turn([])
