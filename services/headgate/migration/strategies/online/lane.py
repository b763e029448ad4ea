"""The interface between strategy ``online`` and a kind of database, besides ``contract.Server``.

A *mark* is a change of one row that leaves the row as it is: the server logs it, and the capturing connector sends it
like any change. It shows that changes come through, and, under the table's lock, which one is the last.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from headgate.formats.change import Change
from headgate.migration.core.copy_steps import Position
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import (
    Chunk,
    CopyPlan,
    DescribedTable,
    LockUnavailableError,
    Memory,
    RefusedError,
)
from headgate.migration.strategies.fingerprint import FormChange
from headgate.migration.strategies.online.lane_plan import LanePlan
from headgate.records.migration import Artifact
from headgate.sources.origin import Origin

HOT_KEYS_MAX: Final = 1_000
"""Rows that are compared while the table is locked; so many take some ten milliseconds."""


LOCK_SHARE: Final = 0.5
"""Of the time for which clients may wait. They wait from the moment at which the lock is requested, because they queue
behind the request, so what the lock takes is missing for what is done under it."""

PARTITIONS_SECONDS_MIN: Final = 0.1
"""For the broker's answer, if there is less time left; it takes some milliseconds."""


class FeedBehindError(LockUnavailableError):
    """Clients would have had to wait for longer than they may, so everything is as before. It passes by itself."""


Row = tuple[str, ...]
"""A row's key, as text or as literals, whichever the database's statements take."""


class LastChange(msgspec.Struct, frozen=True):
    """A change of a table in the server's log, as Debezium's events name it.

    By LSN or the transaction's number (PostgreSQL), or by GTID (MariaDB). ``forms``: the operations that Debezium may
    make of it; one of these must be there, whole. ``places``: at so many places of the log are changes that fit; it is
    the last of these.
    """

    forms: tuple[tuple[str, ...], ...]
    lsn: int | None = None
    txid: int | None = None
    gtid: str | None = None
    places: int = 1


class Mark(NamedTuple):
    """A mark that was set: its row, and the change that its event describes."""

    row: Row
    change: LastChange


class TopicPosition(NamedTuple):
    """Where an event is on the topic."""

    partition: int
    offset: int


class TopicTail(Protocol):
    """The end of the table's topic, all of its partitions."""

    topic_id: str | None
    """Kafka's id of the topic that the places belong to, None if the broker has no ids."""

    def find(self, changes: Sequence[LastChange], seconds: float) -> list[tuple[TopicPosition, ...]]:
        """Where the events of each of these changes are; none for one that has not come within the time."""
        ...

    def partitions(self, seconds: float) -> frozenset[int]:
        """Those that the topic has now. Raises DatabaseUnavailableError after that time."""
        ...


class Changes(Protocol):
    """The changes on the table's topic, from some position on."""

    def read(self, upto: Mapping[int, int], seconds: float) -> Iterator[list[Change]]:
        """Those below ``upto`` (partition → offset), and perhaps some more, that were not read before.

        Raises FeedBehindError after that time, RefusedError for an event that cannot be read, DatabaseUnavailableError.
        """
        ...

    def close(self) -> None:
        """Let go."""
        ...


class Touched(Protocol):
    """Rows that were written since they were compared; see followed.py."""

    def compare(self, upto: Mapping[int, int], seconds: float) -> None:
        """Compare those whose changes are below ``upto``; for ``keys`` those are left that differ.

        Raises FeedBehindError, RefusedError (an event is incomplete), DatabaseUnavailableError.
        """
        ...

    def keys(self, upto: Mapping[int, int], seconds: float) -> list[Row]:
        """Rows to be compared under the lock, once every change is below ``upto``. Raises what ``compare`` does."""
        ...


class Marked(NamedTuple):
    """Partition → offset behind its mark. Some are missing if they have no row, or, ``is_late``, it took too long."""

    reached: dict[int, int]
    is_late: bool
    topic_id: str | None = None
    """Kafka's id of the topic that the offsets belong to."""


class Marks(Protocol):
    """Marks for every partition of the topic; see marks.py."""

    rows: dict[int, Row]
    """Partition → a row whose changes go there, as far as that is known."""

    @property
    def partitions(self) -> frozenset[int]:
        """All of them."""
        ...

    def set(self, tail: TopicTail, seconds: float) -> Marked:
        """Set them, and see them come to the topic."""
        ...


