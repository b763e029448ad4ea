"""Feeds come and go beside one that stays: what workers keep at the sink for them goes, too."""

import pytest
from msgspec.structs import replace

from headgate.agent.core.executor import SpanId, SpanTask
from headgate.records.control import SpanPlan, TaskState
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

FEEDS = 12


def of_feed(task: SpanTask, feed: str, feed_id: str) -> SpanTask:
    return replace(
        task, id=SpanId(feed, task.id.span), feed_id=feed_id, spec=task.spec.replace(f'"{task.id.feed}"', f'"{feed}"')
    )


def sessions(bed: Bed, feed: str) -> int:
    """Of feeds whose name begins like that, by the label that a session at a sink has."""
    ((count,),) = bed.database.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s AND datname = current_database()",
        (f"headgate {feed}%",),
    ).fetchall()
    return int(count)


def test_sessions_of_feeds_that_are_gone_are_closed(bed: Bed) -> None:
    executor, steady, plan = bed.executor(), bed.table("steady"), bed.table("passing")
    stays = bed.task(steady, 1)
    executor.add_table(stays, prepare=False)
    reached(executor, stays.id, TaskState.REPLICATING)
    rows = iter(range(1, 1_000_000))

    def work(target: SpanPlan) -> None:
        bed.put(target, {next(rows): {"name": "x", "qty": 1}})

    for number in range(1, FEEDS + 1):
        task = of_feed(bed.task(plan, number), f"gone{number}", f"0-{100 + number}")
        executor.add_table(task, prepare=False)
        reached(executor, task.id, TaskState.REPLICATING)
        work(plan)
        eventually(lambda task=task: executor.status(task.id).rows, "it is written")  # type: ignore[misc,union-attr]
        executor.remove_table(task.id, seal=True)
        eventually(lambda task=task: executor.is_remove_table_finished(task.id) is not None, "it is sealed")  # type: ignore[misc]
        executor.forget_table(task.id)
        bed.database.execute("DELETE FROM headgate.progress WHERE feed_id = %s", (task.feed_id,))
        work(steady)

    def are_closed() -> bool:
        work(steady)  # idle workers are ended by Spark itself, but only when none of them has work
        return sessions(bed, "gone") == 0

    eventually(are_closed, "no session of a feed that is gone is left")
    eventually(lambda: sessions(bed, bed.feed), "the feed that stays has one")  # of a new worker, if its own was idle
