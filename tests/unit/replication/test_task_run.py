"""The task function without Spark: which rows reach the sink, under which positions, and whose trouble stays whose."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from headgate.formats import canal_json, debezium_json
from headgate.formats.decoding import SchemasUnavailableError
from headgate.records.source_tables import Tail
from headgate.replication import task_run
from headgate.replication.frames import Chunk
from headgate.replication.plan import BatchPlan, SpanResult
from headgate.sinks.contract import (
    QuarantineUnavailableError,
    SinkFencedError,
    SinkUnavailableError,
    ValueRefusedError,
)
from headgate.sinks.lacking_columns import LackingColumnsError

from .conftest import BOX, SPEC, RecordingParts, RecordingQuarantine, by_table, canal, chunk, run, work


def test_rows_are_grouped_by_span(parts: RecordingParts) -> None:
    chunks = [chunk("a", 0, [5]), chunk("a", 0, [9]), chunk("a", 1, [7]), chunk("b", 0, [3])]
    result = run([work("a", {0: 5, 1: 0})], chunks)
    (batch,) = parts.batches
    assert [(c.partition, c.offset) for c in batch.changes] == [(0, 5), (0, 9), (1, 7)]
    assert {p: (r.expected, r.next) for p, r in batch.ranges.items()} == {0: (5, 10), 1: (0, 8)}
    (span,) = result.spans
    assert (span.positions, span.rows, span.oldest_append_ms, span.newest_source_ms) == ({0: 10, 1: 8}, 3, 1005, 9)
    assert result.seen == {"t.a": {0: 10, 1: 8}, "t.b": {0: 4}}, "a row of nobody's came, too"


def test_rows_without_work_are_written_by_nobody(parts: RecordingParts) -> None:
    result = run([], [chunk("a", 0, [3])])
    assert (parts.batches, result.spans, result.seen) == ([], (), {"t.a": {0: 4}})
    assert run([], []).seen == {}


def test_what_the_sink_has_already_is_dropped(parts: RecordingParts) -> None:
    works = [work("a", {0: 3}), msgspec.structs.replace(work("b", {0: 1}), begin={0: 5})]
    result = run(works, [chunk("a", 0, [1, 2]), chunk("a", 0, [2, 3, 4]), chunk("b", 0, [3, 4, 7])])
    assert [[c.offset for c in batch.changes] for batch in parts.batches] == [[3, 4], [7]]
    assert [{p: (r.expected, r.next) for p, r in batch.ranges.items()} for batch in parts.batches] == [
        {0: (3, 5)},
        {0: (1, 8)},
    ]
    assert result.seen == {"t.a": {0: 5}, "t.b": {0: 8}}


def test_what_stands_before_a_broken_event_is_written_and_its_place_is_the_position(parts: RecordingParts) -> None:
    chunks = [chunk("a", 0, [1, 2, 3], frozenset({2})), chunk("b", 0, [9])]
    result = dict(by_table(run([work("a", {0: 0}), work("b", {0: 0})], chunks)))
    assert [c.offset for c in parts.batches[0].changes] == [1]
    assert (result["a"].positions, result["a"].error_code, result["a"].retryable) == (
        {0: 2},
        "change_undecodable",
        False,
    )
    assert "offset 2" in str(result["a"].error)
    assert (result["b"].positions, result["b"].error) == ({0: 10}, None)


def test_events_whose_schemas_cannot_be_had_wait_and_their_neighbours_do_not(parts: RecordingParts) -> None:
    class Waiting(debezium_json.DebeziumJsonDecoder):
        def decode_batch(self, *columns: Any) -> list[Any]:
            if 7 in columns[3]:
                raise SchemasUnavailableError("the schema registry at http://r cannot be used: timed out")
            return super().decode_batch(*columns)

    parts._decoder = Waiting()
    chunks = [chunk("a", 0, [5]), chunk("a", 0, [7]), chunk("b", 0, [3])]
    result = dict(by_table(run([work("a", {0: 5}), work("b", {0: 0})], chunks)))
    failed = result["a"]
    assert (failed.error_code, failed.retryable, failed.positions, failed.rows) == ("registry_unavailable", True, {}, 0)
    assert "a: topic t.a, partition 0, from offset 7 on: the schema registry at http://r" in str(failed.error)
    assert [batch.claim.table for batch in parts.batches] == ["b"]


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
    result = dict(by_table(run(works, [chunk("public.a", 0, [1]), chunk("public.b", 0, [1])])))
    failed = result["public.a"]
    assert (failed.error_code, failed.retryable, failed.positions, failed.rows) == (code, retryable, {}, 0)
    assert result["public.b"].positions == {0: 2}
    assert parts.dropped == dropped


def test_a_sink_that_gets_nowhere_is_an_error_and_not_a_loop(parts: RecordingParts) -> None:
    parts.applied_to = 2
    (span,) = run([work("a", {0: 2})], [chunk("a", 0, [2, 3])]).spans
    assert (span.positions, span.rows, span.error_code, span.retryable) == ({0: 2}, 0, "internal", False)
    assert "positions stay at {0: 2}" in str(span.error)
    assert len(parts.batches) == 1


# --- evidence of time ---------------------------------------------------------------------------------------


@pytest.fixture
def canal_parts(parts: RecordingParts) -> RecordingParts:
    parts._decoder = canal_json.CanalDecoder(tidb=True)
    return parts


def ended_at(parts: RecordingParts, target_ts: int) -> None:
    parts.target_ts = target_ts
    parts._decoder = canal_json.CanalDecoder(tidb=True, target_ts=target_ts)


def test_a_watermark_counts_once_all_before_it_is_at_the_sink(canal_parts: RecordingParts) -> None:
    (span,) = run([work("a", {0: 0, 1: 0})], canal([(0, 0, 5), (0, 1, -6), (0, 2, 7), (1, 0, -9)])).spans
    assert (span.positions, span.resolved) == ({0: 3, 1: 1}, {0: 6, 1: 9})
    assert [change.offset for change in canal_parts.batches[0].changes] == [0, 2]


def test_a_batch_that_the_sink_refuses_resolves_nothing(canal_parts: RecordingParts) -> None:
    canal_parts.refuse["a"] = SinkUnavailableError("away")
    (span,) = run([work("a", {0: 0})], canal([(0, 0, 5), (0, 1, -6)])).spans
    assert (span.positions, span.resolved, span.error_code) == ({}, {}, "sink_unavailable")


def test_a_watermark_behind_a_change_that_the_sink_left_out_is_not_reached(canal_parts: RecordingParts) -> None:
    canal_parts.applied_to = 2
    (span,) = run([work("a", {0: 0})], canal([(0, 0, 5), (0, 1, -6), (0, 2, 7), (0, 3, -8)])).spans
    assert (span.positions, span.resolved) == ({0: 2}, {0: 6})


def test_a_span_ends_in_front_of_the_watermark_that_reaches_the_target(canal_parts: RecordingParts) -> None:
    ended_at(canal_parts, 10)
    rows = [(0, 0, 9), (0, 1, -8), (0, 2, 11), (0, 3, 10), (0, 4, -12), (0, 5, 13)]
    (span,) = run([work("a", {0: 0})], canal(rows)).spans
    assert [change.offset for change in canal_parts.batches[0].changes] == [0, 3]
    assert (span.positions, span.resolved) == ({0: 4}, {0: 12})

    again = run([work("a", {0: 4})], canal(rows[4:])).spans
    assert [(span.positions, span.resolved) for span in again] == [({}, {0: 12})], "whoever comes next meets it again"
    assert len(canal_parts.batches) == 1


# --- transactions ---------------------------------------------------------------------------------------------------

NOON_MS = 1_795_262_400_000


def traced(rows: Sequence[tuple[int, str | None, int, int]], snapshot: str = "false") -> list[Chunk]:
    """Debezium's changes of table a, partition 0: (offset, transaction, number in it, seconds after noon)."""
    values = [
        msgspec.json.encode(
            {
                "op": "c",
                "after": {"id": offset},
                "source": {"ts_ms": NOON_MS + seconds * 1000, "snapshot": snapshot},
                "transaction": None if name is None else {"id": f"{name}:{offset}", "data_collection_order": order},
            }
        )
        for offset, name, order, seconds in rows
    ]
    return [msgspec.structs.replace(chunk("a", 0, [row[0] for row in rows]), values=values)]


