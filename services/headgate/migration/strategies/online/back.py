"""Reverts of strategy ``online`` (way_back.py): made possible by a change that completes, done by a later migration.

A change that completes leaves in its record with which offset of the topic the new table's changes begin. If the change
must stay revertible, a feed from there into the old table is started at once; otherwise the revert starts it. The feed
is named after the reverted change, so there is only one of it.
"""

from typing import Any

import msgspec

from headgate.config.start_offsets import StartOffsets
from headgate.migration.core.copy_steps import FeedSeen, Position
from headgate.migration.core.feed_names import back_feed
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import DescribedTable, Memory, RefusedError
from headgate.migration.strategies.online.lane import CopySink, Held, Lane
from headgate.migration.strategies.online.lane_plan import LanePlan
from headgate.migration.strategies.online.way_back import OPPOSITE, WayBack, fingerprint, plan_back, read_way_back
from headgate.records.identifiers import show_identifier
from headgate.records.migration import MigrationRecorded


class OnlineBack:
    """Reverts of changes of one database."""

    def __init__(self, server: Any, lane: Lane, feeds: Any) -> None:
        self._server, self._lane, self._feeds = server, lane, feeds

    # --- a change completes ---

    def open(self, migration: str, plan: LanePlan, memory: Memory, *, connection: str, is_kept: bool) -> WayBack:
        """See whether the change can be reverted; with ``is_kept`` start its feed, unless it exists.

        ``connection``: the name of the database, as the migration's spec has it.
        Raises DatabaseUnavailableError.
        """
        try:
            held = msgspec.json.decode(memory.after, type=Held) if memory.after else None
            now = self._look(f"{plan.plan.before.schema}.{plan.plan.before.name}")
            if held is None or not held.reached or now is None:
                return WayBack({}, reason=f"it is not known where the new table's changes begin: {OPPOSITE}")
            back = plan_back(plan, now)
            found = WayBack(
                held.reached,
                held.became or self._lane.built_of(now),
                fingerprint(now),
                f"{now.schema}.{back.plan.shadow}",
                back_feed(migration) if is_kept else "",
                topic_id=held.topic_id,
            )
            if is_kept and self._feeds.seen(self._feeds.record(found.feed)) is FeedSeen.ABSENT:
                self._lane.hold_form(back)
                self._begin(found.feed, back, found, connection)
        except RefusedError as error:
            return WayBack({}, reason=str(error))
        return found

    def _begin(self, feed: str, plan: LanePlan, found: WayBack, connection: str) -> None:
        table = show_identifier((plan.held.before.schema, plan.held.shadow))
        sink = CopySink(self._lane.sink_kind(), connection, table)
        start = StartOffsets(offsets=found.offsets, topic_id=found.topic_id)
        self._feeds.create(feed, plan.source, sink, start=start)

    # --- a revert ---

    def check(self, name: str, reverted: MigrationRecorded) -> WayBack:
        """How to revert a completed migration, if that is possible now. Raises RefusedError, reads only."""
        found = read_way_back(reverted.note)
        if found is None:
            raise RefusedError(f"{name} has copied nothing, so no old table exists: {OPPOSITE}")
        if found.reason:
            raise RefusedError(f"{name}: {found.reason}")
        if not reverted.artifacts or self._look(found.table) is None:
            raise RefusedError(f"{name}: the table before, {found.table}, is gone (cleaned up): {OPPOSITE}")
        now = self._look(reverted.table)
        if now is None or self._lane.built_of(now) != found.built:
            raise RefusedError(
                f"{name}: the table was truncated, replaced or rebuilt since, which change events do not show, "
                f"so the old table would be wrong: {OPPOSITE}"
            )
        if fingerprint(now) != found.definition:
            raise RefusedError(
                f"{name}: the table has been altered since, and going back would undo that, too: undo it first, or "
                f"{OPPOSITE}"
            )
        self._check_feed(name, found, reverted)
        return found

    def _check_feed(self, name: str, found: WayBack, reverted: MigrationRecorded) -> None:
        feed = back_feed(name)
        record = self._feeds.record(feed)
        match self._feeds.seen(record):
            case FeedSeen.FAILED:
                raise RefusedError(
                    f"{name}: it cannot be reverted now, because feed {feed} has failed: {record.error}. Make the "
                    f"change fit the table before ({found.table}), run `headgate feed resume {feed}`, and revert "
                    f"again; or {OPPOSITE}"
                )
            case FeedSeen.ABSENT:
                topic = msgspec.json.decode(reverted.spec)["topic"]
                self._feeds.check_start(topic, StartOffsets(offsets=found.offsets, topic_id=found.topic_id))
            case _:
                pass

    def plan(self, name: str, reverted: MigrationRecorded | None, owner_rev: int) -> tuple[LanePlan, Held]:
        """The plan of a revert, and where it starts. Raises RefusedError.

        What another owner still does about ``name`` is ended.
        """
        if reverted is None:
            raise RefusedError(f"migration {name} does not exist any more: {OPPOSITE}")
        found = self.check(name, reverted)
        theirs = self._server.of(name)
        try:
            memory = theirs.take_over(owner_rev)
        finally:
            theirs.close()
        now = self._look(reverted.table)
        if memory is None or now is None:
            raise RefusedError(f"{name}: the database does not remember it any more: {OPPOSITE}")
        back = plan_back(msgspec.json.decode(memory.before, type=LanePlan), now)
        position = Position("", found.offsets, False, found.topic_id)
        return back, Held(position, found.built, found.offsets, topic_id=found.topic_id)

    def check_rights(self, reverted: MigrationRecorded) -> None:
        """Raise RefusedError unless the user may revert it, which is an online change, too."""
        schema, _, name = reverted.table.partition(".")
        self._server.check_rights(Statement("alter", schema, name, "", ""), is_copied=True)

    def forget(self, name: str, owner_rev: int) -> None:
        """Drop the means of a revert: what the database remembers of the reverted migration goes."""
        theirs = self._server.of(name)
        try:
            if theirs.take_over(owner_rev) is not None:
                theirs.forget()
        finally:
            theirs.close()

    def _look(self, full: str) -> DescribedTable | None:
        schema, _, name = full.partition(".")
        found: DescribedTable | None = self._server.look(Statement("alter", schema, name, "", ""))
        return found
