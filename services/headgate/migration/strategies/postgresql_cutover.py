"""The cut-over of an online change at PostgreSQL: the copy takes the table's place once all changes are in it.

The cut-over must know that all changes of the table are on the topic, while it holds the table and nothing more
can be written to it. It asks the server: a temporary replication slot of its own, made before the lock, lists what has
been written to the table since, in the log's order. The last of these has a place in the log (LSN), and Debezium's
event of the same change has the same one. When that event is on the topic, everything is, and the feed's position
behind it says that everything is in the copy. A mark written after the slot was made sees to it that there is a last.
"""

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from msgspec.structs import replace
from psycopg import sql

from headgate.migration.strategies.contract import LockUnavailableError, Memory
from headgate.migration.strategies.lane import (
    CutOver,
    LastChange,
    check_same,
    differs_at_rest,
    not_in_copy,
    not_on_topic,
    reached,
    too_slow,
)
from headgate.migration.strategies.lane_plan import aside_name
from headgate.migration.strategies.postgresql_copy import table_of
from headgate.migration.strategies.postgresql_handover import handed_over
from headgate.migration.strategies.postgresql_lane import PostgresLane, built_as, identity, renamed
from headgate.migration.strategies.postgresql_sessions import named, translating

__all__ = ["PostgresOnline"]

POLL_SECONDS: Final = 0.02
"""Clients wait while the cut-over waits: it looks often."""

_OPERATIONS: Final = {"I": ("c",), "U": ("u", "c"), "D": ("d",)}
"""What pgoutput calls a change → what Debezium calls it. An update of the key is a delete, then a create."""


class PostgresOnline(PostgresLane):
    """The whole of lane.Lane."""

    def cut_over(self, asked: CutOver) -> None:
        """See Lane."""
        _CutOver(self, asked).run()