@pytest.fixture
def traced_parts(parts: RecordingParts) -> RecordingParts:
    parts._decoder = debezium_json.DebeziumJsonDecoder(transactions=True)
    return parts


TWO_TRANSACTIONS = [(4, "7", 1, 0), (5, "7", 2, 0), (7, "8", 1, 1), (8, "8", 2, 1)]


def test_a_batch_tells_the_last_transaction_it_has_applied(traced_parts: RecordingParts) -> None:
    (span,) = run([work("a", {0: 4})], traced(TWO_TRANSACTIONS)).spans
    assert (span.tail, span.cut) == (Tail("8", 2), ())


def test_a_part_of_a_batch_tells_the_last_transaction_that_is_whole_in_it(traced_parts: RecordingParts) -> None:
    traced_parts.applied_to = 8
    (span,) = run([work("a", {0: 4})], traced(TWO_TRANSACTIONS)).spans
    assert (span.positions, span.tail) == ({0: 8}, Tail("7", 2))


def test_a_batch_that_is_refused_tells_of_no_transaction(traced_parts: RecordingParts) -> None:
    traced_parts.refuse["a"] = SinkUnavailableError("away")
    (span,) = run([work("a", {0: 4})], traced(TWO_TRANSACTIONS)).spans
    assert (span.positions, span.tail) == ({}, None)


