"""The cut-over of an online change at PostgreSQL: the copy takes the table's place once all changes are in it.

The cut-over must know that all changes of the table are on the topic, while it holds the table and nothing more
can be written to it. It asks the server: a temporary replication slot of its own, made before the lock, lists what has
been written to the table since, in the log's order. Each of these has a place in the log (LSN), and Debezium's event of
the same change has the same one. When all these events are on the topic, and one of them in every partition, everything
is: what is older than the slot comes before them in its partition. Marks set after the slot was made ensure that there
is one in every partition. The feed's position behind all of them shows that everything is in the copy.
"""

import itertools
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from headgate.databases.postgresql import sql
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.errors import PostgresError
from headgate.databases.postgresql.progress import close_feed
from headgate.databases.postgresql.session import PostgresSession
from headgate.migration.strategies.contract import Memory
from headgate.migration.strategies.online.lane import (
    LOCK_SHARE,
    CutOver,
    FeedBehindError,
    LastChange,
    check_partitions,
    check_same,
    differs_at_rest,
    not_in_copy,
    not_on_topic,
    reached,
    too_slow,
    without_mark,
)
from headgate.migration.strategies.online.lane_plan import aside_name
from headgate.migration.strategies.postgresql.capture import check_published, pick_publication
from headgate.migration.strategies.postgresql.copy import table_of
from headgate.migration.strategies.postgresql.fingerprint import check_changed, facts_of
from headgate.migration.strategies.postgresql.handover import hand_over
from headgate.migration.strategies.postgresql.lane import (
    PostgresLane,
    built_as,
    check_needed,
    identity,
    is_empty,
    renamed,
)
from headgate.migration.strategies.postgresql.sessions import named, translating

__all__ = ["PostgresOnline", "open_slot", "slot_name"]

POLL_SECONDS: Final = 0.02
"""Clients wait while the cut-over waits, so it polls often."""

SLOT_EXISTS: Final = "42710"
"""The server's code for a slot, or another object, of this name."""

SLOT_SECONDS_MAX: Final = 10.0
"""For a former try's session to end, which the server does behind the client's back. No client waits for it."""

_FORMS: Final = {"I": (("c",),), "U": (("u",), ("d", "c")), "D": (("d",),)}
"""What pgoutput calls a change → what Debezium makes of it. An update of the key is a delete, then a create."""


class PostgresOnline(PostgresLane):
    """The whole of lane.Lane."""

    def cut_over(self, asked: CutOver) -> None:
        """See Lane."""
        _CutOver(self, asked).run()


def slot_name(session: BoundedConnection, mark: str) -> str:
    """What a cut-over's slot is called. Slots are the server's, and ids may be the same at two of its databases."""
    found = session.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchall()
    return f"headgate_{mark}_{found[0][0]}"


def open_slot(session: BoundedConnection, name: str) -> None:
    """Create a slot that ends with the session. That of a former try has the name, and may end just now.

    Raises PostgresError.
    """
    deadline = time.monotonic() + SLOT_SECONDS_MAX
    while True:
        try:
            session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', true)", (name,))
        except PostgresError as error:
            if error.sqlstate != SLOT_EXISTS or time.monotonic() >= deadline:
                raise
        else:
            return
        time.sleep(POLL_SECONDS)


def _wait_at_most(session: BoundedConnection, seconds: float) -> None:
    """For any lock of this transaction. No time would mean no limit, so a moment is left in any case."""
    session.execute(f"SET LOCAL lock_timeout = {max(1, int(seconds * 1000))}")