class CopySink(NamedTuple):
    """Where a feed into a copy writes. Feeds are stored on a topic, so the database has its connection's name.

    ``rounds``: values may lose digits that the copy does not keep, as the user has allowed.
    """

    kind: str
    connection: str
    table: str
    rounds: bool = False


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the database remembers beside the plan.

    ``position`` and ``built``: where the feed was, and what the table was, before the first row was read. ``reached``
    is written by a cut-over: partition → the offset behind the last change of the table before, where the changes of
    the table that takes its place begin. ``became``: what that table was then, in the form of ``built``. ``topic_id``:
    Kafka's id of the topic that ``reached`` belongs to, None if it is not known.
    """

    position: Position
    built: str
    reached: dict[int, int] = {}
    became: str = ""
    topic_id: str | None = None


class CutOver(NamedTuple):
    """One try. ``seconds``: how long clients may wait for the table.

    ``built`` is what the table was when it was copied. ``touched``: rows that were not seen equal since they were
    written; they are compared under the lock, where nothing changes.
    """

    plan: LanePlan
    memory: Memory
    feed_id: str
    tail: TopicTail
    seconds: float
    built: str
    touched: Touched
    is_forced: bool
    marks: Marks


class ChangeKeys(Protocol):
    """How rows of events are found in a table and its copy."""

    def key_of(self, plan: LanePlan, change: Change) -> Row:
        """The row's key. Raises KeyError, NotTextError."""
        ...

    def still_differing(self, plan: LanePlan, keys: list[Row]) -> list[Row]:
        """Those of ``keys`` whose rows differ now."""
        ...


class Lane(ChangeKeys, Protocol):
    """One migration's table and its copy. Methods raise what ``contract.Server``'s do."""

    def capture(self, table: DescribedTable) -> str:
        """The publication that has the table, where there are such. RefusedError: changes cannot be followed."""
        ...

    def form_change(self, statement: Statement, plan: CopyPlan) -> FormChange:
        """What the statement does to the table's facts. RefusedError: a copy would lose some of them."""
        ...

    def try_forms(self, statement: Statement, plan: LanePlan) -> None:
        """RefusedError: the copy could not have the form in which it is filled, or could not leave it at once."""
        ...

    def origins(self, table: DescribedTable) -> tuple[Origin, ...]:
        """The origins that events of the table may name."""
        ...

    def warning(self, table: DescribedTable) -> str:
        """What of the table's values may end the change, for the submitter; empty if nothing is known."""
        ...

    def sink_kind(self) -> str:
        """What a feed into the copy calls this kind of database. RefusedError: no feed can write to this server."""
        ...

    def make(self, statement: Statement, plan: LanePlan, memory: Memory, lock_seconds: float) -> Memory:
        """The copy, empty, with columns called as the table's; what an earlier attempt has left is dropped first.

        It has no unique key beside the primary one. The plan in the memory has the statements that add them.
        """
        ...

    def is_made(self, plan: LanePlan, memory: Memory) -> bool:
        """Whether ``make`` has come to its end, and the copy is still there."""
        ...

    def take(self, plan: LanePlan, memory: Memory, lock_seconds: float) -> Memory:
        """Make the table before, which is there with its rows, the copy. RefusedError: nothing is lost."""
        ...

    def hold_form(self, plan: LanePlan) -> None:
        """Make sure that the copy's columns are called as the table's: a cut-over may have been broken off."""
        ...

    def mark(self, plan: LanePlan, row: Row | None = None) -> Mark | None:
        """Set a mark on that row, or on any; None if there was none to be had."""
        ...

    def rows(self, plan: LanePlan, count: int) -> list[Row]:
        """Some rows of the table, at most so many."""
        ...

    def has(self, plan: LanePlan, row: Row) -> bool:
        """Whether the copy has the row."""
        ...

    def is_copy_empty(self, plan: LanePlan) -> bool:
        """Whether the copy has no row."""
        ...

    def add_keys(self, plan: LanePlan, memory: Memory) -> Memory:
        """Add the unique keys that ``make`` has left out, while the feed is paused; what is remembered then.

        RefusedError: rows of the copy are equal under one of them. At once if they are there.
        """
        ...

    def break_off(self) -> None:
        """End an ``add_keys`` that is under way on another thread: it may take as long as an index does."""
        ...

    def hidden(self, plan: LanePlan) -> Callable[[], bool]:
        """A question: may a change of the table that the log has by now still be hidden from a read?"""
        ...

    def built(self, plan: LanePlan) -> str:
        """Which table this is and where it stores its rows: TRUNCATE and rewriting make another of it."""
        ...

    def built_of(self, table: DescribedTable) -> str:
        """The same of another table; also asked before the migration is taken over."""
        ...

    def check_ours(self) -> None:
        """Raises DatabaseUnavailableError where another owner has ended this one's session."""
        ...

    def row_bytes(self, plan: LanePlan) -> int:
        """Of an average row, estimated from some of the rows: statistics may be old, or there may be none yet."""
        ...

    def position(self, plan: LanePlan, feed_id: str) -> Position | None:
        """The feed's position, as its sink has it."""
        ...

    def differing(self, plan: LanePlan, chunk: Chunk) -> list[tuple[str, ...]]:
        """Keys, as text, of rows of the range that differ, or that only one of the two tables has."""
        ...

    def cut_over(self, asked: CutOver) -> None:
        """Put the copy in the table's place, once all that was written to the table is in it, and remember ``reached``.

        Raises FeedBehindError and LockUnavailableError (everything is as before, it can be retried), RefusedError (the
        tables differ, or are not those that were copied). Whatever it raises, ``Server.is_changed`` shows the outcome.
        """
        ...

    def settle(self, plan: LanePlan) -> None:
        """After the cut-over: take away what only the copy needed. At once if that is gone. LockUnavailableError."""
        ...

    def artifacts(self, plan: LanePlan) -> tuple[Artifact, ...]:
        """What exists of the migration at the database now."""
        ...


