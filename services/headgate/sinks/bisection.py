"""When a batch as a whole is refused: what of it can be applied, in the order of the log, and which changes cannot.

The last words of a batch can break a rule that its changes one after the other would not (a unique value handed from
row to row), and one bad value must not hold back the good changes around it. So what is refused is halved until it is
applied or is one single change: among n changes, k bad ones cost about 2k·log2(n) attempts, each under a savepoint of
one transaction. Partitions are tried in turn until none gets further, because one may need what another brings.

Nothing here knows a database: a sink says how to try some changes, and what its refusals mean.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from headgate.changes.change import Change
from headgate.sinks.contract import (
    Aside,
    ChangeBatch,
    ChangeRefusedError,
    ConstraintViolatedError,
    OffsetRange,
    QuarantineFullError,
)

__all__ = ["Bisected", "Trial", "bisect_batch"]


class Trial(Protocol):
    """How a sink tries changes within an open transaction."""

    def attempt(self, changes: Sequence[Change]) -> Exception | None:
        """Apply them in log order, or leave no trace of them and return what refused them.

        Raises what no single change is to blame for.
        """
        ...

    def refusal(self, change: Change, error: Exception) -> ChangeRefusedError:
        """What it means that ``change``, alone, was refused with ``error``."""
        ...


class Bisected(msgspec.Struct, frozen=True):
    """How far the batch got: ``ranges`` it moved over, and the changes below their ends that are to be kept aside."""

    ranges: dict[int, OffsetRange]
    refused: tuple[ChangeRefusedError, ...]


def bisect_batch(trial: Trial, batch: ChangeBatch) -> Bisected:
    """Apply the longest prefix per partition; with ``batch.aside`` all but single bad changes.

    Raises the first refusal if nothing could be done at all, QuarantineFullError beyond ``batch.aside.most``.
    """
    waiting: dict[int, Sequence[Change]] = {
        partition: [change for change in batch.changes if change.partition == partition]
        for partition in sorted(batch.ranges)
    }
    search = _Search(trial, batch)
    stuck, moved = search.rounds(waiting)
    if stuck and not moved:
        raise stuck[min(stuck)]
    ranges = {
        partition: OffsetRange(span.expected, waiting[partition][0].offset if waiting[partition] else span.next)
        for partition, span in batch.ranges.items()
    }
    return Bisected(ranges, tuple(search.refused))


class _Search:
    """One batch's bisection."""

    def __init__(self, trial: Trial, batch: ChangeBatch) -> None:
        self._trial = trial
        self._aside: Aside | None = batch.aside
        self._table = batch.claim.table
        self.refused: list[ChangeRefusedError] = []

    def rounds(self, waiting: dict[int, Sequence[Change]]) -> tuple[dict[int, ChangeRefusedError], int]:
        """Try all partitions in turn until none gets further: who is stuck and why, and how many changes are done."""
        moved = 0
        while True:
            stuck: dict[int, ChangeRefusedError] = {}
            progress = 0
            for partition, changes in waiting.items():
                if not changes:
                    continue
                done, refusal = self._longest(changes)
                waiting[partition] = changes[done:]
                progress += done
                if refusal is not None:
                    stuck[partition] = refusal
            moved += progress
            if not stuck:
                return stuck, moved
            if not progress:
                if self._aside is None or self._aside.patient:
                    return stuck, moved
                first = min(stuck)
                self._keep(stuck[first])
                waiting[first] = waiting[first][1:]
                moved += 1

    def _longest(self, changes: Sequence[Change]) -> tuple[int, ChangeRefusedError | None]:
        """How many of the changes are done with, and what is wrong with the one after them."""
        error = self._trial.attempt(changes)
        if error is None:
            return len(changes), None
        if len(changes) == 1:
            refusal = self._trial.refusal(changes[0], error)
            if self._aside is None or isinstance(refusal, ConstraintViolatedError):
                return 0, refusal
            self._keep(refusal)
            return 1, None
        half = len(changes) // 2
        done, stuck = self._longest(changes[:half])
        if stuck is not None:
            return done, stuck
        more, stuck = self._longest(changes[half:])
        return half + more, stuck

    def _keep(self, refusal: ChangeRefusedError) -> None:
        self.refused.append(refusal)
        if self._aside is not None and len(self.refused) > self._aside.most:
            raise QuarantineFullError(
                f"{self._table}: more changes are refused than may be set aside (quarantine_per_hour_max); the first "
                f"of this batch: {self.refused[0]}"
            )
