"""Schemas that values repeat are cut off in the JVM: only what is known byte for byte, and every row stays exact."""

import msgspec
import pytest
from pyspark.sql import Row

from headgate.records.control import TaskState
from headgate.replication.frames import COLUMNS, HEAD
from headgate.replication.heads import KnownHeads, without_heads
from headgate.replication.plan import HEAD_ROWS_MIN
from headgate.replication.spark import SparkRuntime
from support.kafka_cluster import ANSWER_SECONDS
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

TOPIC = "it's a\\topic"
ONE, TWO = b'{"schema":{"it\'s \\\\":",\\"payload\\":"},"payload":', b'{"schema":null,"payload":'
ROWS: list[tuple[str, bytes | None, bytes | None, int]] = [
    (TOPIC, ONE + b'{"payload":1}}', b'{"payload":1}', 1),
    (TOPIC, ONE + b"}", b"", 1),
    (TOPIC, None, None, 1),
    (TOPIC, ONE + b"1} ", ONE + b"1} ", 0),
    (TOPIC, ONE, ONE, 0),
    (TOPIC, ONE[:-1], ONE[:-1], 0),
    (TOPIC, TWO + b"{}}", TWO + b"{}}", 0),
    (TOPIC, b"", b"", 0),
    ("u", TWO + b"\xff\x00}", b"\xff\x00", 2),
    ("u", ONE + b"1}", ONE + b"1}", 0),
    ("v", ONE + b"1}", ONE + b"1}", 0),
    ("v", None, None, 0),
]


def test_only_a_head_known_of_the_topic_is_cut_off(spark_runtime: SparkRuntime) -> None:
    names = [column.rsplit(" ", 1)[-1] for column in COLUMNS]
    given = [(topic, 0, offset, 7, b"k", value) for offset, (topic, value, _, _) in enumerate(ROWS)]
    types = "topic string, partition int, offset bigint, append_ms bigint, key binary, value binary"
    rows = spark_runtime.start().createDataFrame(given, types)
    cut = without_heads(rows, [(TOPIC, ONE), ("u", TWO)])
    assert cut.columns == [*names, HEAD]
    found: list[Row] = cut.orderBy("offset").collect()
    assert [(row.topic, None if row.value is None else bytes(row.value), row.head) for row in found] == [
        (topic, left, number) for topic, _, left, number in ROWS
    ]
    assert [(row.partition, row.offset, row.append_ms, bytes(row.key)) for row in found] == [
        (0, offset, 7, b"k") for offset in range(len(ROWS))
    ]
    assert without_heads(rows, []) is rows


FIELDS = [{"type": "int64", "field": "id"}, {"type": "string", "field": "name"}, {"type": "int32", "field": "qty"}]


def _wrapped(number: int, row: dict[str, object] | None, note: str) -> bytes:
    schema = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": FIELDS}], "doc": note}
    after = None if row is None else {"id": number, **row}
    payload = {"before": None, "after": after, "source": {"ts_ms": 5}, "op": "d" if row is None else "c"}
    return msgspec.json.encode({"schema": schema, "payload": payload})


def test_rows_are_exact_while_their_schema_is_cut_off_and_when_it_changes(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    worth_cutting = KnownHeads.worth_cutting

    def watched(known: KnownHeads, rows: dict[str, int]) -> tuple[tuple[str, bytes], ...]:
        found = worth_cutting(known, rows)
        used.append(len(found))
        return found

    monkeypatch.setattr(KnownHeads, "worth_cutting", watched)
    plan, executor = bed.table("heads"), bed.executor()
    many = 3 * HEAD_ROWS_MIN
    task = bed.task(plan, 1)

    def put(numbers: range, name: str | None, note: str) -> None:
        for number in numbers:
            row: dict[str, object] | None = None if name is None else {"name": name, "qty": number}
            bed.raw(plan, msgspec.json.encode({"id": number}), _wrapped(number, row, note))
            if row is None:
                bed.raw(plan, msgspec.json.encode({"id": number}), None)
        bed.producer.flush(ANSWER_SECONDS)

    put(range(many), ',"payload":', "first")
    executor.add_table(task, prepare=False)
    eventually(lambda: len(bed.rows(plan)) == many, "rows that came whole")
    assert used[0] == 0, "nothing is known yet"
    put(range(many), "again", "first")
    eventually(lambda: all(name == "again" for name, _ in bed.rows(plan).values()), "rows without their schema")
    assert 1 in used
    # Of the known schema, of another one, deletes with their tombstones, and the known one again.
    put(range(many), "third", "first")
    put(range(many), "other", "second")
    put(range(0, many, 2), None, "second")
    put(range(1, many, 2), "last", "first")
    expected = {number: ("last", number) for number in range(1, many, 2)}
    eventually(lambda: bed.rows(plan) == expected, "rows of both schemas")
    executor.remove_table(task.id, seal=True)
    status = reached(executor, task.id, TaskState.STOPPED)
    total = 4 * many + 2 * (many // 2) + many // 2
    assert (status.rows, status.positions) == (total, {0: total})