def key_type(table: DescribedTable, name: str) -> str:
    """The type of a column of the table's key. Raises KeyError."""
    column = table.column(name)
    if column is None:
        raise KeyError(name)
    return column.type


def key_value(change: Change, name: str) -> object:
    """An event's value of a column of the table's key. Raises KeyError."""
    return change.key[name] if name in change.key or change.row is None else change.row[name]


def reached(memory: Memory, offsets: dict[int, int], topic_id: str | None, became: str = "") -> Memory:
    """The memory with what a cut-over knows: see ``Held``."""
    if not memory.after:
        return memory
    before = msgspec.json.decode(memory.after, type=Held)
    held = msgspec.structs.replace(before, reached=offsets, became=became, topic_id=topic_id)
    return msgspec.structs.replace(memory, after=msgspec.json.encode(held).decode())


def too_slow(seconds: float, *, is_on_topic: bool) -> FeedBehindError:
    """The mark before the lock has not come through in time: under the lock it would never come."""
    where = "the copy" if is_on_topic else "the topic"
    return FeedBehindError(
        f"a change takes more than {seconds:g} s (--cutover-threshold) to {where}: the table was not locked"
    )


def not_on_topic() -> LockUnavailableError:
    """Under the lock."""
    return LockUnavailableError(
        "the table's last change has not come to the topic while the table was locked: is the connector behind?"
    )


def not_in_copy() -> LockUnavailableError:
    """Under the lock."""
    return LockUnavailableError("the feed into the copy has not caught up while the table was locked")


def without_mark(partitions: Collection[int]) -> LockUnavailableError:
    """Under the lock: rows that were marked before are gone, or clients hold them."""
    return LockUnavailableError(
        f"no row could be marked whose changes go to partitions {sorted(partitions)} of the topic: they are gone, or "
        "clients hold them"
    )


def check_partitions(marks: Marks, tail: TopicTail, seconds: float) -> None:
    """Under the lock: raises RefusedError if the topic has gained partitions, which the marks do not cover."""
    now = tail.partitions(max(PARTITIONS_SECONDS_MIN, seconds))
    if now != marks.partitions:
        raise RefusedError(
            f"the topic has {len(now)} partitions now, and had {len(marks.partitions)} when the copy was started: the "
            "order of a row's changes is lost. Let the source write to a new topic, and submit the change again. The "
            "table is untouched"
        )


def check_same(before: DescribedTable, built: str, now: DescribedTable | None, now_built: str) -> None:
    """Under the lock: raises RefusedError unless this is the table that was copied, unaltered."""
    if now is None or now_built != built:
        raise RefusedError("the table was truncated or built again since it was copied: submit the change again")
    if now.definition != before.definition:
        raise RefusedError("the table's definition has changed since it was copied: submit the change again")
    if now.obstacles:
        raise RefusedError(f"since the table was copied: {'; '.join(now.obstacles)}. The table is untouched")


def differs_at_rest(keys: list[tuple[str, ...]]) -> RefusedError:
    """Under the lock."""
    return RefusedError(
        f"the copy differs in {len(keys)} rows while nothing changes (key {keys[0]}): the table is unchanged"
    )
