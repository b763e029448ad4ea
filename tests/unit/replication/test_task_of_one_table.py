"""A topic of one table, read by workers that come and go: whose events it carries is what the sink knows, not they."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headgate.formats import canal_json, debezium_json, maxwell_json
from headgate.formats.decoding import Decoder
from headgate.formats.tables import NAME_LENGTH_MAX
from headgate.records.source_tables import SourceTable
from headgate.replication.merging import merge_results
from headgate.replication.plan import BatchPlan, SpanResult, SpanWork
from headgate.replication.task_run import run_task
from headgate.sinks.contract import SinkMovedError

from .conftest import BOX, SPEC, RecordingParts, RecordingQuarantine, chunk, run, work


def debezium_event(table: str, row: dict[str, Any]) -> dict[str, Any]:
    return {"op": "c", "after": row, "source": {"ts_ms": 5, "db": "d", "schema": "s", "table": table}}


def canal_event(table: str, row: dict[str, Any]) -> dict[str, Any]:
    return {"type": "INSERT", "database": "d", "table": table, "pkNames": ["id"], "data": [row]}


def maxwell_event(table: str, row: dict[str, Any]) -> dict[str, Any]:
    return {"type": "insert", "database": "d", "table": table, "ts": 5, "data": row}


FORMATS: list[tuple[Callable[[], Decoder], Callable[..., Any], SourceTable, SourceTable]] = [
    (debezium_json.DebeziumJsonDecoder, debezium_event, ("d", "s", "mine"), ("d", "s", "other")),
    (lambda: canal_json.CanalDecoder(tidb=False), canal_event, ("d", "mine"), ("d", "other")),
    (maxwell_json.MaxwellDecoder, maxwell_event, ("d", "mine"), ("d", "other")),
]


class Topic:
    """A topic in one of the formats; its workers keep nothing unless told to."""

    def __init__(self, parts: RecordingParts, made: Callable[[], Decoder], event: Callable[..., Any]) -> None:
        self.parts, self._made, self._event = parts, made, event

    def read(self, at: dict[int, int], known: SourceTable | None, *events: tuple[int, int, str]) -> SpanResult:
        """What a worker makes of events of (partition, offset, table)."""
        chunks = []
        for partition, offset, table in events:
            row = {"id": offset}
            key = msgspec.json.encode({"pk.id": offset} if self._event is maxwell_event else row)
            value = msgspec.json.encode(self._event(table, row))
            chunks.append(msgspec.structs.replace(chunk("a", partition, [offset]), keys=[key], values=[value]))
        (span,) = run([of_known(at, known)], chunks).spans
        return span

    def restart(self) -> None:
        self.parts._decoder = self._made()


def of_known(at: dict[int, int], known: SourceTable | None) -> SpanWork:
    return msgspec.structs.replace(work("a", at), known_table=known)


@pytest.fixture(params=FORMATS, ids=["debezium-json", "canal-json", "maxwell-json"])
def case(request: pytest.FixtureRequest, parts: RecordingParts) -> tuple[Topic, SourceTable, SourceTable]:
    made, event, mine, other = request.param
    topic = Topic(parts, made, event)
    topic.restart()
    return topic, mine, other


Case = tuple[Topic, SourceTable, SourceTable]


def test_a_fresh_worker_that_meets_only_another_tables_event_refuses_it(case: Case) -> None:
    topic, mine, _ = case
    told = topic.read({0: 0}, None, (0, 0, "mine"))
    assert (told.positions, told.known_table) == ({0: 1}, mine)
    topic.restart()
    span = topic.read({0: 1}, told.known_table, (0, 1, "other"))
    assert (span.positions, span.error_code, span.retryable, span.held) == ({}, "change_undecodable", False, (0,))
    assert "a: topic t.a, partition 0, offset 1: the topic carries changes of d." in str(span.error)
    assert [change.offset for batch in topic.parts.batches for change in batch.changes] == [0]


def test_the_first_table_that_is_met_goes_to_the_sink_with_its_rows_and_only_then(case: Case) -> None:
    topic, mine, _ = case
    topic.parts.refuse["a"] = SinkMovedError("another partition has recorded another one")
    assert topic.read({0: 0}, None, (0, 0, "mine")).known_table is None
    topic.parts.refuse.clear()
    assert topic.read({0: 0}, None, (0, 0, "mine")).known_table == mine
    assert topic.read({0: 1}, mine, (0, 1, "mine")).known_table == mine
    assert [batch.source_table for batch in topic.parts.batches] == [mine, None]


def test_what_a_worker_has_met_before_is_not_what_the_sink_knows(case: Case) -> None:
    """After a rewind the worker may be the same, and the table another."""
    topic, mine, other = case
    assert topic.read({0: 0}, None, (0, 0, "mine")).known_table == mine
    assert topic.read({0: 1}, None, (0, 1, "other")).known_table == other
    assert topic.read({0: 1}, mine, (0, 1, "other")).error_code == "change_undecodable"


def test_within_a_task_the_first_one_counts_in_all_partitions(case: Case) -> None:
    topic, mine, _ = case
    span = topic.read({0: 0, 1: 0}, None, (0, 0, "mine"), (1, 0, "other"))
    assert (span.positions, span.error_code, span.held, span.known_table) == ({0: 1}, "change_undecodable", (1,), mine)


def test_another_tables_event_is_set_aside_where_bad_changes_are(
    parts: RecordingParts, quarantine: RecordingQuarantine
) -> None:
    known = msgspec.structs.replace(of_known({0: 0}, ("d", "s", "mine")), quarantine_left=5)
    values = [msgspec.json.encode(debezium_event(table, {"id": 1})) for table in ("other", "mine")]
    rows = msgspec.structs.replace(chunk("a", 0, [0, 1]), values=values)
    (span,) = run_task(BatchPlan(SPEC, (known,), BOX), [rows]).spans
    assert (span.positions, span.error, quarantine.kept) == ({0: 2}, None, [(0, "change_undecodable")])
    assert [change.offset for change in parts.batches[0].changes] == [1]


def test_of_a_spans_tasks_any_tells_the_table(parts: RecordingParts) -> None:
    tasks = [run([of_known({n: 0}, None)], [chunk("a", n, [0])]) for n in range(2)]
    named = msgspec.structs.replace(tasks[1].spans[0], known_table=("d", "s", "mine"))
    tasks[1] = msgspec.structs.replace(tasks[1], spans=(named,))
    (merged,) = merge_results(tasks, 0)
    assert merged.known_table == ("d", "s", "mine")


def test_a_name_that_no_database_has_is_not_kept(parts: RecordingParts) -> None:
    topic = Topic(parts, debezium_json.DebeziumJsonDecoder, debezium_event)
    span = topic.read({0: 0}, None, (0, 0, "x" * NAME_LENGTH_MAX))
    assert (span.error_code, span.known_table) == ("change_undecodable", None)
    assert "name of its table is longer than" in str(span.error)
