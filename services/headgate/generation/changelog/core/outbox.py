"""Changes on their way to a change log: in their source's order, held back during a switch, written exactly once.

Changes are numbered by their source (``position``, ascending). With every batch the writer commits, in the same
transaction, how far it is (``Written``). So what a source sends again after a crash is recognised and left out.

While ranges are held back, changes of other ranges are written ahead of them. What is written is then not a prefix of
the source: it is everything up to ``position``, and up to ``ahead`` all that is not in the ``held`` ranges. A later
incarnation of the writer needs to know nothing else. While it catches up on what an earlier one held back, it holds
back in order.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headgate.generation.core.ranges import LogMap, LogStream

OUTBOX_BYTES: Final = 64 * 1024 * 1024
"""Keys, values and headers that may wait, by default: some seconds of a switch, and what a process can bear."""

NOTHING: Final = -1
"""The position before all."""

POSITION_MAX: Final = 2**63 - 1
"""Positions are stored as signed 64-bit integers."""


class PositionError(ValueError):
    """A change's position is not a 64-bit integer, or contradicts the positions that its source gave before."""


class PositionsLostError(Exception):
    """Changes that were written are not on the log any more: it was deleted, and perhaps created again."""


class OutboxFullError(Exception):
    """No more changes can be taken before some are written."""


class PendingChange(msgspec.Struct, frozen=True):
    """One change: its number at the source, the token of its key, and what is written."""

    position: int
    token: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Of what its source has given."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key) + len(self.value or b"") + headers


class Written(msgspec.Struct, frozen=True):
    """How far a writer has written; see the module's docstring. ``held``: ranges (start, end]."""

    position: int = NOTHING
    ahead: int = NOTHING
    held: tuple[tuple[int, int], ...] = ()

    def has(self, position: int, token: int) -> bool:
        """Whether a change with this position and token is on the log."""
        if position <= self.position:
            return True
        return position <= self.ahead and not any(start < token <= end for start, end in self.held)


class Batch(msgspec.Struct, frozen=True):
    """Changes for one transaction, each with its partition, and what is written after it."""

    changes: tuple[tuple[PendingChange, int], ...]
    after: Written

    @property
    def size_bytes(self) -> int:
        """Of all its changes."""
        return sum(change.size_bytes for change, _ in self.changes)


