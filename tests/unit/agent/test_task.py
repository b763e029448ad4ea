"""The task function without Spark: which rows reach the sink, under which positions, and whose trouble stays whose."""

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
import pytest

from headgate.agent.executor import SpanId
from headgate.agent.lane import task
from headgate.agent.lane.plan import BatchPlan, SpanResult, SpanWork, TaskResult
from headgate.changes.debezium_json import Decoder
from headgate.records.control import Epoch
from headgate.sinks.contract import Applied, ChangeBatch, Claim, FeedIdentity, SinkFencedError, SinkUnavailableError

SPEC = "the feed's spec"


class RecordingParts:
    """A feed's parts whose sink remembers the batches, or refuses those of some tables."""

    def __init__(self) -> None:
        self.decoder = Decoder()
        self.batches: list[ChangeBatch] = []
        self.refuse: dict[str, Exception] = {}
        self.dropped = 0

    def writer(self) -> "RecordingParts":
        return self

    def drop_writer(self) -> None:
        self.dropped += 1

    def apply(self, batch: ChangeBatch) -> Applied:
        if batch.claim.table in self.refuse:
            raise self.refuse[batch.claim.table]
        self.batches.append(batch)
        return Applied({p: r.next for p, r in batch.ranges.items()}, len(batch.changes), 0, 0)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> RecordingParts:
    made = RecordingParts()
    monkeypatch.setitem(task._parts, SPEC, made)  # type: ignore[arg-type]
    return made


def work(table: str, expected: dict[int, int]) -> SpanWork:
    identity = FeedIdentity("c", "0-1", "shop")
    claim = Claim(identity, table, f"t.{table}", Epoch(1, 1), 1, dict.fromkeys(expected, 0))
    return SpanWork(SpanId("shop", table), f"t.{table}", claim, expected)


Rows = Sequence[tuple[str, int, int]]


def arrow(rows: Rows, bad: frozenset[int] = frozenset()) -> pa.RecordBatch:
    values = [
        b"{"
        if offset in bad
        else msgspec.json.encode({"op": "c", "after": {"id": offset}, "source": {"ts_ms": offset}})
        for _, _, offset in rows
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([f"t.{table}" for table, _, _ in rows], pa.string()),
            pa.array([partition for _, partition, _ in rows], pa.int32()),
            pa.array([offset for _, _, offset in rows], pa.int64()),
            pa.array([1000 + offset for _, _, offset in rows], pa.int64()),
            pa.array([msgspec.json.encode({"id": offset}) for _, _, offset in rows], pa.binary()),
            pa.array(values, pa.binary()),
        ],
        names=["topic", "partition", "offset", "append_ms", "key", "value"],
    )


def run(works: Sequence[SpanWork], batches: Sequence[pa.RecordBatch]) -> TaskResult:
    (answer,) = task.run_task(BatchPlan(SPEC, tuple(works)), iter(batches))
    return msgspec.json.decode(answer.column(0)[0].as_py(), type=TaskResult)


def by_table(result: TaskResult) -> Iterator[tuple[str, SpanResult]]:
    return ((span.id.span, span) for span in result.spans)


def test_rows_are_grouped_and_what_the_sink_has_is_dropped(parts: RecordingParts) -> None:
    rows = [("a", 0, 4), ("a", 0, 5), ("a", 0, 9), ("b", 0, 1), ("a", 1, 7)]
    result = run([work("a", {0: 5, 1: 0}), work("b", {0: 2})], [arrow(rows[:2]), arrow(rows[2:])])
    (batch,) = parts.batches
    assert [(c.partition, c.offset) for c in batch.changes] == [(0, 5), (0, 9), (1, 7)]
    assert {p: (r.expected, r.next) for p, r in batch.ranges.items()} == {0: (5, 10), 1: (0, 8)}
    (span,) = result.spans
    assert (span.positions, span.rows, span.oldest_append_ms, span.newest_source_ms) == ({0: 10, 1: 8}, 3, 1005, 9)
    assert result.seen == {"t.a": {0: 10, 1: 8}, "t.b": {0: 2}}, "read along counts too"


def test_spans_without_work_are_read_along_and_written_by_nobody(parts: RecordingParts) -> None:
    result = run([], [arrow([("a", 0, 3)])])
    assert (parts.batches, result.spans, result.seen) == ([], (), {"t.a": {0: 4}})
    assert run([], []).seen == {}


def test_a_span_of_one_partition_is_applied_as_soon_as_the_next_one_begins(parts: RecordingParts) -> None:
    run([work("b", {0: 0}), work("a", {0: 0})], [arrow([("b", 0, 1)]), arrow([("b", 0, 2), ("a", 0, 1)])])
    assert [(b.claim.table, len(b.changes)) for b in parts.batches] == [("b", 2), ("a", 1)]


def test_what_stands_before_a_broken_event_is_written_and_its_place_is_the_position(parts: RecordingParts) -> None:
    rows = [("a", 0, 1), ("a", 0, 2), ("a", 0, 3), ("b", 0, 9)]
    result = dict(by_table(run([work("a", {0: 0}), work("b", {0: 0})], [arrow(rows, frozenset({2}))])))
    assert [c.offset for c in parts.batches[0].changes] == [1]
    assert (result["a"].positions, result["a"].error_code, result["a"].retryable) == (
        {0: 2},
        "change_undecodable",
        False,
    )
    assert "offset 2" in str(result["a"].error)
    assert (result["b"].positions, result["b"].error) == ({0: 10}, None)


@pytest.mark.parametrize(
    ("error", "code", "retryable", "dropped"),
    [
        (SinkFencedError("over"), "sink_fenced", False, 0),
        (SinkUnavailableError("gone"), "sink_unavailable", True, 1),
        (RuntimeError("a fault"), "internal", False, 1),
    ],
)
def test_one_tables_sink_error_is_not_the_others(
    parts: RecordingParts, error: Exception, code: str, retryable: bool, dropped: int
) -> None:
    parts.refuse["public.a"] = error
    works = [work("public.a", {0: 0}), work("public.b", {0: 0})]
    result = dict(by_table(run(works, [arrow([("public.a", 0, 1), ("public.b", 0, 1)])])))
    failed = result["public.a"]
    assert (failed.error_code, failed.retryable, failed.positions, failed.rows) == (code, retryable, {}, 0)
    assert result["public.b"].positions == {0: 2}
    assert parts.dropped == dropped
