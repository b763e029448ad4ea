"""The cut-over of an online change at MariaDB: the copy takes the table's place once all changes are in it.

One session locks the table, and a sentry (swap.py), but not the copy: the feed continues to write there. Under the lock
that same session sets a mark, which is the table's last change, whatever came before; in each partition of the topic,
if there are several. When the marks' second events are on the topic, everything is, and the feed's position behind them
shows that everything is in the copy. Then the copy's columns get their final names, and a second session waits with the
rename.

The order matters: the rename takes a lock on the copy as well, so it is asked for when the feed has nothing to write.
"""

import time
from typing import Final

from msgspec.structs import replace

from headgate.databases.mysql.key_ranges import among
from headgate.databases.mysql.sql import quoted
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.fingerprint import check_became, wanted
from headgate.migration.strategies.mariadb.converted import Side, converted_side, make_room
from headgate.migration.strategies.mariadb.fingerprint import ASPECTS, facts_of, without_key
from headgate.migration.strategies.mariadb.lane import MariadbLane, differing_keys, prepare, to_final_form
from headgate.migration.strategies.mariadb.mark import set_mark
from headgate.migration.strategies.mariadb.sessions import Session
from headgate.migration.strategies.mariadb.text import inserts, row_text, settings, texts
from headgate.migration.strategies.online.lane import (
    CutOver,
    FeedBehindError,
    Mark,
    check_partitions,
    check_same,
    differs_at_rest,
    not_in_copy,
    not_on_topic,
    reached,
    too_slow,
    without_mark,
)

__all__ = ["MariadbOnline"]

POLL_SECONDS: Final = 0.02
"""Clients wait while the cut-over waits, so it polls often."""

_COMPARED: Final = "`headgate`.`headgate_hot`"
"""Rows of the copy, in a temporary table of the session that has the table locked: it may read no other."""


class MariadbOnline(MariadbLane):
    """The whole of lane.Lane."""

    def cut_over(self, asked: CutOver) -> None:
        """See Lane."""
        _CutOver(self, asked).run()


