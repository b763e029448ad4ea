"""The task function over a topic that carries several tables: what each of them gets, and whose trouble stays whose."""

from typing import Any

import msgspec
import pytest

from headgate.agent.core.executor import SpanId
from headgate.formats import canal_json
from headgate.formats.dealing import Dealer
from headgate.formats.decoding import SchemasUnavailableError
from headgate.replication import task_run
from headgate.replication.frames import Chunk
from headgate.replication.plan import BatchPlan, SpanWork
from headgate.sinks.contract import (
    FeedIdentity,
    QuarantineUnavailableError,
    SinkUnavailableError,
)
from support import build

from .conftest import BOX, SPEC, RecordingParts, RecordingQuarantine, by_table, canal, run


def one_of(table: str, at: dict[int, int], **more: Any) -> SpanWork:
    """A span of topic t.shop, at these positions of the sink."""
    identity = FeedIdentity("c", "0-1", "shop")
    claim = build.claim(
        identity=identity, table=f"public.{table}", topic="t.shop", incarnation=1, start=dict.fromkeys(at, 0)
    )
    return SpanWork(
        SpanId("shop", f"public.{table}"),
        "t.shop",
        claim,
        at,
        source_table=f"public.{table}",
        quarantine_left=9,
        **more,
    )


def mixed(first: int, *events: str | None, partition: int = 0) -> Chunk:
    """Events from offset ``first`` on: of that table; "" is garbage, "a!" a bad one of table a, None a tombstone."""
    values = []
    for place, table in enumerate(events):
        row = None if table and table.endswith("!") else {"id": first + place}
        source = {"ts_ms": 5, "db": "d", "schema": "public", "table": (table or "").rstrip("!")}
        event = {"op": "c", "after": row, "source": source}
        values.append(None if table is None else msgspec.json.encode(event) if table else b"{")
    offsets = range(first, first + len(events))
    keys = [msgspec.json.encode({"id": offset}) for offset in offsets]
    return Chunk("t.shop", partition, offsets, [1000 + offset for offset in offsets], keys, values)


def applied(parts: RecordingParts) -> list[tuple[str, list[int], dict[int, tuple[int, int]]]]:
    return [
        (b.claim.table[-1], [c.offset for c in b.changes], {p: (r.expected, r.next) for p, r in b.ranges.items()})
        for b in parts.batches
    ]


def test_each_table_gets_its_own_changes_and_all_positions_move_as_far(parts: RecordingParts) -> None:
    chunks = [mixed(10, "a", "b", None, "x"), mixed(14, "a", "x", "x")]
    result = dict(by_table(run([one_of("a", {0: 10}), one_of("b", {0: 3})], chunks)))
    assert applied(parts) == [("a", [10, 14], {0: (10, 17)}), ("b", [11], {0: (3, 17)})]
    assert {name: (span.positions, span.rows) for name, span in result.items()} == {
        "public.a": ({0: 17}, 2),
        "public.b": ({0: 17}, 1),
    }
    assert {(span.passed_over, span.passed_over_table) for span in result.values()} == {(3, "public.x")}


def test_what_a_table_has_already_is_dropped_for_it_alone(parts: RecordingParts) -> None:
    works = [one_of("a", {0: 12}), one_of("b", {0: 10}, begin={0: 11}), one_of("c", {0: 0})]
    parts.dealer = lambda _topic, _topic_id: Dealer(parts.look, ["public.a", "public.b", "public.c"])  # type: ignore[method-assign]
    run(works, [mixed(10, "b", "a", "a", "b", "c")])
    assert applied(parts) == [("a", [12], {0: (12, 15)}), ("b", [13], {0: (10, 15)}), ("c", [14], {0: (0, 15)})]


def test_a_table_without_rows_costs_no_transaction_until_its_position_is_to_follow(parts: RecordingParts) -> None:
    (a, b) = run([one_of("a", {0: 0}), one_of("b", {0: 0})], [mixed(0, "a", "a")]).spans
    assert ([table for table, *_ in applied(parts)], a.positions, b.positions) == (["a"], {0: 2}, {})
    assert (b.rows, b.oldest_append_ms) == (0, 1000), "it is as far as the topic has been read"

    parts.batches.clear()
    (b,) = run([one_of("b", {0: 0, 1: 5}, begin={0: 2, 1: 5}, settle=True)], [mixed(2, "a")]).spans
    assert (applied(parts), b.positions) == ([("b", [], {0: (0, 3)})], {0: 3}), "with no row to go along with"