class _CutOver:
    """One try."""

    def __init__(self, lane: PostgresLane, asked: CutOver) -> None:
        self._lane = lane
        self._asked = asked
        self._plan, self._feed_id, self._tail, self._seconds = asked.plan, asked.feed_id, asked.tail, asked.seconds

    def run(self) -> None:
        plan, server, seconds, hot = self._plan, self._lane.server, self._seconds, self._asked.hot
        held, after = plan.held, plan.plan
        schema, name = held.before.schema, held.before.name
        table, shadow = table_of(held), named(schema, held.shadow)
        with self._slot() as slot:
            self._lane.mark(plan)
            before = self._caught_up(slot)
            if self._asked.is_forced:
                server.end_holders(after)
            with server.sessions.part() as session, translating("the cut-over"), session.transaction():
                session.execute(f"SET LOCAL lock_timeout = {int(seconds * 1000)}")
                session.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
                deadline = time.monotonic() + seconds
                self._check_same(session)
                offset = self._drained(slot, session, deadline, before)
                self._seal(session, offset, deadline)
                if differing := self._lane.among(session, plan, hot) if hot else []:
                    raise differs_at_rest(differing)
                server.claim(session, self._remembered(session, offset))
                for column, _ in plan.dropped:
                    session.execute(sql.SQL("ALTER TABLE {} DROP COLUMN {}").format(shadow, sql.Identifier(column)))
                for now, then in plan.renamed:
                    session.execute(renamed(shadow, now, then))
                for text in handed_over(session, after, server.mark):
                    session.execute(text)
                rename = sql.SQL("ALTER TABLE {} RENAME TO {}")
                session.execute(rename.format(table, sql.Identifier(aside_name(held.shadow))))
                session.execute(rename.format(shadow, sql.Identifier(name)))

    def _remembered(self, session: Any, offset: int | None) -> Memory:
        """With where the changes of the new table begin, and which table that is."""
        held = self._plan.held
        if offset is None and (seen := self._lane.position_in(session, self._plan, self._feed_id)) is not None:
            offset = seen.next_offset
        found = identity(session, replace(held.before, name=held.shadow))
        return reached(self._asked.memory, {} if offset is None else {0: offset}, built_as(found))

    def _check_same(self, session: Any) -> None:
        before = self._plan.held.before
        found = identity(session, before)
        now = self._lane.server.described(session, before.schema, before.name)
        check_same(before, self._asked.built, now, built_as(found))

    @contextmanager
    def _slot(self) -> Iterator["_Slot"]:
        """A replication slot that ends with its session."""
        server = self._lane.server
        with server.sessions.part() as session:
            name = f"headgate_{server.mark}"
            with translating("opening a temporary replication slot"):
                found = identity(session, self._plan.held.before)
                session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', true)", (name,))
            yield _Slot(session, name, self._plan.publication, 0 if found is None else found[0])

    def _caught_up(self, slot: "_Slot") -> int | None:
        """Wait, while nobody is held up, until the mark is in the copy; the offset behind it, None without a mark.

        Raises FeedBehindError: under the lock it would be waited for as long, and in vain.
        """
        deadline = time.monotonic() + self._seconds
        self._flush()
        last = slot.last_change()
        if last is None:
            return None
        offset = self._tail.find(last, self._seconds)
        while offset is not None and time.monotonic() < deadline:
            if self._is_in_copy(self._lane.server.sessions.main, offset + 1):
                return offset + 1
            time.sleep(POLL_SECONDS)
        raise too_slow(self._seconds, is_on_topic=offset is not None)

    def _drained(self, slot: "_Slot", session: Any, deadline: float, before: int | None) -> int | None:
        """The first offset behind the table's last change; None if the table is empty, and was when it was marked.

        ``before`` is the offset behind the last change that was found before the lock.
        """
        self._flush()
        last = slot.last_change()
        if last is None and before is not None:
            return before
        if last is None:
            if _is_empty(session, table_of(self._plan.held)):
                return None
            raise LockUnavailableError("clients held every row of the table, so that no mark could be set")
        offset = self._tail.find(last, max(0.0, deadline - time.monotonic()))
        if offset is None:
            raise not_on_topic()
        return offset + 1

    def _flush(self) -> None:
        """What is not on the disk is not decoded: a commit that waits for the disk takes all before it along."""
        server = self._lane.server
        main = server.sessions.main
        with translating("waiting for the disk"), main.transaction():
            main.execute("SET LOCAL synchronous_commit = 'local'")
            main.execute("UPDATE headgate.migration SET stage = stage WHERE id = %s", (server.migration,))

    def _seal(self, session: Any, reached: int | None, deadline: float) -> None:
        """Close the feed's position, once all up to ``reached`` is in the copy: it writes nothing there any more."""
        while not self._is_in_copy(session, reached):
            if time.monotonic() >= deadline:
                raise not_in_copy()
            time.sleep(POLL_SECONDS)
        session.execute(
            "UPDATE headgate.progress SET closed = true, updated_at = clock_timestamp() WHERE feed_id = %s AND "
            "table_name = %s",
            (self._feed_id, f"{self._plan.held.before.schema}.{self._plan.held.shadow}"),
        )

    def _is_in_copy(self, session: Any, reached: int | None) -> bool:
        if reached is None:
            return _is_empty(session, named(self._plan.held.before.schema, self._plan.held.shadow))
        seen = self._lane.position_in(session, self._plan, self._feed_id)
        return seen is not None and seen.next_offset >= reached


class _Slot:
    """What has been written to one table since the slot was opened."""

    def __init__(self, session: Any, name: str, publication: str, oid: int) -> None:
        self._session = session
        self._oid = oid
        self._statement = (
            "SELECT lsn - '0/0'::pg_lsn, data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', "
            "'1', 'publication_names', %s)"
        )
        self._arguments = (name, sql.Identifier(publication).as_string(session))

    def last_change(self) -> LastChange | None:
        """The last one since this was asked before, in the order of commits; None if there is none."""
        with translating("reading the table's last changes"):
            rows = self._session.execute(self._statement, self._arguments).fetchall()
        last = None
        for lsn, data in rows:
            kind = chr(data[0])
            if kind in _OPERATIONS and struct.unpack_from(">I", data, 1)[0] == self._oid:
                last = LastChange(_OPERATIONS[kind], lsn=int(lsn))
        return last


def _is_empty(session: Any, table: sql.Composable) -> bool:
    return session.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(table)).fetchone() is None