@pytest.mark.parametrize("first", [4, 7])
def test_a_partition_ends_in_front_of_its_first_change_after_the_target(
    traced_parts: RecordingParts, first: int
) -> None:
    traced_parts.target_ts = (NOON_MS + 500) << 18
    (span,) = run([work("a", {0: 4})], traced([row for row in TWO_TRANSACTIONS if row[0] >= first])).spans
    assert (span.tail, span.cut, span.error_code) == (Tail("8", 0), (0,), None), "all before transaction 8 is applied"
    assert [[change.offset for change in batch.changes] for batch in traced_parts.batches] == [[4, 5]][: first == 4]
    assert span.positions == ({0: 7} if first == 4 else {}), "the change waits for a feed with a later target"


def test_a_cut_batch_that_is_refused_is_not_cut(traced_parts: RecordingParts) -> None:
    traced_parts.target_ts = (NOON_MS + 500) << 18
    traced_parts.refuse["a"] = SinkUnavailableError("away")
    (span,) = run([work("a", {0: 4})], traced(TWO_TRANSACTIONS)).spans
    assert (span.tail, span.cut) == (None, ())


def test_a_snapshot_after_the_target_is_said(traced_parts: RecordingParts) -> None:
    traced_parts.target_ts = NOON_MS << 18
    (span,) = run([work("a", {0: 4})], traced([(4, None, 0, 1)], snapshot="first")).spans
    assert (span.error_code, span.retryable, span.positions) == ("target_before_snapshot", False, {})
    assert span.error is not None
    assert "2026-11-21T12:00:01" in span.error


# --- bad changes, set aside ------------------------------------------------------------------------------------------


def run_boxed(left: int, bad: frozenset[int], **more: Any) -> SpanResult:
    span = msgspec.structs.replace(work("a", {0: 0}), quarantine_left=left, **more)
    plan = BatchPlan(SPEC, (span,), BOX)
    return task_run.run_task(plan, [chunk("a", 0, OFFSETS, bad)]).spans[0]


OFFSETS = range(1, 9)


def test_what_cannot_be_decoded_is_kept_before_the_sink_hears_of_it(
    parts: RecordingParts, quarantine: RecordingQuarantine
) -> None:
    parts.before = lambda: list(quarantine.kept)
    result = run_boxed(9, frozenset({2, 3, 8}))
    assert parts.seen_before == [[(2, "change_undecodable"), (3, "change_undecodable"), (8, "change_undecodable")]]
    assert [c.offset for c in parts.batches[0].changes] == [1, 4, 5, 6, 7]
    assert (result.positions, result.error, result.quarantined, result.rows) == ({0: 9}, None, 3, 8)