class _CutOver:
    """One try. Clients wait from ``deadline - seconds`` on: the lock is part of their time."""

    def __init__(self, lane: PostgresLane, asked: CutOver) -> None:
        self._lane = lane
        self._asked = asked
        self._plan, self._feed_id, self._tail, self._seconds = asked.plan, asked.feed_id, asked.tail, asked.seconds
        self._publication = ""
        """One that has the table, picked at each try: that of the submission may have been replaced since."""
        self._reached: dict[int, int] = {}
        """Partition → offset behind all that is known to be there."""

    def run(self) -> None:
        plan, server, seconds = self._plan, self._lane.server, self._seconds
        held, after = plan.held, plan.plan
        schema, name = held.before.schema, held.before.name
        table, shadow = table_of(held), named(schema, held.shadow)
        with self._slot() as slot:
            self._catch_up(slot)
            self._asked.touched.compare(self._reached, seconds)
            if self._asked.is_forced:
                server.end_holders(after)
            with server.sessions.part() as session, translating("the cut-over"), session.transaction():
                _wait_at_most(session, seconds * LOCK_SHARE)
                deadline = time.monotonic() + seconds
                session.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
                self._check_same(session)
                self._drain(slot, session, deadline)
                check_partitions(self._asked.marks, self._tail, deadline - time.monotonic())
                self._seal(session, deadline)
                keys = self._asked.touched.keys(self._reached, max(0.0, deadline - time.monotonic()))
                if differing := self._lane.among(session, plan, keys) if keys else []:
                    raise differs_at_rest(differing)
                _wait_at_most(session, deadline - time.monotonic())
                before = facts_of(session, table)
                server.claim(session, self._remembered(session))
                if plan.row_key:
                    session.execute(sql.SQL("DROP INDEX {}").format(named(schema, plan.row_key)))
                    session.execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY DEFAULT").format(shadow))
                for column, _ in plan.dropped:
                    session.execute(sql.SQL("ALTER TABLE {} DROP COLUMN {}").format(shadow, sql.Identifier(column)))
                for now, then in plan.renamed:
                    session.execute(renamed(shadow, now, then))
                restarted = () if plan.change is None else plan.change.restarted
                hand_over(session, after, server.mark, plan.wanted_names, restarted)
                rename = sql.SQL("ALTER TABLE {} RENAME TO {}")
                session.execute(rename.format(table, sql.Identifier(aside_name(held.shadow))))
                session.execute(rename.format(shadow, sql.Identifier(name)))
                check_changed(before, facts_of(session, table), plan.change, dict(after.pairs))

    def _remembered(self, session: BoundedConnection) -> Memory:
        """With where the changes of the new table begin, and which table that is."""
        held, offsets, topic_id = self._plan.held, self._reached, self._tail.topic_id
        if self._missing():
            seen = self._lane.position_in(session, self._plan, self._feed_id)
            offsets, topic_id = ({}, None) if seen is None else (seen.offsets, seen.topic_id)
        found = identity(session, replace(held.before, name=held.shadow))
        return reached(self._asked.memory, offsets, topic_id, built_as(found))

    def _check_same(self, session: BoundedConnection) -> None:
        before = self._plan.held.before
        found = identity(session, before)
        now = self._lane.server.described(session, before.schema, before.name)
        check_same(before, self._asked.built, now, built_as(found))
        check_published(session, before, self._publication)
        check_needed(session, self._plan.plan, is_back=self._plan.is_back)

    @contextmanager
    def _slot(self) -> Iterator["_Slot"]:
        """A replication slot that ends with its session."""
        server = self._lane.server
        with server.sessions.part() as session:
            with translating("asking how the table is captured"):
                self._publication = pick_publication(session, self._plan.held.before)
                check_needed(session, self._plan.plan, is_back=self._plan.is_back)
            with translating("opening a temporary replication slot"):
                name = slot_name(session, server.mark)
                found = identity(session, self._plan.held.before)
                open_slot(session, name)
            yield _Slot(session, name, self._publication, 0 if found is None else found[0])

    def _catch_up(self, slot: "_Slot") -> None:
        """Wait, while no client is held up, until marks are in the copy.

        Raises FeedBehindError: under the lock it would be waited for as long, without success.
        """
        deadline = time.monotonic() + self._seconds
        marked = self._asked.marks.set(self._tail, self._seconds)
        self._flush()
        if marked.is_late or not self._find(slot, deadline):
            raise too_slow(self._seconds, is_on_topic=False)
        main = self._lane.server.sessions.main
        if missing := self._missing():
            self._check_same(main)  # the copy of a table that was truncated would never come
            if not is_empty(main, table_of(self._plan.held)):
                raise FeedBehindError(str(without_mark(missing)))
        while not self._is_in_copy(main):
            if time.monotonic() >= deadline:
                raise too_slow(self._seconds, is_on_topic=True)
            time.sleep(POLL_SECONDS)

    def _find(self, slot: "_Slot", deadline: float) -> bool:
        """See on the topic all that the slot lists since it was asked before; whether it was there in time."""
        found = self._tail.find(slot.changes(), max(0.0, deadline - time.monotonic()))
        for place in itertools.chain.from_iterable(found):
            self._reached[place.partition] = max(place.offset + 1, self._reached.get(place.partition, 0))
        return all(found)

    def _drain(self, slot: "_Slot", session: BoundedConnection, deadline: float) -> None:
        """Return when all that was ever written to the table is on the topic: below ``_reached``."""
        self._flush()
        if not self._find(slot, deadline):
            raise not_on_topic()
        if (missing := self._missing()) and not is_empty(session, table_of(self._plan.held)):
            raise without_mark(missing)

    def _missing(self) -> frozenset[int]:
        """Partitions in which nothing was seen."""
        return self._asked.marks.partitions - set(self._reached)

    def _flush(self) -> None:
        """What is not on the disk is not decoded: a commit that waits for the disk takes all before it along."""
        server = self._lane.server
        main = server.sessions.main
        with translating("waiting for the disk"), main.transaction():
            main.execute("SET LOCAL synchronous_commit = 'local'")
            main.execute("UPDATE headgate.migration SET stage = stage WHERE id = %s", (server.migration,))

    def _seal(self, session: BoundedConnection, deadline: float) -> None:
        """Close the feed's positions, once all is in the copy: it writes nothing there any more."""
        while not self._is_in_copy(session):
            if time.monotonic() >= deadline:
                raise not_in_copy()
            time.sleep(POLL_SECONDS)
        table = f"{self._plan.held.before.schema}.{self._plan.held.shadow}"
        close_feed(PostgresSession(session).execute, self._feed_id, table)
        if self._is_in_copy(session):
            return
        raise not_in_copy()

    def _is_in_copy(self, session: BoundedConnection) -> bool:
        """Without a mark in every partition the table is empty, and so must be the copy."""
        if self._missing():
            return is_empty(session, named(self._plan.held.before.schema, self._plan.held.shadow))
        seen = self._lane.position_in(session, self._plan, self._feed_id)
        return seen is not None and not seen.is_behind(self._reached, self._tail.topic_id)


class _Slot:
    """What has been written to one table since the slot was opened."""

    def __init__(self, session: BoundedConnection, name: str, publication: str, oid: int) -> None:
        self._session = session
        self._oid = oid
        self._statement = (
            "SELECT lsn - '0/0'::pg_lsn, data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', "
            "'1', 'publication_names', %s)"
        )
        self._arguments = (name, sql.Identifier(publication).as_string(session))

    def changes(self) -> list[LastChange]:
        """Those since this was asked before, in the order of commits."""
        with translating("reading the table's last changes"):
            rows = self._session.execute(self._statement, self._arguments).fetchall()
        found = []
        for lsn, data in rows:
            kind = chr(data[0])
            if kind in _FORMS and struct.unpack_from(">I", data, 1)[0] == self._oid:
                found.append(LastChange(_FORMS[kind], lsn=int(lsn)))
        return found
