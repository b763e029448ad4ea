"""Finds the changes of a refused batch that can be applied, in the order of the log, and those that cannot.

The last words of a batch can break a rule that its changes one after the other would not (a unique value handed from
row to row), and one bad value must not hold back the good changes around it. So what is refused is halved until it is
applied or is one single event: among n events, k bad ones cost about 2k·log2(n) attempts, each under a savepoint of
one transaction. Partitions are tried in turn until none gets further, because one may need what another brings.

An event, which is all changes of one (partition, offset), is never divided: a position names an offset, so half an
event would be applied again with the rest of it. Where the last words of a single event are refused, its changes are
tried one after the other, all or none of them.

Nothing here knows a database: a sink defines how to try some changes, and what its refusals mean.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, Protocol

import msgspec

from headgate.formats.change import Change
from headgate.sinks.contract import (
    ChangeBatch,
    ChangeRefusedError,
    OffsetRange,
    Quarantine,
    QuarantineFullError,
)

Event = Sequence[Change]
"""All changes of one (partition, offset), in their order; never none."""

_place: Final = attrgetter("offset")


class Trial(Protocol):
    """How a sink tries changes within an open transaction."""

    def attempt(self, parts: Sequence[Sequence[Change]]) -> Exception | None:
        """Apply each part's last words, part after part, or leave no trace of any and return what refused them.

        Raises what no single change is to blame for.
        """
        ...

    def refusal(self, change: Change, error: Exception) -> ChangeRefusedError:
        """What it means that the event of ``change``, alone, was refused with ``error``."""
        ...


class Bisected(msgspec.Struct, frozen=True):
    """How far the batch got: ``ranges`` it moved over, and the events below their ends that must be set aside."""

    ranges: dict[int, OffsetRange]
    refused: tuple[ChangeRefusedError, ...]


def bisect_batch(trial: Trial, batch: ChangeBatch) -> Bisected:
    """Apply the longest prefix per partition, in whole events; with ``batch.quarantine`` all but single bad events.

    A bad event that ``batch.quarantine`` does not take ends its partition's prefix.

    Raises the first refusal if nothing could be done at all, QuarantineFullError beyond ``batch.quarantine.most``.
    """
    waiting: dict[int, Sequence[Event]] = {
        partition: _events([change for change in batch.changes if change.partition == partition])
        for partition in sorted(batch.ranges)
    }
    search = _Search(trial, batch)
    stuck, moved = search.rounds(waiting)
    if stuck and not moved:
        raise stuck[min(stuck)]
    ranges = {
        partition: OffsetRange(span.expected, waiting[partition][0][0].offset if waiting[partition] else span.next)
        for partition, span in batch.ranges.items()
    }
    return Bisected(ranges, tuple(search.refused))


def _events(changes: Sequence[Change]) -> list[Event]:
    """Changes of one partition by their offsets, which go up."""
    return [list(event) for _, event in groupby(changes, key=_place)]


def _all_of(events: Sequence[Event]) -> list[Change]:
    return [change for event in events for change in event]


class _Search:
    """One batch's bisection."""

    def __init__(self, trial: Trial, batch: ChangeBatch) -> None:
        self._trial = trial
        self._quarantine: Quarantine | None = batch.quarantine
        self._table = batch.claim.table
        self.refused: list[ChangeRefusedError] = []

    def rounds(self, waiting: dict[int, Sequence[Event]]) -> tuple[dict[int, ChangeRefusedError], int]:
        """Try all partitions in turn until none gets further: who is stuck and why, and how many events are done."""
        moved = 0
        while True:
            stuck: dict[int, ChangeRefusedError] = {}
            progress = 0
            for partition, events in waiting.items():
                if not events:
                    continue
                done, refusal = self._longest(events)
                waiting[partition] = events[done:]
                progress += done
                if refusal is not None:
                    stuck[partition] = refusal
            moved += progress
            if not stuck:
                return stuck, moved
            if not progress:
                taken = [partition for partition in sorted(stuck) if self._takes(waiting[partition][0])]
                if not taken or self._quarantine is None or self._quarantine.patient:
                    return stuck, moved
                first = taken[0]
                self._keep(stuck[first])
                waiting[first] = waiting[first][1:]
                moved += 1

    def _longest(self, events: Sequence[Event]) -> tuple[int, ChangeRefusedError | None]:
        """How many of the events are done with, and what is wrong with the one after them."""
        error = self._trial.attempt([_all_of(events)])
        if error is None:
            return len(events), None
        if len(events) == 1:
            return self._single(events[0], error)
        half = len(events) // 2
        done, stuck = self._longest(events[:half])
        if stuck is not None:
            return done, stuck
        more, stuck = self._longest(events[half:])
        return half + more, stuck

    def _single(self, event: Event, error: Exception) -> tuple[int, ChangeRefusedError | None]:
        """The same of one event whose last words were refused with ``error``."""
        if len(event) > 1:
            refused = self._trial.attempt([[change] for change in event])
            if refused is None:
                return 1, None
            error = refused
        refusal = self._trial.refusal(event[0], error)
        if refusal.may_heal or not self._takes(event):
            return 0, refusal
        self._keep(refusal)
        return 1, None

    def _takes(self, event: Event) -> bool:
        return self._quarantine is not None and self._quarantine.takes(event[0])

    def _keep(self, refusal: ChangeRefusedError) -> None:
        self.refused.append(refusal)
        if self._quarantine is not None and len(self.refused) > self._quarantine.most:
            raise QuarantineFullError(
                f"{self._table}: the sink refuses more changes than quarantine_per_hour_max allows; the first one "
                f"of this batch: {self.refused[0]}"
            )
