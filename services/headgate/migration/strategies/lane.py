"""What strategy ``online`` asks of a kind of database, besides ``contract.Server``: the same steps run on every one.

A *mark* is a change of one row that leaves the row as it is: the server logs it, and the capturing connector sends it
like any change. It shows that changes come through, and, under the table's lock, which one is the last.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from headgate.migration.core.copy_steps import Position
from headgate.migration.strategies.contract import Chunk, LockUnavailableError, Memory, RefusedError, Table
from headgate.migration.strategies.lane_plan import LanePlan
from headgate.migration.strategies.statement import Statement
from headgate.records.migration import Artifact
from headgate.sources.origin import Origin

__all__ = [
    "HOT_KEYS_MAX",
    "CutOver",
    "FeedBehindError",
    "Held",
    "Lane",
    "LastChange",
    "Target",
    "TopicTail",
    "check_same",
    "differs_at_rest",
    "not_in_copy",
    "not_on_topic",
    "reached",
    "too_slow",
]

HOT_KEYS_MAX: Final = 1_000
"""Rows that are compared while the table is locked; so many take some ten milliseconds."""


class FeedBehindError(Exception):
    """Clients would have had to wait for longer than they may, so nothing was locked. It passes by itself."""


class LastChange(msgspec.Struct, frozen=True):
    """A change of a table in the server's log, as Debezium's events name it: by LSN (PostgreSQL) or GTID (MariaDB).

    ``operations``: what Debezium may call it. ``places``: at so many places of the log are changes that fit; it is the
    last of these.
    """

    operations: tuple[str, ...]
    lsn: int | None = None
    gtid: str | None = None
    places: int = 1


class TopicTail(Protocol):
    """The end of the table's topic."""

    def find(self, change: LastChange, seconds: float) -> int | None:
        """The offset of that change's event; None if it has not come within the time."""
        ...


class Target(NamedTuple):
    """Where a feed writes: a kind of sink, and the address as it takes it."""

    sink: str
    dsn: str


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the database remembers beside the plan.

    ``position`` and ``built``: where the feed stood, and what the table was, before the first row was read. ``reached``
    is written by a cut-over: partition → the offset behind the last change of the table before, where the changes of
    the table that takes its place begin. ``became``: what that table was then, as ``built`` says it.
    """

    position: Position
    built: str
    reached: dict[int, int] = {}
    became: str = ""


class CutOver(NamedTuple):
    """One try. ``seconds``: how long clients may wait for the table.

    ``built`` is what the table was when it was copied. ``hot``: rows that were never seen equal while both changed;
    they are compared under the lock, where nothing changes.
    """

    plan: LanePlan
    memory: Memory
    feed_id: str
    tail: TopicTail
    seconds: float
    built: str
    hot: list[tuple[str, ...]]
    is_forced: bool


class Lane(Protocol):
    """One migration's table and its copy. Methods raise what ``contract.Server``'s do."""

    def primary(self, table: Table) -> tuple[str, ...]:
        """Columns of the primary key; empty if there is none."""
        ...

    def capture(self, table: Table) -> str:
        """The publication that has the table, where there are such. RefusedError: changes cannot be followed."""
        ...

    def origins(self, table: Table) -> tuple[Origin, ...]:
        """What events of the table may say of where they come from."""
        ...

    def target(self) -> Target:
        """Where the feed into the copy writes."""
        ...

    def make(self, statement: Statement, plan: LanePlan, memory: Memory, lock_seconds: float) -> Memory:
        """The copy, empty, with columns called as the table's; what an earlier attempt has left is dropped first."""
        ...

    def is_made(self, plan: LanePlan, memory: Memory) -> bool:
        """Whether ``make`` has come to its end, and the copy is still there."""
        ...

    def take(self, plan: LanePlan, memory: Memory, lock_seconds: float) -> Memory:
        """Make the table before, which is there with its rows, the copy. RefusedError: nothing is lost."""
        ...

    def hold_form(self, plan: LanePlan) -> None:
        """See to it that the copy's columns are called as the table's: a cut-over may have been broken off."""
        ...

    def mark(self, plan: LanePlan) -> tuple[str, ...] | None:
        """Set a mark; the row's key as text, None if there was no row to be had."""
        ...

    def has(self, plan: LanePlan, key: tuple[str, ...]) -> bool:
        """Whether the copy has the row."""
        ...

    def hidden(self, plan: LanePlan) -> Callable[[], bool]:
        """A question: may a change of the table that the log has by now still be hidden from a read?"""
        ...

    def built(self, plan: LanePlan) -> str:
        """Which table this is and where it stores its rows: TRUNCATE and rewriting make another of it."""
        ...

    def built_of(self, table: Table) -> str:
        """The same of a table that this is not about; asked before the migration is taken over, too."""
        ...

    def check_ours(self) -> None:
        """Raises DatabaseUnavailableError where another owner has ended this one's session."""
        ...

    def row_bytes(self, plan: LanePlan) -> int:
        """Of an average row, as some of the rows tell: statistics may be old, or there may be none yet."""
        ...

    def position(self, plan: LanePlan, feed_id: str) -> Position | None:
        """Where the feed stands, as its sink has it."""
        ...

    def differing(self, plan: LanePlan, chunk: Chunk) -> list[tuple[str, ...]]:
        """Keys, as text, of rows of the range that differ, or that only one of the two tables has."""
        ...

    def still_differing(self, plan: LanePlan, keys: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Those of ``keys`` whose rows differ now."""
        ...

    def cut_over(self, asked: CutOver) -> None:
        """Put the copy in the table's place, once all that was written to the table is in it, and remember ``reached``.

        Raises FeedBehindError (nothing was locked), LockUnavailableError (everything is as before, it can be tried
        again), RefusedError (the tables differ). Whatever it raises, ``Server.is_changed`` tells what became of it.
        """
        ...

    def artifacts(self, plan: LanePlan) -> tuple[Artifact, ...]:
        """What of the migration stands at the database now."""
        ...


def reached(memory: Memory, offsets: dict[int, int], became: str = "") -> Memory:
    """The memory with what a cut-over knows: see ``Held``."""
    if not memory.after:
        return memory
    held = msgspec.structs.replace(msgspec.json.decode(memory.after, type=Held), reached=offsets, became=became)
    return msgspec.structs.replace(memory, after=msgspec.json.encode(held).decode())


def too_slow(seconds: float, *, is_on_topic: bool) -> FeedBehindError:
    """The mark before the lock has not come through in time: under the lock it would be waited for in vain."""
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


def check_same(before: Table, built: str, now: Table | None, now_built: str) -> None:
    """Under the lock: raises RefusedError unless this is the table that was copied, unaltered."""
    if now is None or now_built != built:
        raise RefusedError("the table was truncated or built anew since it was copied: submit the change again")
    if now.definition != before.definition:
        raise RefusedError("the table's definition has changed since it was copied: submit the change again")


def differs_at_rest(keys: list[tuple[str, ...]]) -> RefusedError:
    """Under the lock."""
    return RefusedError(
        f"the copy differs in {len(keys)} rows while nothing changes (key {keys[0]}): the table is untouched"
    )
