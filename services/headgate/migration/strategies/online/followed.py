"""Rows that were written since they were compared: the topic names them, and they are compared again.

The comparison sees each row once. What a client writes afterwards comes into the copy by the feed, and the feed may not
bring what the table has: a connector leaves columns out, or cannot express a value (a zero date). So every change from
the feed's position at the beginning of the comparison on is read here as well, for the key of its row and for the
columns that its event carries.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from headgate.formats.change import Change, Operation
from headgate.migration.strategies.contract import DatabaseUnavailableError, RefusedError
from headgate.migration.strategies.online.lane import HOT_KEYS_MAX, ChangeKeys, Changes, FeedBehindError, Row
from headgate.migration.strategies.online.lane_plan import LanePlan
from headgate.sinks.relational.times import NotTextError

COMPARED_AT_ONCE: Final = 1_000
"""Keys in one statement of a comparison."""


class FollowedRows:
    """See lane.Touched. Any thread may use it: the migration's own between two cut-overs, and a cut-over."""

    def __init__(self, lane: ChangeKeys, plan: LanePlan, changes: Changes, differing: Iterable[Row] = ()) -> None:
        """``changes`` begin where the comparison began. ``differing``: rows that it has left."""
        self.lock = threading.RLock()
        self.hot: set[Row] = set(differing)
        """Rows to be compared under the lock: they differed when they were compared last, or were written since."""
        self._lane, self._plan, self._changes = lane, plan, changes
        self._is_closed = False

    def compare(self, upto: Mapping[int, int], seconds: float) -> None:
        """See Touched."""
        with self.lock:
            for changes in self._read(upto, seconds):
                self._add(changes)
                if len(self.hot) > HOT_KEYS_MAX:
                    self._compare()
            self._compare()

    def keys(self, upto: Mapping[int, int], seconds: float) -> list[Row]:
        """See Touched."""
        with self.lock:
            for changes in self._read(upto, seconds):
                self._add(changes)
            if len(self.hot) > HOT_KEYS_MAX:
                raise FeedBehindError(
                    f"{len(self.hot)} rows were written since they were compared, and {HOT_KEYS_MAX} can be compared "
                    "while the table is locked: they are compared again first"
                )
            return sorted(self.hot)

    def close(self) -> None:
        """Let go of the topic."""
        with self.lock:
            self._is_closed = True
            self._changes.close()

    def _read(self, upto: Mapping[int, int], seconds: float) -> Iterator[list[Change]]:
        if self._is_closed:
            raise DatabaseUnavailableError("the thread of the migration has ended: it is started again")
        return self._changes.read(upto, seconds)

    def _add(self, changes: Iterable[Change]) -> None:
        for change in changes:
            check_complete(self._plan, change)
            if change.operation is not Operation.TRUNCATE:  # which the table's identity shows
                self.hot.add(self._key(change))

    def _key(self, change: Change) -> Row:
        try:
            return self._lane.key_of(self._plan, change)
        except (KeyError, NotTextError) as error:
            raise RefusedError(
                f"partition {change.partition}, offset {change.offset}: the event's key is not a key of the table "
                f"({error}): does the connector set message.key.columns? The table is untouched"
            ) from error

    def _compare(self) -> None:
        """Rows that are equal now need not be compared under the lock: a later change of them is read later."""
        self.hot = set(still_differing(self._lane, self._plan, sorted(self.hot)))


def still_differing(lane: ChangeKeys, plan: LanePlan, keys: list[Row]) -> list[Row]:
    """Those of any number of ``keys`` whose rows differ now."""
    parts = [keys[start : start + COMPARED_AT_ONCE] for start in range(0, len(keys), COMPARED_AT_ONCE)]
    return [key for part in parts for key in lane.still_differing(plan, part)]


def check_complete(plan: LanePlan, change: Change) -> None:
    """Raise RefusedError unless the event carries every column that is copied."""
    if change.row is None:
        return
    if missing := sorted({old for old, _ in plan.held.pairs} - change.row.keys()):
        raise RefusedError(
            f"partition {change.partition}, offset {change.offset} of topic {plan.topic}: the event does not "
            f"have column {', '.join(missing)}, so its changes cannot be followed. Remove it from "
            "column.exclude.list (or add it to column.include.list) of the connector, and let no transform "
            "remove columns. The table is unchanged"
        )