class Outbox:
    """At most ``limit`` changes that are not committed yet, of ``limit_bytes`` in all; the last one of any size."""

    def __init__(self, limit: int, limit_bytes: int = OUTBOX_BYTES) -> None:
        self.limit, self.limit_bytes = limit, limit_bytes
        self.waiting_bytes = 0
        self._held: deque[PendingChange] = deque()
        self._waiting: deque[PendingChange] = deque()
        self._taken: Batch | None = None
        self._last_added = NOTHING
        self._highest_added = NOTHING
        self._resendable: frozenset[int] = frozenset()
        self._held_ranges: tuple[tuple[int, int], ...] = ()
        self._catching_up_to = NOTHING
        self.written = Written()

    def __len__(self) -> int:
        """Changes that are not committed yet."""
        taken = 0 if self._taken is None else len(self._taken.changes)
        return len(self._held) + len(self._waiting) + taken

    @property
    def has_room(self) -> bool:
        """Whether another change is taken."""
        return len(self) < self.limit and self.waiting_bytes < self.limit_bytes

    @property
    def first_waiting(self) -> int | None:
        """The position of the first change that is not committed yet."""
        taken = [] if self._taken is None else [change.position for change, _ in self._taken.changes]
        heads = [each[0].position for each in (self._held, self._waiting) if each]
        return min((*taken, *heads), default=None)

    @property
    def has_held(self) -> bool:
        """Whether changes are held back, or were and are not written yet."""
        return bool(self._held)

    def add(self, change: PendingChange) -> bool:
        """Accept one change. False if it is on the log already, or already waits to be written.

        Raises PositionError, OutboxFullError (a full box accepts nothing).
        """
        if change.position <= self._last_added:
            raise PositionError(
                f"position {change.position} does not follow {self._last_added}: the changes of a writer must have "
                "ascending positions. A source that reconnects must first ask for `writer.position`"
            )
        if self.written.has(change.position, change.token) or change.position in self._resendable:
            self._last_added = change.position
            return False
        if change.position <= self._highest_added:
            raise PositionError(
                f"position {change.position} was not among the changes that the source sent before, although it sent "
                f"changes up to {self._highest_added}: the positions of a source must not change between two readings"
            )
        if not self.has_room:
            raise OutboxFullError(f"{len(self)} changes of {self.waiting_bytes} bytes wait to be written")
        self._last_added = self._highest_added = change.position
        self.waiting_bytes += change.size_bytes
        self._waiting.append(change)
        return True

    def resend(self) -> None:
        """Let the source start again from any earlier position. ``add`` then leaves out what it accepted before."""
        taken = () if self._taken is None else (change for change, _ in self._taken.changes)
        self._resendable = frozenset(change.position for change in (*taken, *self._held, *self._waiting))
        self._last_added = NOTHING

    def begin(self, written: Written) -> None:
        """Start an incarnation: what is written according to the log counts; the rest is sent again, in order.

        Raises PositionsLostError, and then changes nothing.
        """
        if written.position < self.written.position:
            raise PositionsLostError(
                f"changes up to position {self.written.position} were written, and the log has those up to "
                f"{written.position} only"
            )
        taken = () if self._taken is None else (change for change, _ in self._taken.changes)
        again = sorted((*taken, *self._held, *self._waiting), key=lambda change: change.position)
        self._held.clear()
        self._taken = None
        self.written = written
        self._catching_up_to = written.ahead if written.ahead > written.position else NOTHING
        self._waiting = deque(change for change in again if not written.has(change.position, change.token))
        self.waiting_bytes = sum(change.size_bytes for change in self._waiting)

    def take(
        self, log: LogMap, closed: Sequence[LogStream], limit: int, limit_bytes: int = OUTBOX_BYTES
    ) -> Batch | None:
        """The next batch by ``log``, without what lies in ``closed``; None if there is nothing to write now.

        At most ``limit`` changes of ``limit_bytes`` in all, but always one if there is one. Confirm it by ``commit``
        before the next one is taken.
        """
        if self._taken is not None:
            raise RuntimeError("the batch before is not committed yet")
        chosen: list[tuple[PendingChange, int]] = []
        closed_ids = {stream.id for stream in closed}
        if closed_ids:
            self._held_ranges = tuple((stream.start, stream.end) for stream in closed)
        left = limit_bytes

        def fits(change: PendingChange) -> bool:
            return not chosen or (len(chosen) < limit and change.size_bytes <= left)

        if not closed_ids:
            while self._held and fits(self._held[0]):
                change = self._held.popleft()
                left -= change.size_bytes
                chosen.append((change, log.stream_of(change.token).partition))
        while self._waiting and not (self._held and not closed_ids):
            change = self._waiting[0]
            stream = log.stream_of(change.token)
            if stream.id in closed_ids:
                if self.written.position < self._catching_up_to or len(chosen) >= limit:
                    break
                self._held.append(self._waiting.popleft())
                continue
            if not fits(change):
                break
            left -= change.size_bytes
            chosen.append((self._waiting.popleft(), stream.partition))
        if not chosen:
            return None
        self._taken = Batch(tuple(chosen), self._after([change for change, _ in chosen]))
        return self._taken

    def commit(self) -> None:
        """The batch that was taken is on the log."""
        if self._taken is not None:
            self.written = self._taken.after
            self.waiting_bytes -= sum(change.size_bytes for change, _ in self._taken.changes)
            self._taken = None

    def _after(self, chosen: Iterable[PendingChange]) -> Written:
        last = max(change.position for change in chosen)
        ahead = max(self.written.ahead, last)
        if self._held and self._held[0].position < ahead:
            # Everything before the first that is held is written; of what lies behind, all that is not held.
            # This counts while they are written later, too: a batch may end before the last of them.
            return Written(self._held[0].position - 1, ahead, self._held_ranges)
        if last < self._catching_up_to:
            return Written(last, ahead, self.written.held)
        return Written(ahead, ahead)