def test_what_the_sink_refuses_is_kept_by_its_place_and_reason(
    parts: RecordingParts, quarantine: RecordingQuarantine
) -> None:
    parts.bad = {(0, 4): ValueRefusedError("too long", 0, 4)}
    result = run_boxed(9, frozenset())
    assert quarantine.kept == [(4, "value_refused")]
    sent = chunk("a", 0, [4])
    assert quarantine.originals == [(sent.keys[0], sent.values[0], [], 1004)]
    assert (result.positions, result.error, result.quarantined) == ({0: 9}, None, 1)


def test_what_was_kept_with_a_prefix_is_not_left_for_the_rest(
    parts: RecordingParts, quarantine: RecordingQuarantine
) -> None:
    parts.bad, parts.applied_to = {(0, 2): ValueRefusedError("too long", 0, 2)}, 5
    run_boxed(9, frozenset())
    assert quarantine.kept == [(2, "value_refused")]
    assert [batch.quarantine.most for batch in parts.batches if batch.quarantine is not None] == [9, 8]


def test_a_named_record_is_set_aside_and_the_next_bad_one_stops_the_table(
    parts: RecordingParts, quarantine: RecordingQuarantine
) -> None:
    result = run_boxed(1, frozenset({2, 6}), only=frozenset({(0, 2)}))
    assert quarantine.kept == [(2, "change_undecodable")]
    assert [change.offset for change in parts.batches[0].changes] == [1, 3, 4, 5]
    assert (result.positions, result.error_code, result.quarantined) == ({0: 6}, "change_undecodable", 1)
    assert "`headgate feed skip FEED t.a/0/6`" in str(result.error)


def test_only_named_records_are_offered_to_the_sink_as_skippable(
    parts: RecordingParts, quarantine: RecordingQuarantine
) -> None:
    run_boxed(1, frozenset(), only=frozenset({(0, 4)}))
    (batch,) = parts.batches
    assert batch.quarantine is not None
    assert (batch.quarantine.most, batch.quarantine.only) == (1, {(0, 4)})
    assert quarantine.kept == []


def test_more_than_may_be_kept_fails_the_table_and_keeps_none_of_them(
    parts: RecordingParts, quarantine: RecordingQuarantine
) -> None:
    result = run_boxed(2, frozenset({2, 3, 8}))
    assert (result.error_code, result.retryable, result.positions) == ("quarantine_full", False, {})
    assert "offset 8" in str(result.error)
    assert (quarantine.kept, parts.batches) == ([], [])


def canal_chunk(rows: Sequence[tuple[int, int, int]], bad: frozenset[int]) -> Chunk:
    chunks = canal(rows)
    values = [b"{" if one.offsets[0] in bad else one.values[0] for one in chunks]
    return msgspec.structs.replace(chunk("a", 0, [row[1] for row in rows]), values=values)


ENDING = [(0, 0, 5), (0, 1, 6), (0, 2, 7), (0, 3, -12), (0, 4, 13), (0, 5, 14)]
"""Of a feed with target 10: the watermark at offset 3 ends it."""


def test_no_position_moves_past_changes_that_could_not_be_kept_because_the_feed_ends_behind_them(
    canal_parts: RecordingParts, quarantine: RecordingQuarantine
) -> None:
    ended_at(canal_parts, 10)
    span = msgspec.structs.replace(work("a", {0: 0}), quarantine_left=1)
    plan = BatchPlan(SPEC, (span,), BOX)
    (result,) = task_run.run_task(plan, [canal_chunk(ENDING, frozenset({2, 4}))]).spans
    assert (result.error_code, result.positions) == ("quarantine_full", {})
    assert (quarantine.kept, canal_parts.batches) == ([], [])


def test_what_cannot_be_decoded_behind_the_target_is_nobodys_trouble(canal_parts: RecordingParts) -> None:
    ended_at(canal_parts, 10)
    (result,) = run([work("a", {0: 0})], [canal_chunk(ENDING, frozenset({4}))]).spans
    assert (result.error, result.positions, result.resolved) == (None, {0: 3}, {0: 12})
    assert [change.offset for change in canal_parts.batches[0].changes] == [0, 1, 2]


