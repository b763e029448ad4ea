"""A lane on a real broker, a real Spark and a real PostgreSQL: exact rows, seals, moves, fences, isolation."""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.records.control import TaskState
from headgate.records.ts import ts_of_ms
from headgate.replication.executor import SparkExecutor
from headgate.replication.lane import Lane
from headgate.replication.placement import JOIN_SECONDS
from headgate.replication.spark import WARM_TRIES, SparkStartError
from support.kafka_cluster import ANSWER_SECONDS
from support.waiting import eventually

from .conftest import Bed, reached

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]


def _row(number: int) -> dict[str, object]:
    return {"name": f"näme {number}", "qty": number}


def _expected(numbers: range) -> dict[int, tuple[str, int]]:
    return {n: (f"näme {n}", n) for n in numbers}


def test_rows_come_over_and_a_seal_names_the_last_position(bed: Bed) -> None:
    plan = bed.table("goods", partitions=3)
    executor = bed.executor()
    task = bed.task(plan, 1)
    bed.put(plan, {n: _row(n) for n in range(300)})

    executor.add_table(task, prepare=False)
    reached(executor, task.id, TaskState.REPLICATING)
    eventually(lambda: bed.rows(plan) == _expected(range(300)), "all rows")
    bed.put(plan, dict.fromkeys(range(100)))
    eventually(lambda: bed.rows(plan) == _expected(range(100, 300)), "deletes")

    memory = bed.runtime.memory_bytes()
    assert sorted(memory) == ["driver", "jvm", "workers"]
    assert min(memory.values()) > 10 << 20, "each of them lives"
    assert not executor.remove_table(task.id, seal=True)
    status = reached(executor, task.id, TaskState.STOPPED)
    assert sum(status.positions.values()) == 400
    assert status.rows == 400
    assert executor.is_remove_table_finished(task.id) == status.positions
    bed.put(plan, {n: _row(n) for n in range(10)})
    executor.forget_table(task.id)
    assert executor.all_spans() == ()


def test_a_warm_span_takes_over_where_the_first_one_sealed(bed: Bed) -> None:
    plan = bed.table("orders", partitions=2)
    first, second = bed.executor(), bed.executor()
    bed.put(plan, {n: _row(n) for n in range(50)})
    first.add_table(bed.task(plan, 1), prepare=False)
    eventually(lambda: len(bed.rows(plan)) == 50, "the first one writes")

    warm = bed.task(plan, 2)
    second.add_table(warm, prepare=True)
    reached(second, warm.id, TaskState.PREPARED)
    bed.put(plan, {n: _row(n) for n in range(50, 80)})
    eventually(lambda: len(bed.rows(plan)) == 80, "the first one still writes")
    first.remove_table(warm.id, seal=True)
    sealed = reached(first, warm.id, TaskState.STOPPED)
    bed.put(plan, {n: _row(n) for n in range(80, 120)})

    promoted = bed.task(plan, 3)
    second.add_table(promoted, prepare=False)
    status = reached(second, warm.id, TaskState.REPLICATING)
    assert status.epoch == promoted.epoch
    eventually(lambda: bed.rows(plan) == _expected(range(120)), "the second one goes on")
    eventually(lambda: second.status(warm.id).rows == 40, "nothing was applied twice")  # type: ignore[union-attr]
    assert sum(sealed.positions.values()) == 80


def test_a_lane_whose_epoch_was_overtaken_stops_as_fenced(bed: Bed) -> None:
    plan = bed.table("stock")
    old, new = bed.executor(), bed.executor()
    task = bed.task(plan, 1)
    bed.put(plan, {1: _row(1)})
    old.add_table(task, prepare=False)
    eventually(lambda: len(bed.rows(plan)) == 1, "the old one writes")

    new.add_table(bed.task(plan, 2), prepare=False)
    reached(new, task.id, TaskState.REPLICATING)
    bed.put(plan, {n: _row(n) for n in range(2, 30)})

    def fenced() -> bool:
        status = old.status(task.id)
        return status is not None and status.state is TaskState.FAILED

    eventually(fenced, "the old one noticed")
    status = old.status(task.id)
    assert status is not None
    assert (status.error_code, status.retryable) == ("sink_fenced", False)
    eventually(lambda: bed.rows(plan) == _expected(range(1, 30)), "the new one has it all")
    with pytest.raises(ValueError, match="below"):
        new.add_table(task, prepare=False)


