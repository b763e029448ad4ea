"""The fence's tables in schema ``headgate``: SQL that is the same in every kind of database, and the rows' types.

``progress`` has one row per (cluster, feed, table, topic, partition): the epoch of the last claim, whether it is
closed, and the next offset to apply. ``removed`` has feeds that must not come back, and ``source_tables`` the source
table that a topic's events are of. Made when they are first needed are ``row_copies``, which has how far a whole table
is copied, and ``known_columns``, which has what is known of a table's columns where Headgate alters tables.
What a row allows and refuses is decided in sinks/fence.py. Here, and in each database's ``progress``, are the
statements: nothing else in Headgate names these tables in SQL, except databases/own_schema.py, which removes all of
them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Final, Protocol

import msgspec

from headgate.records.control import Epoch, Positions
from headgate.records.identifiers import namesake
from headgate.records.slices import slice_of, whole_table
from headgate.records.taken_tables import overlapping

__all__ = [
    "FEED", "MINE", "ClaimedRows", "Execute", "FeedKey", "FeedRow", "Moves", "ProgressRow", "ProgressTables",
    "Statements", "Values", "values_of", "values_of_feed",
]  # fmt: skip

Execute = Callable[[str, tuple[object, ...]], list[tuple[Any, ...]]]
"""Runs a statement and returns its rows."""

Values = dict[str, object]
"""Of a statement's ``%(name)s``."""

Moves = Mapping[int, tuple[int, int]]
"""Partition → (the position it must be at, the next one)."""

FEED = "cluster_id = %(cluster)s AND feed_id = %(feed_id)s"
MINE = f"{FEED} AND table_name = %(table)s AND topic = %(topic)s"

_MADE_LATE: Final = ("row_copies", "known_columns")
"""Tables that are made when they are first needed."""


