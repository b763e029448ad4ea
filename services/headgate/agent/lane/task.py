"""What Spark calls inside its Python workers: a task's share of a batch is read from the log and given to a run.

Readers are kept per worker process and lane, because each costs more than a small batch and fetches ahead of the next.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from headgate.agent.lane.archives import forget_archives
from headgate.agent.lane.plan import TaskPlan
from headgate.agent.lane.task_run import TaskRun
from headgate.sources.reader import LogReader

__all__ = ["read_task", "warm"]

WAIT_SECONDS: Final = 0.02
"""A task that finds nothing does not wait longer: it holds one of few slots, and others have rows."""

READERS_MAX: Final = 4
"""Readers kept per worker: as many lanes as a worker serves at a time; that of the lane used longest ago is closed."""

READER_IDLE_SECONDS: Final = 60.0
"""A reader that nobody has asked for so long is closed by the next task of another lane: its lane has ended, as a rule,
and it would go on asking the brokers ten times a second, and hold what it has fetched."""

_readers: dict[str, LogReader] = {}
_read_at: dict[str, float] = {}
_last_shares: dict[str, int] = {}


def warm(numbers: Iterable[int]) -> Iterator[int]:
    """Does nothing, in a worker that has imported all that ``read_task`` needs."""
    forget_archives()
    yield from numbers


def read_task(plan: TaskPlan, numbers: Iterable[int]) -> Iterator[bytes]:
    """Read and apply the readings of one task; ``numbers`` is its number alone. Yields one TaskResult as JSON."""
    (number,) = numbers
    forget_archives()
    readings = plan.readings[_share(plan, number)]
    reader = _reader(plan)
    try:
        run = TaskRun(plan, readings)
        run.run(reader.read(readings, plan.rows_max, WAIT_SECONDS))
    except BaseException:
        _readers.pop(plan.lane).close()
        raise
    ends: dict[str, dict[int, int]] = {}
    for (topic, partition), end in sorted(reader.ends.items()):
        ends.setdefault(topic, {})[partition] = end
    ahead: dict[str, dict[int, int]] = {}
    for (topic, partition), end in sorted(reader.ahead(readings).items()):
        ahead.setdefault(topic, {})[partition] = end
    yield msgspec.json.encode(run.result(ends, ahead))


def _share(plan: TaskPlan, number: int) -> int:
    """Which readings are this task's: if it can be, those that this worker had last time and has fetched ahead of."""
    if plan.shares is None:
        return number
    count = len(plan.readings)
    preferred = _last_shares.get(plan.lane, number) % count
    share: int
    for share in (preferred, *range(count)):
        with suppress(FileExistsError):
            os.close(os.open(f"{plan.shares}-{share}", os.O_CREAT | os.O_EXCL))
            _last_shares[plan.lane] = share
            return share
    raise AssertionError(f"{plan.lane}: more tasks than shares")


def _reader(plan: TaskPlan) -> LogReader:
    reader = _readers.pop(plan.lane, None) or LogReader(plan.source)
    now = time.monotonic()
    idle = [lane for lane in _readers if now - _read_at[lane] > READER_IDLE_SECONDS]
    excess = max(0, len(_readers) + 1 - READERS_MAX)
    for lane in dict.fromkeys([*idle, *list(_readers)[:excess]]):
        _readers.pop(lane).close()
        _read_at.pop(lane)
        _last_shares.pop(lane, None)
    _readers[plan.lane] = reader
    _read_at[plan.lane] = now
    return reader
