"""How long commits of a lake table take, one after the other: whether they grow slower as the table gets older."""

import random
import time
from typing import Final

from headgate.formats.change import Change, Operation, Row
from headgate.records.control import Epoch
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity, OffsetRange
from headgate.sinks.on_driver import Commit, driver_sink
from headgate.sinks.registry import open_sink
from headgate_lab.benchmarks.lake_tables import Tables, rows_of
from headgate_lab.benchmarks.workload import Workload

__all__ = ["commit_times"]

ROWS: Final = 10_000
"""Of the table: so few that what grows is the number of versions and files, not the rows that are copied."""

CHANGES: Final = 100
"""Of each commit."""


def commit_times(tables: Tables, mode: str, commits: int) -> list[float]:
    """Milliseconds of each commit, without the staging before it."""
    table = f"commits_{mode}"
    workload = Workload("bench.public.commits", 0, 1, with_schema=False, seed=0, rows_before=ROWS)
    tables.create(table, rows_of(workload) if mode == "upsert" else None)
    sink = open_sink(tables.sink(mode, 1.0))
    staged_by = driver_sink(sink)
    claim = Claim(FeedIdentity("bench", "0-1", "bench"), f"bench.{table}", workload.topic, Epoch(1, 1), 0, {0: 0})
    sink.claim(claim)
    stager, committer = staged_by.stager(), staged_by.committer()
    chooser = random.Random(0)  # noqa: S311 (a workload, not a secret)
    times = []
    for number in range(commits):
        first = number * CHANGES
        ranges = {0: OffsetRange(first, first + CHANGES)}
        staged = stager.stage(ChangeBatch(claim, ranges, _changes(first, chooser)))
        started = time.monotonic()
        committer.commit(Commit(claim=claim, ranges=ranges, payloads=[staged.payload]))
        times.append((time.monotonic() - started) * 1000)
    stager.close()
    committer.close()
    sink.close()
    return times


def _changes(first: int, chooser: random.Random) -> list[Change]:
    changes = []
    for offset, row_id in enumerate(chooser.sample(range(ROWS), CHANGES), start=first):
        row: Row = {
            "id": row_id,
            "name": f"customer {row_id} of the northern depot",
            "qty": offset % 1_000,
            "ver": offset,
            "price": f"{row_id % 10_000}.50",
            "at": "2026-01-02T03:04:05.000006Z",
        }
        changes.append(Change(0, offset, Operation.UPSERT, {"id": row_id}, row, None, 0))
    return changes
