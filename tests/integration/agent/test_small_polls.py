"""After two ends of the JVM for want of memory a backlog is read record by record, and then at full speed again."""

import msgspec
import pytest
from msgspec.structs import replace

from headgate.records.control import TaskState
from headgate.records.error_codes import MEMORY_SHORT
from headgate.replication.poll_size import POLL_RECORDS_MAX, PollSize
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

ROWS = 4_000
BATCH_ROWS = 200


def test_polls_grow_again_while_a_backlog_is_read(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = PollSize()
    for _ in range(2):
        sizes.ran_out_of_memory(0.0)
    sizes.calm_seconds = float("inf")
    monkeypatch.setattr(bed.runtime, "poll_size", sizes)
    plan, executor = bed.table("portions"), bed.executor()
    bed.put(plan, {number: {"name": "x", "qty": number} for number in range(ROWS)})
    task = bed.task(plan, 1)
    spec = {**msgspec.json.decode(task.spec), "batch_rows_max": BATCH_ROWS}
    task = replace(task, spec=msgspec.json.encode(spec).decode())

    def code() -> str | None:
        status = executor.status(task.id)
        return None if status is None else status.error_code

    with bed.gate(plan, ROWS // 2):  # it stays behind, however slow we are
        executor.add_table(task, prepare=False)
        reached(executor, task.id, TaskState.REPLICATING)
        eventually(lambda: code() == MEMORY_SHORT, "the table says that it is read in small portions")
    sizes.calm_seconds = 0.0
    eventually(lambda: len(bed.rows(plan)) == ROWS, "everything is applied")
    eventually(lambda: code() is None, "it says so no more")
    eventually(lambda: sizes.records == POLL_RECORDS_MAX, "polls have their full size")
