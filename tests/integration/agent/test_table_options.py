"""Two tables of one feed, one of them without a key and with bad changes: its options are its own."""

import msgspec
import pytest

from headgate.agent.core.executor import SpanTask
from headgate.eventlog.kafka import KafkaLog
from headgate.records.control import SpanPlan
from support.kafka_cluster import ANSWER_SECONDS
from support.waiting import eventually

from .conftest import Bed
from .test_quarantine import executor_with_dead_letters, letters_on, log

__all__ = ["log"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]


def with_options(bed: Bed, plan: SpanPlan, n: int) -> SpanTask:
    task = bed.task(plan, n)
    tables = {"*.audit": {"keyless": "append", "on_bad_change": "quarantine", "foreign_keys": "ignore"}}
    spec = msgspec.json.decode(task.spec) | {"tables": tables}
    return msgspec.structs.replace(task, spec=msgspec.json.encode(spec).decode())


def put_audit(bed: Bed, plan: SpanPlan, number: int) -> None:
    event = {"op": "c", "after": {"id": number, "parent": 404}, "source": {"ts_ms": 5}}
    bed.producer.produce(plan.topic, msgspec.json.encode(event), None, 0, on_delivery=bed._delivered)


def test_one_table_has_no_key_and_ignores_foreign_keys(bed: Bed, log: KafkaLog) -> None:
    orders, audit = bed.table("orders"), bed.table("audit")
    bed.database.execute("DROP TABLE audit; CREATE TABLE audit (id bigint, parent bigint REFERENCES orders (id))")
    executor = executor_with_dead_letters(bed, log)
    bed.put(orders, {1: {"name": "a", "qty": 1}})
    put_audit(bed, audit, 7)
    bed.raw(audit, b"", b"{")
    put_audit(bed, audit, 7)
    bed.producer.flush(ANSWER_SECONDS)
    for number, plan in enumerate((orders, audit), 1):
        executor.add_table(with_options(bed, plan, number), prepare=False)

    def audited() -> list[tuple[int, int]]:
        return bed.database.execute("SELECT id, parent FROM audit").fetchall()

    eventually(lambda: audited() == [(7, 404), (7, 404)], "both rows were added")
    eventually(lambda: bed.rows(orders) == {1: ("a", 1)}, "the other table is written by its key")
    (letter,) = letters_on(log)
    assert (letter.table, letter.offset) == ("public.audit", 1)
