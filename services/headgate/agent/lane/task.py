"""What Spark calls inside its Python workers: a task's share of a batch is read from the log and given to a run."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from headgate.agent.lane.archives import forget_archives
from headgate.agent.lane.plan import TaskPlan
from headgate.agent.lane.readers import Readers
from headgate.agent.lane.task_run import TaskRun

__all__ = ["read_task", "warm"]

WAIT_SECONDS: Final = 0.02
"""A task that finds nothing does not wait longer: it holds one of few slots, and others have rows."""

_readers = Readers()


def warm(numbers: Iterable[int]) -> Iterator[int]:
    """Does nothing, in a worker that has imported all that ``read_task`` needs."""
    forget_archives()
    yield from numbers


def read_task(plan: TaskPlan, numbers: Iterable[int]) -> Iterator[bytes]:
    """Read and apply the readings of one task; ``numbers`` is its number alone. Yields one TaskResult as JSON."""
    (number,) = numbers
    forget_archives()
    with _readers.lent(plan.lane, plan.source) as kept:
        kept.share = _share(plan, number, kept.share)
        readings, reader = plan.readings[kept.share], kept.reader
        run = TaskRun(plan, readings)
        run.run(reader.read(readings, plan.rows_max, WAIT_SECONDS))
        ends: dict[str, dict[int, int]] = {}
        for (topic, partition), end in sorted(reader.ends.items()):
            ends.setdefault(topic, {})[partition] = end
        ahead: dict[str, dict[int, int]] = {}
        for (topic, partition), end in sorted(reader.ahead(readings).items()):
            ahead.setdefault(topic, {})[partition] = end
    yield msgspec.json.encode(run.result(ends, ahead))


def _share(plan: TaskPlan, number: int, last: int | None) -> int:
    """Which readings are this task's: if it can be, those that this worker had last time and has fetched ahead of."""
    if plan.shares is None:
        return number
    count = len(plan.readings)
    preferred = (number if last is None else last) % count
    share: int
    for share in (preferred, *range(count)):
        with suppress(FileExistsError):
            os.close(os.open(f"{plan.shares}-{share}", os.O_CREAT | os.O_EXCL))
            return share
    raise AssertionError(f"{plan.lane}: more tasks than shares")