def test_poison_is_its_offsets_trouble_and_ends_no_task(parts: RecordingParts) -> None:
    events = mixed(0, "a", "b", "a", "b")
    poison = b'{"op":"c","after":' + b"[" * 1_500 + b"]" * 1_500 + b"}"
    chunk = msgspec.structs.replace(events, values=[*events.values[:2], poison, *events.values[3:]])
    result = dict(by_table(run([one_of("a", {0: 0}), one_of("b", {0: 0})], [chunk])))
    for table, span in result.items():
        assert (span.error_code, span.positions) == ("change_undecodable", {0: 2})
        assert f"{table}: topic t.shop, partition 0, offset 2: " in str(span.error)


def test_a_fault_in_dealing_out_is_told_of_every_table_and_ends_no_task(parts: RecordingParts) -> None:
    def broken(_value: bytes) -> Any:
        raise RuntimeError("a fault")

    parts.look = broken
    for _, span in by_table(run([one_of("a", {0: 0}), one_of("b", {0: 0})], [mixed(0, "a", "b")])):
        assert (span.error_code, span.positions) == ("internal", {})


def test_a_bad_change_of_one_table_does_not_stop_its_neighbours(parts: RecordingParts) -> None:
    result = dict(by_table(run([one_of("a", {0: 0}), one_of("b", {0: 0})], [mixed(0, "a", "b", "a!", "b", "a")])))
    assert (result["public.a"].error_code, result["public.a"].positions) == ("change_undecodable", {0: 2})
    assert (result["public.b"].error, result["public.b"].positions) == (None, {0: 5})
    assert applied(parts) == [("a", [0], {0: (0, 2)}), ("b", [1, 3], {0: (0, 5)})]


def test_a_sink_table_that_is_refused_does_not_stop_its_neighbours(parts: RecordingParts) -> None:
    parts.refuse["public.a"] = SinkUnavailableError("away")
    result = dict(by_table(run([one_of("a", {0: 0}), one_of("b", {0: 0})], [mixed(0, "a", "b")])))
    assert result["public.a"].positions == {}
    assert result["public.b"].positions == {0: 2}


def test_an_event_that_does_not_say_its_table_stops_all_of_them_in_front_of_it(parts: RecordingParts) -> None:
    works = [one_of("a", {0: 0}), one_of("b", {0: 0}), one_of("c", {0: 4})]
    parts.dealer = lambda _topic, _topic_id: Dealer(parts.look, ["public.a", "public.b", "public.c"])  # type: ignore[method-assign]
    result = dict(by_table(run(works, [mixed(0, "a", "a", "", "a", "c", "c")])))
    assert {name: (span.error_code, span.positions) for name, span in result.items()} == {
        "public.a": ("change_undecodable", {0: 2}),
        "public.b": ("change_undecodable", {0: 2}),
        "public.c": (None, {0: 6}),
    }, "but one that is behind it already"
    assert "t.shop, partition 0, offset 2" in str(result["public.b"].error)
    assert applied(parts)[:2] == [("a", [0, 1], {0: (0, 2)}), ("b", [], {0: (0, 2)})], "the sinks' positions name it"


def test_an_event_that_does_not_say_its_table_is_set_aside_once_before_anybody_moves_past_it(
    parts: RecordingParts, quarantine: RecordingQuarantine
) -> None:
    parts.before = lambda: list(quarantine.kept)
    works = (one_of("a", {0: 0}), one_of("b", {0: 0}))
    plan = BatchPlan(SPEC, works, BOX)
    result = task_run.run_task(plan, [mixed(0, "b", "", "b!", "b")])
    assert quarantine.kept == [(1, "change_undecodable"), (2, "change_undecodable")]
    assert quarantine.under == ["public.a", "public.b"], "under the name of the first, which has no rows here"
    assert parts.seen_before[0] == [(1, "change_undecodable")]
    assert applied(parts) == [("a", [], {0: (0, 4)}), ("b", [0, 3], {0: (0, 4)})]
    assert [span.quarantined for span in result.spans] == [1, 2]