def test_a_broken_event_fails_its_own_table_only_and_names_its_place(bed: Bed) -> None:
    good, bad = bed.table("good"), bed.table("bad")
    executor = bed.executor()
    for plan in (good, bad):
        executor.add_table(bed.task(plan, 1), prepare=False)
    bed.put(bad, {n: _row(n) for n in range(3)})
    bed.raw(bad, b'{"id":9}', b'{"op":"?"}')
    bed.put(bad, {4: _row(4)})
    bed.put(good, {n: _row(n) for n in range(20)})

    def failed() -> bool:
        status = executor.status(bed.task(bad, 1).id)
        return status is not None and status.state is TaskState.FAILED

    eventually(failed, "the bad table failed")
    status = executor.status(bed.task(bad, 1).id)
    assert status is not None
    assert status.error_code == "change_undecodable"
    assert "offset 3" in str(status.error)
    assert status.positions == {0: 3}
    assert bed.rows(bad) == _expected(range(3))
    eventually(lambda: bed.rows(good) == _expected(range(20)), "the good table goes on")


def test_a_position_that_retention_has_deleted_is_a_hard_error(bed: Bed) -> None:
    plan = bed.table("old")
    bed.put(plan, {n: _row(n) for n in range(10)})
    executor = bed.executor()
    task = bed.task(plan, 1)
    bed.delete_before(plan, 0, 5)

    executor.add_table(task, prepare=True)
    eventually(lambda: executor.status(task.id).state is TaskState.FAILED, "it is refused")  # type: ignore[union-attr]
    status = executor.status(task.id)
    assert status is not None
    assert (status.error_code, status.retryable) == ("source_offset_expired", False)


def test_a_lost_span_is_closed_by_an_executor_that_never_ran_it(bed: Bed) -> None:
    plan = bed.table("orphaned")
    bed.put(plan, {n: _row(n) for n in range(5)})
    lost, closer = bed.executor(), bed.executor()
    lost.add_table(bed.task(plan, 1), prepare=False)
    eventually(lambda: len(bed.rows(plan)) == 5, "it was written")

    task = bed.task(plan, 2)
    closer.close_table(task)
    status = reached(closer, task.id, TaskState.STOPPED)
    assert status.positions == {0: 5}
    bed.put(plan, {n: _row(n) for n in range(5, 9)})
    eventually(lambda: lost.status(task.id).state is TaskState.FAILED, "the lost one is fenced")  # type: ignore[union-attr]
    assert len(bed.rows(plan)) == 5


def test_a_killed_jvm_is_replaced_and_its_spans_go_on(bed: Bed) -> None:
    plan = bed.table("phoenix")
    executor = bed.executor()
    task = bed.task(plan, 1)
    executor.add_table(task, prepare=False)
    bed.put(plan, {n: _row(n) for n in range(10)})
    eventually(lambda: len(bed.rows(plan)) == 10, "it writes")

    bed.runtime.kill()
    bed.put(plan, {n: _row(n) for n in range(10, 30)})
    eventually(lambda: bed.rows(plan) == _expected(range(30)), "it writes again")
    eventually(lambda: executor.status(task.id).positions == {0: 30}, "and knows it")  # type: ignore[union-attr]
    assert executor.is_add_table_finished(task.id, prepare=False)


