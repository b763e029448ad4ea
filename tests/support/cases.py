"""Cases of ``tests/cases``: their records, and playing them through the task function into a real sink."""

import itertools
import json
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, TopicPartition

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import SpanResult
from headgate.config.feed import parse_feed
from headgate.records.source_tables import SourceTable
from headgate.replication.frames import Chunk
from headgate.replication.plan import BatchPlan, SpanWork
from headgate.replication.task_run import run_task
from headgate.sinks.contract import FeedIdentity, Sink
from headgate.sinks.registry import open_sink
from support import build
from support.kafka_cluster import ANSWER_SECONDS

CASES = Path(__file__).parents[1] / "cases"
_numbers = itertools.count(1)
FORMAT = re.compile(r"format ([a-z-]+)")


class Record(msgspec.Struct, frozen=True):
    """One line of events.jsonl. ``tx``: how the transaction ends in which it is produced. ``wait``: not used here."""

    key: str | None
    value: str | None
    tx: str | None = None
    wait: Any = None


class Case:
    """One folder."""

    def __init__(self, number: str) -> None:
        self.number = number
        self._folder = CASES / number
        self.table = number if number.startswith("w") else f"c{int(number)}"

    @property
    def format(self) -> str:
        """The ``source.format`` of its records; the README says it unless it is Debezium's JSON."""
        said = FORMAT.search(self.text("README") or "")
        return said[1] if said else "debezium-json"

    def text(self, name: str) -> str | None:
        """A file of the folder, None if the case has none of that name."""
        path = self._folder / name
        return path.read_text(encoding="utf-8") if path.exists() else None

    def records(self) -> list[Record]:
        """In the order of the topic."""
        lines = (self.text("events.jsonl") or "").splitlines()
        return [msgspec.json.decode(line, type=Record) for line in lines if line]

    def wanted(self, sink: str) -> list[tuple[str, list[list[Any]]]]:
        """Queries and what they must give; ``sink`` is pg or my."""
        return [tuple(each) for each in json.loads(self.text("want.json") or "{}").get(sink, [])]


class Player:
    """One table of a feed: a topic of one partition, applied as an agent's tasks do."""

    def __init__(self, spec: dict[str, Any], table: str) -> None:
        self._spec = json.dumps(spec)
        self._topic = spec["source"]["topics"][0]
        self.sink: Sink = open_sink(parse_feed(self._spec).sink, keeps_session=False)
        # A feed of its own, because sessions of feeds are kept between batches and know their tables.
        identity = FeedIdentity("c", f"0-{next(_numbers)}", "shop")
        self._claim = build.claim(identity=identity, table=table, topic=self._topic)
        self.sink.claim(self._claim)
        self._known_table: SourceTable | None = None

    def apply(self, records: Sequence[tuple[int, bytes | None, bytes | None]]) -> SpanResult:
        """Offer (offset, key, value) of the topic from its start; what the sink has already is passed over."""
        work = SpanWork(
            SpanId("shop", "t"),
            self._topic,
            self._claim,
            self.sink.positions(self._claim),
            known_table=self._known_table,
        )
        offsets, keys, values = zip(*records, strict=True)
        chunk = Chunk(self._topic, 0, offsets, [0] * len(offsets), keys, values)
        (result,) = run_task(BatchPlan(self._spec, (work,)), [chunk]).spans
        self._known_table = result.known_table
        return result


def records_of_topic(bootstrap: str, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """All (offset, key, value) that its only partition has now."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    settings = {"bootstrap.servers": bootstrap, "group.id": "cases", "enable.auto.commit": False}
    with closing(Consumer(settings)) as consumer:
        place = TopicPartition(topic, 0, 0)
        end = consumer.get_watermark_offsets(place, ANSWER_SECONDS)[1]
        consumer.assign([place])
        while len(found) < end:
            message = consumer.poll(ANSWER_SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            found.append((message.offset() or 0, message.key(), message.value()))
    return found