def test_what_cannot_be_kept_holds_the_position(parts: RecordingParts, quarantine: RecordingQuarantine) -> None:
    quarantine.error = QuarantineUnavailableError("no broker")
    result = run_boxed(9, frozenset({2}))
    assert (result.error_code, result.retryable, result.positions) == ("quarantine_unavailable", True, {})
    assert parts.batches == []


def test_how_long_is_waited_is_told_by_the_driver(parts: RecordingParts, quarantine: RecordingQuarantine) -> None:
    run_boxed(9, frozenset(), patient=False)
    (batch,) = parts.batches
    assert batch.quarantine is not None
    assert (batch.quarantine.patient, batch.quarantine.most) == (False, 9)


def test_a_prefix_is_followed_by_the_rest_and_where_that_is_stuck_is_said(parts: RecordingParts) -> None:
    parts.bad = {(0, 4): ValueRefusedError("too long", 0, 4)}
    (result,) = run([work("a", {0: 0})], [chunk("a", 0, OFFSETS)]).spans
    assert [[c.offset for c in batch.changes] for batch in parts.batches] == [[1, 2, 3]]
    assert (result.positions, result.rows, result.error_code) == ({0: 4}, 3, "value_refused")


@pytest.mark.parametrize("evolves", [True, False])
def test_a_value_is_tried_again_if_the_table_may_be_altered_first(parts: RecordingParts, evolves: bool) -> None:
    parts.evolves_tables = evolves
    parts.bad = {(0, 4): ValueRefusedError("too long", 0, 4)}
    (result,) = run([work("a", {0: 0})], [chunk("a", 0, OFFSETS)]).spans
    assert (result.error_code, result.retryable) == ("value_refused", evolves)


def test_columns_that_the_sink_lacks_are_told_with_what_their_events_say(parts: RecordingParts) -> None:
    parts.bad = {(0, 4): LackingColumnsError("no column", 0, 4, {"c": "int32", "d": ""})}
    (result,) = run([work("a", {0: 0})], [chunk("a", 0, OFFSETS)]).spans
    assert (result.error_code, result.retryable, result.lacking) == (
        "sink_column_missing",
        True,
        {"c": "int32", "d": ""},
    )


def test_a_failure_names_the_partitions_that_it_holds_and_no_others(parts: RecordingParts) -> None:
    parts.bad = {(0, 4): ValueRefusedError("too long", 0, 4)}
    spans = [work("a", {0: 0, 1: 0}), work("b", {0: 0, 1: 0}), work("c", {0: 0, 1: 0})]
    parts.refuse = {"c": SinkUnavailableError("gone")}
    chunks = [
        chunk(t, p, OFFSETS, frozenset({2}) if (t, p) == ("b", 1) else frozenset()) for t in "abc" for p in (0, 1)
    ]
    assert [span.held for span in run(spans, chunks).spans] == [(0,), (0, 1), (0, 1)]


# --- memory ----------------------------------------------------------------------------------------------------------


def test_what_is_too_much_for_memory_is_applied_in_portions(
    parts: RecordingParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_run, "TASK_BYTES_MAX", 100)
    rows = [("a", partition, offset) for offset in range(3) for partition in (0, 1)]
    (result,) = run(
        [work("a", {0: 0, 1: 0})], [chunk(table, partition, [offset]) for table, partition, offset in rows]
    ).spans
    assert len(parts.batches) > 1
    assert sorted((c.partition, c.offset) for b in parts.batches for c in b.changes) == sorted(r[1:] for r in rows)
    at = {0: 0, 1: 0}
    for batch in parts.batches:
        assert all(span.expected == at[partition] for partition, span in batch.ranges.items()), "no gap"
        at |= {partition: span.next for partition, span in batch.ranges.items()}
    assert (result.positions, result.rows, result.newest_source_ms) == ({0: 3, 1: 3}, 6, 2)


def test_a_later_portion_that_fails_leaves_the_earlier_ones_counted(
    parts: RecordingParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_run, "TASK_BYTES_MAX", 100)
    parts.bad = {(0, 5): ValueRefusedError("too long", 0, 5)}
    (result,) = run([work("a", {0: 0})], [chunk("a", 0, [n]) for n in range(8)]).spans
    assert (result.positions, result.rows, result.error_code) == ({0: 5}, 5, "value_refused")