class _CutOver:
    """One try."""

    def __init__(self, lane: MariadbLane, asked: CutOver) -> None:
        self._lane = lane
        self._asked = asked
        self._plan, self._seconds, self._memory = asked.plan, asked.seconds, asked.memory
        held = asked.plan.held
        self._table, self._shadow = (quoted(held.before.schema, name) for name in (held.before.name, held.shadow))
        self._key = [old for old, _ in held.key]
        self._offsets: dict[int, int] = {}
        """Behind the table's last changes, once it is locked."""

    def run(self) -> None:
        server = self._lane.server
        self._lane.hold_form(self._plan)  # a try that was broken off may have found no time for it
        self._asked.touched.compare(self._see_it_come_through(), self._seconds)
        if self._asked.is_forced:
            server.end_holders(self._plan.held.before.schema, self._plan.held.before.name)
        swap = self._lane.swap(self._plan, self._seconds)
        with swap.locked() as holder:
            prepare(holder, self._seconds)
            self._make_room(holder)
            deadline = swap.lock(holder)
            self._check_same()
            marks = self._drain(holder, deadline)
            check_partitions(self._asked.marks, self._asked.tail, deadline - time.monotonic())
            self._compare(holder, marks, deadline)
            try:
                self._finish()
                swap.rename(holder, f"{self._table} TO {swap.sentry}, {self._shadow} TO {self._table}")
            except BaseException:
                if not server.is_changed(self._memory, self._plan.plan):
                    self._lane.hold_form(self._plan)
                raise

    def _see_it_come_through(self) -> dict[int, int]:
        """Wait until marks are in the copy, below these offsets; no client is held up. Raises FeedBehindError."""
        deadline = time.monotonic() + self._seconds
        marks = self._asked.marks
        offsets, is_late, _ = marks.set(self._asked.tail, self._seconds)
        if is_late:
            raise too_slow(self._seconds, is_on_topic=False)
        if missing := marks.partitions - set(offsets):
            if not self._lane.rows(self._plan, 1):
                return offsets
            raise FeedBehindError(str(without_mark(missing)))
        while time.monotonic() < deadline:
            if self._is_in_copy(offsets):
                return offsets
            time.sleep(POLL_SECONDS)
        raise too_slow(self._seconds, is_on_topic=True)

    def _is_in_copy(self, offsets: dict[int, int]) -> bool:
        seen = self._lane.position(self._plan, self._asked.feed_id)
        return seen is not None and not seen.is_behind(offsets, self._asked.tail.topic_id)

    # --- under the lock ---

    def _check_same(self) -> None:
        before, server = self._plan.held.before, self._lane.server
        now = server.described(server.sessions.main, before.schema, before.name)
        check_same(before, self._asked.built, now, server.identity(before.schema, before.name))

    def _drain(self, holder: Session, deadline: float) -> list[Mark]:
        """Return when all that was ever written to the table is in the copy; the marks, none if the table is empty."""
        marks = self._marked(holder)
        if not marks and not holder.run(f"SELECT 1 FROM {self._table} LIMIT 1"):
            while not self._lane.is_copy_empty(self._plan):
                self._wait(deadline)
            seen = self._lane.position(self._plan, self._asked.feed_id)
            offsets, topic_id = ({}, None) if seen is None else (seen.offsets, seen.topic_id)
            self._memory = reached(self._memory, offsets, topic_id)
            return []
        found = self._asked.tail.find([mark.change for mark in marks], max(0.0, deadline - time.monotonic()))
        if not all(found):
            raise not_on_topic()
        offsets = {place.partition: place.offset + 1 for places in found for place in places}
        if missing := self._asked.marks.partitions - set(offsets):
            raise without_mark(missing)
        while not self._is_in_copy(offsets):
            self._wait(deadline)
        self._memory = reached(self._memory, offsets, self._asked.tail.topic_id)
        self._offsets = offsets
        return marks

    def _marked(self, holder: Session) -> list[Mark]:
        """A mark in every partition, by the rows that were found to go there."""
        before, rows = self._plan.held.before, list(self._asked.marks.rows.values())
        found = [set_mark(holder, before, self._key, row) for row in rows]
        if None in found and len(self._asked.marks.partitions) == 1:
            found = [set_mark(holder, before, self._key)]  # any row will do
        return [mark for mark in found or [set_mark(holder, before, self._key)] if mark is not None]

    @staticmethod
    def _wait(deadline: float) -> None:
        if time.monotonic() >= deadline:
            raise not_in_copy()
        time.sleep(POLL_SECONDS)

    def _make_room(self, holder: Session) -> None:
        """Before the lock, under which it may not look at the copy."""
        columns = ", ".join(quoted(new) for _, new in self._plan.held.pairs)
        key = ", ".join(quoted(new) for _, new in self._plan.held.key)
        holder.run(
            f"CREATE TEMPORARY TABLE {_COMPARED} (PRIMARY KEY ({key})) AS SELECT {columns} FROM {self._shadow} WHERE "
            "FALSE"
        )
        if (side := converted_side(self._plan)) is not Side.NEITHER:
            make_room(holder, self._plan.held, side)
        holder.run("COMMIT")

    def _compare(self, holder: Session, marks: list[Mark], deadline: float) -> None:
        """The rows that were written since they were compared, and the marks'. Raises RefusedError, FeedBehindError."""
        held = self._plan.held
        touched = self._asked.touched.keys(self._offsets, max(0.0, deadline - time.monotonic()))
        keys = sorted({*touched, *(mark.row for mark in marks)})
        if not keys:
            return
        columns = [new for _, new in held.pairs]
        copied = self._lane.server.sessions.main.run(
            f"SELECT {row_text(held.after, columns)} FROM {self._shadow} WHERE "
            f"{among([new for _, new in held.key], keys)}"
        )
        side = converted_side(self._plan)
        holder.run(settings(strict=side is Side.NEITHER))
        for statement, _ in inserts(_COMPARED, columns, texts(copied)):
            holder.run(statement)
        found = {
            key
            for forward in (True, False)
            for key in differing_keys(
                holder,
                held,
                (among(self._key, keys, "a."), None),
                forward=forward,
                shadow=_COMPARED,
                converts=side,
            )
        }
        holder.run("COMMIT")
        if found:
            raise differs_at_rest(sorted(found))

    def _check_form(self) -> None:
        """The copy must be what the table is, and what the statement makes of it. Raises RefusedError."""
        server, plan = self._lane.server, self._plan.plan
        now, copy = (
            server.described(server.sessions.main, plan.before.schema, name) for name in (plan.before.name, plan.shadow)
        )
        if now is None or copy is None:
            raise RefusedError("the table or its copy is gone: submit the change again")
        expected = wanted(facts_of(now.definition), self._plan.change, dict(plan.pairs), ASPECTS)
        became = without_key(facts_of(copy.definition), self._plan.row_key)
        check_became(expected, became, ASPECTS if self._plan.change is None else frozenset())

    def _finish(self) -> None:
        """The copy's last form, in no time: nothing is written to it any more."""
        server, schema, shadow = self._lane.server, self._plan.plan.before.schema, self._plan.plan.shadow
        to_final_form(server.sessions.main, self._plan)
        self._check_form()
        counter = server.counter(schema, self._plan.plan.before.name)
        if counter > server.counter(schema, shadow) > 0:
            server.sessions.main.run(f"ALTER TABLE {self._shadow} AUTO_INCREMENT = {counter}")
            if server.counter(schema, shadow) < counter:
                raise RefusedError(f"the copy does not continue the counter at {counter}: the table is unchanged")
        # This number shows whether the rename came into force.
        self._memory = replace(self._memory, identity=server.identity(schema, shadow))
        server.note(self._memory)