class Statements(Protocol):
    """A session, as far as this needs one. Its methods raise the driver's errors."""

    def execute(self, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        ...

    def count(self, statement: str, parameters: Any = None) -> int:
        """Run a statement and return how many rows it found."""
        ...

    def transaction(self) -> AbstractContextManager[object]:
        """Commit all of what is run inside, or nothing."""
        ...


class FeedRow(msgspec.Struct, frozen=True):
    """How far a feed is in one partition of a table's topic."""

    partition: int
    next_offset: int
    closed: bool
    topic_id: str | None


class ProgressRow(msgspec.Struct, frozen=True):
    """One row of ``progress`` besides its key."""

    epoch: Epoch
    incarnation: int
    next_offset: int
    closed: bool
    topic_id: str | None


class FeedKey(msgspec.Struct, frozen=True):
    """A feed, and its name for people. ``holder``, where a database needs it: what the rows that it locks contain."""

    cluster_id: str
    feed_id: str
    feed: str
    holder: str = ""


class ClaimedRows(msgspec.Struct, frozen=True):
    """The rows that one claim is about, and what it writes into them. ``start``: offsets of rows that are missing."""

    feed: FeedKey
    table: str
    topic: str
    topic_id: str | None
    epoch: Epoch
    incarnation: int
    start: Positions


class ProgressTables(ABC):
    """The statements, over one session."""

    PARTITION: ClassVar[str]
    """What the partition's column is called."""
    THESE: ClassVar[str]
    """Condition for the rows of ``%(partitions)s``, besides MINE."""
    NOW: ClassVar[str]
    BYTEWISE: ClassVar[str]
    """What makes a comparison of ``table_name`` one of bytes."""
    REMEMBER_REMOVED: ClassVar[str]
    """Statement that adds a feed to ``removed``, if it is not there."""

    def __init__(self, session: Statements) -> None:
        self.session = session

    # --- what each kind of database brings ---

    @abstractmethod
    def has(self, table: str) -> bool:
        """Whether ``headgate.<table>`` exists."""

    @abstractmethod
    def create(self) -> None:
        """Create what is missing; two sessions may do so at once. Outside of any transaction."""

    @abstractmethod
    def limit_wait(self, seconds: float) -> None:
        """No statement of this transaction waits longer for a lock."""

    @abstractmethod
    def hold_table(self, feed: FeedKey, table: str) -> None:
        """Until the transaction's end no other session holds ``table``, which may be a slice.

        Which names a claim holds is decided in sinks/relational/progress.py.
        """

    @abstractmethod
    def read_locked(self, rows: ClaimedRows) -> dict[int, ProgressRow]:
        """``read``, with a lock on the rows until the transaction's end."""

    @abstractmethod
    def raise_to(self, rows: ClaimedRows) -> None:
        """Create or raise the rows to the claim's epoch, open. A higher incarnation starts over, and none goes back."""

    @abstractmethod
    def move(self, rows: ClaimedRows, moves: Moves) -> int:
        """Move what is where it must be, under the open epoch; how many rows. Locks in the order of partitions."""

    @abstractmethod
    def create_row_copies(self) -> None:
        """Create the table of marks, if it is not there: it is made by the first copy of a whole table."""

    @abstractmethod
    def store_copy_mark(self, rows: ClaimedRows, request: str, mark: str) -> None:
        """Keep the mark of a request, instead of that of any other one for this table."""

    @abstractmethod
    def create_known_columns(self) -> None:
        """Create the table of known columns, if it is not there."""

    @abstractmethod
    def lock_known_columns(self, rows: ClaimedRows, empty: str) -> None:
        """Lock the row of known columns until the transaction's end; it is made with ``empty``, if there is none."""

    @abstractmethod
    def store_source_table(self, rows: ClaimedRows, text: str) -> str:
        """Keep ``text``, unless this incarnation has one; what is there now."""

    # --- what is the same ---

    def copy_mark(self, rows: ClaimedRows, request: str) -> str | None:
        """What is kept of the request to copy the claim's table."""
        if not self.has("row_copies"):
            return None
        found = self.session.execute(
            f"SELECT mark FROM headgate.row_copies WHERE {MINE} AND request = %(request)s",
            values_of(rows) | {"request": request},
        )
        return str(found[0][0]) if found else None

    def known_columns(self, rows: ClaimedRows, *, is_locked: bool = False) -> tuple[int, str] | None:
        """The incarnation in which something was kept of the table's columns last, and what.

        ``is_locked``: by this session.
        """
        if not is_locked and not self.has("known_columns"):
            return None
        found = self.session.execute(
            f"SELECT incarnation, known FROM headgate.known_columns WHERE {MINE}"
            f"{' FOR UPDATE' if is_locked else ''}",  # not as an older snapshot of the transaction has it
            values_of(rows),
        )
        return (int(found[0][0]), str(found[0][1])) if found else None

    def store_known_columns(self, rows: ClaimedRows, known: str) -> None:
        """Replace what is kept of the table's columns, under the lock."""
        self.session.execute(
            f"UPDATE headgate.known_columns SET known = %(known)s, incarnation = %(incarnation)s WHERE {MINE} "
            "AND incarnation <= %(incarnation)s",
            values_of(rows) | {"known": known},
        )

    def read(self, rows: ClaimedRows, partitions: Sequence[int] | None = None) -> dict[int, ProgressRow]:
        """The rows of ``partitions``, of the claim's own by default."""
        return self._read(rows, partitions)

    def _read(
        self, rows: ClaimedRows, partitions: Sequence[int] | None = None, suffix: str = ""
    ) -> dict[int, ProgressRow]:
        found = self.session.execute(
            f"SELECT {self.PARTITION}, owner_rev, n, incarnation, next_offset, closed, topic_id FROM headgate.progress "
            f"WHERE {MINE} AND {self.THESE} ORDER BY {self.PARTITION} {suffix}",
            values_of(rows, partitions),
        )
        return {
            int(partition): ProgressRow(Epoch(owner_rev, n), incarnation, next_offset, bool(closed), topic_id)
            for partition, owner_rev, n, incarnation, next_offset, closed, topic_id in found
        }

    def has_rows(self, rows: ClaimedRows) -> bool:
        """Whether there is any row of the table and the topic, whatever its partition."""
        return bool(self.session.execute(f"SELECT 1 FROM headgate.progress WHERE {MINE} LIMIT 1", values_of(rows)))

    def partitions(self, rows: ClaimedRows) -> frozenset[int]:
        """Every partition of the table and the topic that there is a row of."""
        found = self.session.execute(f"SELECT {self.PARTITION} FROM headgate.progress WHERE {MINE}", values_of(rows))
        return frozenset(int(partition) for (partition,) in found)

    def rename(self, rows: ClaimedRows, old: str) -> None:
        """Move the feed's rows of that topic from the table named ``old`` to the claim's."""
        made_late = [kept for kept in _MADE_LATE if self.has(kept)]
        for kept in ("progress", "source_tables", *made_late):
            self.session.execute(
                f"UPDATE headgate.{kept} SET table_name = %(table)s "
                f"WHERE {FEED} AND table_name = %(old)s AND topic = %(topic)s",
                values_of(rows) | {"old": old},
            )

    def close(self, rows: ClaimedRows) -> None:
        """Close the rows that are open under the claim's epoch."""
        self.session.execute(
            f"UPDATE headgate.progress SET closed = TRUE, updated_at = {self.NOW} WHERE {MINE} AND {self.THESE} "
            "AND owner_rev = %(owner_rev)s AND n = %(n)s AND NOT closed",
            values_of(rows),
        )

    def open_elsewhere(self, feed: FeedKey, table: str) -> list[FeedKey]:
        """Other feeds, and feeds of other clusters, that hold rows of the table open."""
        found = self.session.execute(
            f"SELECT DISTINCT cluster_id, feed_id, feed, table_name FROM headgate.progress WHERE {self._of_whole} "
            "AND NOT closed AND (cluster_id <> %(cluster)s OR feed_id <> %(feed_id)s) ORDER BY cluster_id, feed_id",
            values_of_feed(feed) | _names_of(table),
        )
        others = [FeedKey(*row[:3]) for row in found if overlapping(str(row[3]), table)]
        return list(dict.fromkeys(others))

    def open_beside(self, rows: ClaimedRows) -> str | None:
        """The topic of another source of the claim's feed that holds rows of the claim's table open.

        Only where one of both has a slice. Two sources, also of one topic, may name the table in two ways, so that only
        its one spelling shows that they write the same rows.
        """
        found = self.session.execute(
            f"SELECT DISTINCT topic, table_name FROM headgate.progress WHERE {FEED} AND {self._of_whole} "
            "AND NOT closed AND (topic <> %(topic)s OR table_name <> %(table)s) ORDER BY topic",
            values_of(rows) | _names_of(rows.table),
        )
        is_slice = slice_of(rows.table) is not None
        return next(
            (
                str(topic)
                for topic, name in found
                if (is_slice or slice_of(str(name)) is not None) and overlapping(str(name), rows.table)
            ),
            None,
        )

    def has_other_slices(self, rows: ClaimedRows) -> bool:
        """Whether another slice of the claim's table was claimed, when the table must have existed.

        By this feed in the claim's incarnation, or by another feed. The whole table counts, too, but not another
        one that older versions stored under the slice's name.
        """
        found = self.session.execute(
            f"SELECT DISTINCT table_name FROM headgate.progress WHERE {self._of_whole} AND table_name <> %(table)s "
            f"AND (incarnation >= %(incarnation)s OR NOT ({FEED}))",
            values_of(rows) | _names_of(rows.table),
        )
        return any(whole_table(str(name)) == whole_table(rows.table) for (name,) in found)

    @property
    def _of_whole(self) -> str:
        """Condition for the names of a table and of its slices, and for those that older versions may have stored."""
        name = f"table_name{self.BYTEWISE}"
        others = "%(whole)s, %(namesake)s, %(namesake_of_whole)s"
        return f"({name} IN ({others}) OR ({name} >= %(first)s AND {name} < %(behind)s))"

    def removed_at(self, feed: FeedKey) -> object | None:
        """When the feed was removed, as the database gives it; None if it was not."""
        found = self.session.execute(f"SELECT removed_at FROM headgate.removed WHERE {FEED}", values_of_feed(feed))
        return found[0][0] if found else None

    def source_table(self, rows: ClaimedRows) -> str | None:
        """What is kept of the topic's source table under the claim's incarnation."""
        found = self.session.execute(
            f"SELECT source_table FROM headgate.source_tables WHERE {MINE} AND incarnation = %(incarnation)s",
            values_of(rows),
        )
        return str(found[0][0]) if found else None

    def tables_of(self, feed: FeedKey) -> list[str]:
        """Tables that the feed has rows of, in order."""
        found = self.session.execute(
            f"SELECT DISTINCT table_name FROM headgate.progress WHERE {FEED} ORDER BY table_name", values_of_feed(feed)
        )
        return [str(table) for (table,) in found]

    def lock_feed(self, feed: FeedKey) -> list[tuple[str, bool]]:
        """Lock all of a feed's rows: of each its table, and whether it is closed."""
        found = self.session.execute(
            f"SELECT table_name, closed FROM headgate.progress WHERE {FEED} "
            f"ORDER BY table_name, topic, {self.PARTITION} FOR UPDATE",
            values_of_feed(feed),
        )
        return [(str(table), bool(closed)) for table, closed in found]

    def forget(self, feed: FeedKey) -> None:
        """Delete a feed's rows, and remember that it was removed."""
        mine = values_of_feed(feed)
        self.session.execute(f"DELETE FROM headgate.progress WHERE {FEED}", mine)
        self.session.execute(f"DELETE FROM headgate.source_tables WHERE {FEED}", mine)
        for made_late in _MADE_LATE:
            if self.has(made_late):
                self.session.execute(f"DELETE FROM headgate.{made_late} WHERE {FEED}", mine)
        self.session.execute(self.REMEMBER_REMOVED, mine)


def _names_of(table: str) -> Values:
    """Names of the whole table, and of its slices: those from ``first`` to before ``behind``, by their bytes.

    And names under which older versions stored what is one of them.
    """
    whole = whole_table(table)
    stored = {"namesake": namesake(table) or whole, "namesake_of_whole": namesake(whole) or whole}
    return {"whole": whole, "first": f"{whole}@", "behind": f"{whole}A", **stored}


def values_of_feed(feed: FeedKey) -> Values:
    """What statements need to know of a feed."""
    return {"cluster": feed.cluster_id, "feed_id": feed.feed_id, "feed": feed.feed, "holder": feed.holder}


def values_of(rows: ClaimedRows, partitions: Sequence[int] | None = None) -> Values:
    """What statements need to know of a claim; its ``partitions``, if they are not all."""
    return values_of_feed(rows.feed) | {
        "table": rows.table,
        "topic": rows.topic,
        "topic_id": rows.topic_id,
        "owner_rev": rows.epoch.owner_rev,
        "n": rows.epoch.n,
        "incarnation": rows.incarnation,
        "partitions": sorted(rows.start if partitions is None else partitions),
    }
