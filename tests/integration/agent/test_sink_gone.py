"""The sink is gone while a table is to be sealed: it is tried for as long as nobody gives the sink up."""

import psycopg
import pytest

from headgate.records.control import TaskState
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]


def test_a_seal_that_cannot_be_had_is_given_up_when_that_is_asked_for(bed: Bed) -> None:
    plan, executor = bed.table("gone"), bed.executor()
    task = bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    reached(executor, task.id, TaskState.REPLICATING)
    bed.put(plan, {1: {"name": "x", "qty": 1}})
    eventually(lambda: len(bed.rows(plan)) == 1, "it is written")
    ((name,),) = bed.database.execute("SELECT current_database()").fetchall()
    with psycopg.connect(bed.dsn, autocommit=True, dbname="postgres") as beside:
        beside.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        bed.database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                             "WHERE datname = current_database() AND pid <> pg_backend_pid()")  # fmt: skip
        try:
            executor.remove_table(task.id, seal=True)

            def is_tried() -> bool:
                status = executor.status(task.id)
                assert status is not None
                assert status.state is TaskState.STOPPING
                return status.error is not None

            eventually(is_tried, "the seal has failed, and is tried again")
            executor.remove_table(task.id, seal=False)
            eventually(
                lambda: executor.is_remove_table_finished(task.id) is not None, "it has stopped without the sink"
            )
        finally:
            beside.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
    rows = bed.database.execute("SELECT next_offset, closed FROM headgate.progress").fetchall()
    assert rows == [(1, False)]
