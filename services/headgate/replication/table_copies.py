"""Whole tables that are copied in turns: how far each is, and when a copy that does not get on is given up."""

import time
from collections.abc import Callable
from math import ceil
from typing import Final

import msgspec

from headgate.agent.core.executor import SpanId
from headgate.records.copy_progress import CopyProgress
from headgate.replication.row_copy import CopyReached, RowCopyError
from headgate.sinks.contract import Claim, Sink
from headgate.sinks.row_copying import CopyMark, RowCopyingSink

__all__ = ["TableCopies", "mark_at"]

GIVE_UP_SECONDS: Final = 3600.0
"""Without a single range: a server's restart or maintenance fits in. The table replicates all the while."""


class _Stuck(msgspec.Struct, frozen=True):
    """Since when a copy has been at this mark (monotonic seconds)."""

    mark: CopyMark
    since: float


class _Begun(msgspec.Struct, frozen=True):
    """How far a copy was when this agent began with it, and when that was (monotonic seconds)."""

    mark: CopyMark
    at: float


class TableCopies:
    """What an agent remembers of its copies; how far they are is at the sinks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stuck: dict[SpanId, _Stuck] = {}
        self._begun: dict[SpanId, _Begun] = {}
        self._shown: dict[SpanId, CopyMark] = {}

    def shown(self, span: SpanId, reached: CopyReached) -> str:
        """How far a copy is, for people. The time left is by its speed at this agent, catching up included."""
        mark, about = reached.mark, reached.rows_about
        self._shown[span] = mark
        rows_about = None if not about else max(about, mark.rows)
        return CopyProgress(
            rows=mark.rows, rows_about=rows_about, deleted=mark.deleted, seconds_left=self._left(span, mark, rows_about)
        ).text

    def _left(self, span: SpanId, mark: CopyMark, rows_about: int | None) -> int | None:
        begun = self._begun.get(span)
        if begun is None or begun.mark.request != mark.request or rows_about is None:
            return None
        rows, seconds = mark.rows - begun.mark.rows, self._clock() - begun.at
        return None if rows <= 0 or seconds <= 0 else ceil((rows_about - mark.rows) * seconds / rows)

    def turn(self, span: SpanId, mark: CopyMark, copy: Callable[[CopyMark], CopyReached]) -> str | None:
        """Copy for one turn; how far the table is then, in words, None if all of it is copied.

        An error that may pass is part of the words, and the copy continues in the next turn. Raises RowCopyError for
        others, and for one that has lasted for GIVE_UP_SECONDS; SinkError.
        """
        begun = self._begun.get(span)
        if begun is None or begun.mark.request != mark.request:
            self._begun[span] = _Begun(mark, self._clock())
        stuck = self._stuck.get(span)
        if stuck is None or stuck.mark != mark:
            stuck = self._stuck[span] = _Stuck(mark, self._clock())
        try:
            reached = CopyReached(mark, None) if mark.is_done else copy(mark)
        except RowCopyError as error:
            if error.may_pass and self._clock() - stuck.since < GIVE_UP_SECONDS:
                last = self._shown.get(span, mark)
                latest = last if last.request == mark.request and last.rows > mark.rows else mark
                return f"{self.shown(span, CopyReached(latest, None))}; the copy continues after an error: {error}"
            del self._stuck[span]
            raise
        if reached.mark.is_done:
            del self._stuck[span], self._begun[span]
            self._shown.pop(span, None)
            return None
        return self.shown(span, reached)


def mark_at(sink: Sink, claim: Claim, request: str) -> CopyMark:
    """How far the request is. Raises RowCopyError, SinkError."""
    if not isinstance(sink, RowCopyingSink):
        raise RowCopyError(f"{claim.table}: rows cannot be copied to this sink")
    return sink.copied(claim, request)
