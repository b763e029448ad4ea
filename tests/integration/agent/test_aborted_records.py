"""Case 71: a topic whose offsets are not all records, because a transactional producer aborted and committed."""

import pytest
from confluent_kafka import Producer

from support.cases import Case
from support.kafka_cluster import ANSWER_SECONDS
from support.waiting import eventually

from .conftest import Bed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]


def produce(bed: Bed, topic: str) -> None:
    """Each record in a transaction of its own; the last one is aborted. Then an empty transaction's end."""
    settings = {"bootstrap.servers": bed.bootstrap, "transactional.id": f"{bed.prefix}t"}
    with Producer(settings) as producer:
        producer.init_transactions(ANSWER_SECONDS)
        for record in Case("071").records():
            producer.begin_transaction()
            producer.produce(topic, record.value, record.key, partition=0)
            assert producer.flush(ANSWER_SECONDS) == 0, "it is on the log before it is aborted"
            if record.tx == "commit":
                producer.commit_transaction(ANSWER_SECONDS)
            else:
                producer.abort_transaction(ANSWER_SECONDS)


def test_aborted_records_are_not_applied_and_nothing_waits_for_them(bed: Bed) -> None:
    plan = bed.table("c71")
    bed.database.execute("ALTER TABLE c71 RENAME COLUMN name TO v")
    produce(bed, plan.topic)
    executor = bed.executor()
    task = bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    rows = "SELECT id, v FROM c71 ORDER BY id"
    eventually(lambda: bed.database.execute(rows).fetchall() == [(1, "a"), (4, "d")], "the committed ones are applied")
    # A lane that took the offsets behind the last record for records to come would have a lag, and would never apply
    # what comes next.
    eventually(lambda: (status := executor.status(task.id)) is not None and status.lag_ms == 0, "nothing waits")
    produce(bed, plan.topic)
    bed.put(plan, {5: {"v": "next"}})
    eventually(lambda: len(bed.database.execute(rows).fetchall()) == 3, "what comes behind the markers is applied")
    eventually(
        lambda: (status := executor.status(task.id)) is not None and status.positions == {0: 21},
        "the table stands behind everything",
    )
