"""A feed's parts without a sink, and a quarantine without a broker: both remember what the task function gives them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import SpanResult
from headgate.formats import debezium_json
from headgate.formats.dealing import Dealer, Look
from headgate.formats.decoding import Decoder
from headgate.formats.shaping import Shaping
from headgate.replication import set_aside, task_run
from headgate.replication.bad_changes import BadChange, Original
from headgate.replication.frames import Chunk
from headgate.replication.plan import BatchPlan, DeadLetterTarget, SpanWork, TaskResult
from headgate.replication.queries import Queries
from headgate.replication.span_table import SpanTable
from headgate.sinks.contract import (
    Applied,
    ChangeBatch,
    ChangeRefusedError,
    FeedIdentity,
)
from support import build
from support.lanes_without_spark import Restarts, queries_of

SPEC = "the feed's spec"


class RecordingParts:
    """A feed's parts whose sink remembers the batches, or refuses those of some tables."""

    def __init__(self) -> None:
        self._decoder: Decoder = debezium_json.DebeziumJsonDecoder()
        self.made: Callable[[], Decoder] = debezium_json.DebeziumJsonDecoder
        self.look: Look = debezium_json.DebeziumJsonLook()
        self.decoders: dict[str, Decoder] = {}
        self.shaped: Shaping | None = None
        self.hides = False
        self.shared_name = "public.a"
        self.applied_to: int | None = None
        self.target_ts: int | None = None
        self.evolves_tables = False
        self.commits_on_driver = False
        self.writes_events = False
        self.batches: list[ChangeBatch] = []
        self.refuse: dict[str, Exception] = {}
        self.dropped = 0
        self.bad: dict[tuple[int, int], ChangeRefusedError] = {}
        self.before: Callable[[], Any] = list
        self.seen_before: list[Any] = []

    def of_table(self, _topic: str, _table: str | None = None) -> "RecordingParts":
        return self

    def decoder(self, _topic: str, table: str | None = None, _topic_id: str | None = None) -> Decoder:
        return self._decoder if table is None else self.decoders.setdefault(table, self.made())

    def shaping(self, _topic: str, _table: str | None = None, _target: str = "") -> Shaping | None:
        return self.shaped

    def hides_columns(self, _topic: str) -> bool:
        return self.hides

    def dealer(self, _topic: str, _topic_id: str | None = None) -> Dealer:
        return Dealer(self.look, ["public.a", "public.b"])

    def writer(self) -> "RecordingParts":
        return self

    def drop_writer(self) -> None:
        self.dropped += 1

    def apply(self, batch: ChangeBatch) -> Applied:
        if batch.claim.table in self.refuse:
            raise self.refuse[batch.claim.table]
        self.seen_before.append(self.before())
        refused = [self.bad[c.partition, c.offset] for c in batch.changes if (c.partition, c.offset) in self.bad]
        ends = {p: r.next for p, r in batch.ranges.items()}
        if refused and batch.quarantine is not None:
            batch.quarantine.keep(refused)
        elif refused:
            first = refused[0]
            if batch.changes[0].offset == first.offset:
                raise first
            ends[first.partition] = first.offset
            batch = msgspec.structs.replace(batch, changes=[c for c in batch.changes if c.offset < first.offset])
        self.batches.append(batch)
        if self.applied_to is not None:
            ends = dict.fromkeys(ends, self.applied_to)
        return Applied(ends, len(batch.changes), 0, 0)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> RecordingParts:
    made = RecordingParts()
    monkeypatch.setattr(task_run.kept, "lent", lambda _feed: nullcontext(made))
    return made


def work(table: str, expected: dict[int, int]) -> SpanWork:
    identity = FeedIdentity("c", "0-1", "shop")
    claim = build.claim(
        identity=identity, table=table, topic=f"t.{table}", incarnation=1, start=dict.fromkeys(expected, 0)
    )
    return SpanWork(SpanId("shop", table), f"t.{table}", claim, expected)


def chunk(table: str, partition: int, offsets: Sequence[int], bad: frozenset[int] = frozenset()) -> Chunk:
    return Chunk(
        f"t.{table}",
        partition,
        offsets=offsets,
        appended_ms=[1000 + offset for offset in offsets],
        keys=[msgspec.json.encode({"id": offset}) for offset in offsets],
        values=[
            b"{"
            if offset in bad
            else msgspec.json.encode({"op": "c", "after": {"id": offset}, "source": {"ts_ms": offset}})
            for offset in offsets
        ],
    )


def run(works: Sequence[SpanWork], chunks: Sequence[Chunk]) -> TaskResult:
    return task_run.run_task(BatchPlan(SPEC, tuple(works)), chunks)


def by_table(result: TaskResult) -> Iterator[tuple[str, SpanResult]]:
    return ((span.id.span, span) for span in result.spans)


BOX = DeadLetterTarget("nowhere:1", "headgate", 1)


class RecordingQuarantine:
    def __init__(self) -> None:
        self.kept: list[tuple[int, str]] = []
        self.under: list[str] = []
        self.originals: list[Original] = []
        self.error: Exception | None = None

    def keep(
        self, work: SpanWork, bad: Sequence[BadChange], originals: Sequence[Original], table: str | None = None
    ) -> None:
        if self.error is not None:
            raise self.error
        self.kept += [(each.offset, each.code) for each in bad]
        self.originals += originals
        self.under += [table or work.claim.table for _ in bad]


@pytest.fixture
def quarantine(monkeypatch: pytest.MonkeyPatch) -> RecordingQuarantine:
    made = RecordingQuarantine()
    monkeypatch.setitem(set_aside._quarantines, BOX, made)
    return made


def canal(rows: Sequence[tuple[int, int, int]], table: str = "a") -> list[Chunk]:
    """Rows of (partition, offset, ts): a watermark where the ts is negative, else a change."""
    return [
        msgspec.structs.replace(
            chunk(table, partition, [offset]),
            values=[
                msgspec.json.encode(
                    {"type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": -ts}}
                    if ts < 0
                    else {"type": "INSERT", "pkNames": ["id"], "data": [{"id": str(offset)}], "_tidb": {"commitTs": ts}}
                )
            ],
        )
        for partition, offset, ts in rows
    ]


@pytest.fixture
def table() -> SpanTable:
    return SpanTable("c")


@pytest.fixture
def lifecycle(table: SpanTable) -> Restarts:
    return Restarts(table)


@pytest.fixture
def queries(table: SpanTable, lifecycle: Restarts, tmp_path: Path) -> Queries:
    return queries_of(table, lifecycle, tmp_path)