def test_a_named_event_that_does_not_say_its_table_is_set_aside_and_the_next_one_stops_all_of_them(
    parts: RecordingParts, quarantine: RecordingQuarantine
) -> None:
    only = frozenset({(0, 1)})
    works = tuple(msgspec.structs.replace(one_of(name, {0: 0}), quarantine_left=1, only=only) for name in "ab")
    result = task_run.run_task(BatchPlan(SPEC, works, BOX), [mixed(0, "a", "", "b", "", "a")])
    assert quarantine.kept == [(1, "change_undecodable")]
    assert applied(parts) == [("a", [0], {0: (0, 3)}), ("b", [2], {0: (0, 3)})]
    assert [(span.error_code, span.positions, span.quarantined) for span in result.spans] == [
        ("change_undecodable", {0: 3}, 1)
    ] * 2
    assert "headgate feed skip FEED t.shop/0/3" in str(result.spans[0].error)


def test_too_much_that_says_no_table_stops_all_of_them(parts: RecordingParts, quarantine: RecordingQuarantine) -> None:
    works = (one_of("a", {0: 0}), msgspec.structs.replace(one_of("b", {0: 0}), quarantine_left=1))
    plan = BatchPlan(SPEC, works, BOX)
    (a, b) = task_run.run_task(plan, [mixed(0, "", "", "b")]).spans
    assert (a.positions, b.positions, b.error_code) == ({0: 3}, {}, "quarantine_full")

    quarantine.error = QuarantineUnavailableError("no broker")
    held = task_run.run_task(plan, [mixed(0, "", "a")]).spans
    assert [(span.error_code, span.positions) for span in held] == [("quarantine_unavailable", {})] * 2


def test_schemas_that_cannot_be_had_hold_all_tables_of_the_topic(parts: RecordingParts) -> None:
    def away(_value: bytes) -> Any:
        raise SchemasUnavailableError("nobody answers")

    parts.look = away
    for span in run([one_of("a", {0: 0}), one_of("b", {0: 0})], [mixed(0, "a")]).spans:
        assert (span.error_code, span.retryable, span.positions) == ("registry_unavailable", True, {})


def test_a_watermark_counts_for_all_tables_of_its_partition(parts: RecordingParts) -> None:
    parts.look, parts.made = canal_json.look, lambda: canal_json.CanalDecoder(tidb=True, target_ts=10)
    parts.target_ts = 10
    rows = [(0, 0, 5, "a"), (0, 1, -6, ""), (0, 2, 7, "b"), (0, 3, 4, "a"), (0, 4, -12, ""), (0, 5, 13, "a")]
    chunks = []
    for partition, offset, ts, table in rows:
        (one,) = canal([(partition, offset, ts)], "shop")
        said = msgspec.json.decode(one.values[0] or b"") | {"database": "public", "table": table}
        chunks.append(msgspec.structs.replace(one, values=[msgspec.json.encode(said)]))
    (a, b) = run([one_of("a", {0: 0}), one_of("b", {0: 0})], chunks).spans
    assert applied(parts) == [("a", [0], {0: (0, 4)}), ("b", [2], {0: (0, 4)})], "what was sent twice is left out"
    assert [(span.positions, span.resolved) for span in (a, b)] == [({0: 4}, {0: 12})] * 2


def test_portions_of_several_tables_leave_no_gap(parts: RecordingParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_run, "TASK_BYTES_MAX", 150)
    chunks = [mixed(first, "a", "b") for first in range(0, 12, 2)]
    result = run([one_of("a", {0: 0}), one_of("b", {0: 0})], [*chunks, mixed(12, "b")])
    for table in ("a", "b"):
        at = 0
        for _, _, ranges in (each for each in applied(parts) if each[0] == table):
            assert ranges[0][0] == at
            at = ranges[0][1]
    assert sum(len(batch.changes) for batch in parts.batches) == 13
    assert len(parts.batches) > 2
    assert [span.positions for span in result.spans] == [{0: 12}, {0: 13}], "the last event is not of the first one"