@pytest.mark.parametrize("deaths", [1, WARM_TRIES * 2])
def test_a_worker_that_is_killed_while_spark_starts_is_replaced_but_not_for_ever(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deaths: int
) -> None:
    graves = str(tmp_path)

    def dying(batches: Iterable[Any]) -> Iterator[Any]:
        if len(list(Path(graves).iterdir())) < deaths:
            (Path(graves) / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    monkeypatch.setattr("headgate.replication.task.warm", dying)
    bed.runtime.stop()
    if deaths < WARM_TRIES:
        assert bed.runtime.start().sparkContext.parallelize([7], 1).collect() == [7]
    else:
        with pytest.raises(SparkStartError, match="did not start"):
            bed.runtime.start()
        bed.runtime.kill()


def _joins_lanes_after(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes are joined, and replaced, once they have been as they are for so long."""
    for module in ("queries", "placement"):
        monkeypatch.setattr(f"headgate.replication.{module}.JOIN_SECONDS", seconds)


def test_spans_change_lanes_while_they_are_written(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    _joins_lanes_after(float("inf"), monkeypatch)
    plans = [bed.table("one", partitions=2), bed.table("two"), bed.table("three")]
    executor = bed.executor()
    written = 0

    def write(count: int = 20) -> None:
        nonlocal written
        for plan in plans:
            bed.put(plan, {written + n: _row(written + n) for n in range(count)})
        written += count

    def lanes() -> list[int]:
        return sorted(len(spans) for spans in executor.lanes.values())

    tasks = [bed.task(plan, n + 1) for n, plan in enumerate(plans)]
    for task in tasks[:2]:
        executor.add_table(task, prepare=False)
        reached(executor, task.id, TaskState.REPLICATING)
    write()
    executor.add_table(tasks[2], prepare=False)
    reached(executor, tasks[2].id, TaskState.REPLICATING)
    assert len(lanes()) > 1, "who comes later begins beside those who are there"
    _joins_lanes_after(JOIN_SECONDS, monkeypatch)

    def joined() -> bool:
        write()
        return lanes() == [3]

    eventually(joined, "one lane for all")
    write()
    for plan in plans:
        eventually(lambda plan=plan: bed.rows(plan) == _expected(range(written)), "all rows")  # type: ignore[misc]
    for task in tasks:
        eventually(lambda span=task.id: sum(executor.status(span).positions.values()) == written, "its position")  # type: ignore[misc]
        eventually(lambda span=task.id: executor.status(span).error is None, "no error")  # type: ignore[misc]
    # Spark tells of a batch when it is over, a moment after its rows can be seen.
    eventually(lambda: executor.progress().rows >= 3 * written, "all of it came through Spark's queries")

    def reads_its_own(lane: Lane) -> bool:
        return lane.reads_only(executor._table.members(lane.members))

    _joins_lanes_after(float("inf"), monkeypatch)
    executor.remove_table(tasks[0].id, seal=True)
    reached(executor, tasks[0].id, TaskState.STOPPED)
    with executor._table.changed:
        (left,) = executor._queries.lanes.values()
        assert not reads_its_own(left)
    _joins_lanes_after(JOIN_SECONDS, monkeypatch)

    def reads_all_its_own() -> bool:
        with executor._table.changed:  # the control thread replaces lanes
            return [reads_its_own(lane) for lane in executor._queries.lanes.values()] == [True]

    eventually(reads_all_its_own, "it is read no more")
    write()
    for plan in plans[1:]:
        eventually(lambda plan=plan: bed.rows(plan) == _expected(range(written)), "the others go on")  # type: ignore[misc]


def test_a_feed_that_is_to_end_stops_in_front_of_its_target_and_whoever_comes_next_finds_that_out(bed: Bed) -> None:
    plan = bed.table("ending", partitions=2)
    begun = ts_of_ms(time.time_ns() // 1_000_000)
    target = begun + 100

    def row(kind: str, number: int, qty: int, ts: int) -> None:
        data = [{"id": str(number), "name": "n", "qty": str(qty)}]
        canal(number % 2, {"type": kind, "pkNames": ["id"], "data": data, "_tidb": {"commitTs": ts}})

    def watermark(ts: int) -> None:
        for partition in plan.start:
            canal(partition, {"type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": ts}})
        bed.producer.flush(ANSWER_SECONDS)

    def canal(partition: int, message: dict[str, object]) -> None:
        bed.raw(plan, b"", msgspec.json.encode({"es": 1, **message}), partition)

    for number in range(10):
        row("INSERT", number, number, begun + number)
    watermark(begun + 9)
    executor = bed.executor()
    task = bed.task(plan, 1, format="ticdc-canal-json", target_ts=target)
    executor.add_table(task, prepare=False)

    def resolved(where: SparkExecutor) -> int | None:
        status = where.status(task.id)
        assert status is not None
        assert status.state is not TaskState.FAILED, status.error
        return status.resolved_ts

    eventually(lambda: resolved(executor) == begun + 9, "the first watermark")
    assert bed.rows(plan) == {n: ("n", n) for n in range(10)}
    row("UPDATE", 1, 100, target)
    row("UPDATE", 2, 200, target + 1)
    watermark(target + 5)
    row("DELETE", 3, 0, target + 6)
    watermark(target + 9)
    eventually(lambda: resolved(executor) == target + 5, "the target")
    expected = {n: ("n", 100 if n == 1 else n) for n in range(10)}
    assert bed.rows(plan) == expected
    executor.remove_table(task.id, seal=True)
    sealed = reached(executor, task.id, TaskState.STOPPED)
    assert sealed.positions == {0: 7, 1: 7}

    second = bed.executor()
    second.add_table(bed.task(plan, 2, format="ticdc-canal-json", target_ts=target), prepare=False)
    eventually(lambda: resolved(second) == target + 5, "the same evidence, met again")
    assert bed.rows(plan) == expected
    assert second.status(task.id).positions == sealed.positions  # type: ignore[union-attr]
