"""Whole tables that are copied in turns: how far each is, and when a copy that does not get on is given up."""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from headgate.agent.core.executor import SpanId
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


class TableCopies:
    """What an agent remembers of its copies; how far they are is at the sinks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stuck: dict[SpanId, _Stuck] = {}

    def turn(self, span: SpanId, mark: CopyMark, copy: Callable[[CopyMark], CopyReached]) -> str | None:
        """Copy for one turn; how far the table is then, in words, None if all of it is copied.

        An error that may pass is part of the words, and the copy continues in the next turn. Raises RowCopyError for
        others, and for one that has lasted for GIVE_UP_SECONDS; SinkError.
        """
        stuck = self._stuck.get(span)
        if stuck is None or stuck.mark != mark:
            stuck = self._stuck[span] = _Stuck(mark, self._clock())
        try:
            reached = CopyReached(mark, None) if mark.is_done else copy(mark)
        except RowCopyError as error:
            if error.may_pass and self._clock() - stuck.since < GIVE_UP_SECONDS:
                return f"{shown(CopyReached(mark, None))}; the copy continues after an error: {error}"
            del self._stuck[span]
            raise
        if reached.mark.is_done:
            del self._stuck[span]
            return None
        return shown(reached)


def mark_at(sink: Sink, claim: Claim, request: str) -> CopyMark:
    """How far the request is. Raises RowCopyError, SinkError."""
    if not isinstance(sink, RowCopyingSink):
        raise RowCopyError(f"{claim.table}: rows cannot be copied to this sink")
    return sink.copied(claim, request)


def shown(reached: CopyReached) -> str:
    """How far a copy is, for people."""
    mark, about = reached.mark, reached.rows_about
    text = f"{mark.rows} rows are copied"
    if about:
        text += f" of about {max(about, mark.rows)} ({min(99, 100 * mark.rows // about)} %)"
    return text + (f", {mark.deleted} deleted" if mark.deleted else "")
