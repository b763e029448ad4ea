"""Strategy ``online``: the copy's rows all come through Spark; a feed brings the changes made in the meantime.

    start     the copy, empty; then a thread of the owner goes from step to step (core/copy_steps.py)
    steps     a feed from the table's topic into the copy is started, seen to work, paused at a position; every row
              of the table is read and written by a streaming query; the feed resumes from its position; when it has
              caught up, unique keys are added, and the tables are compared
    watch     how far it is, and whether the feed is well; ready once no row differs but those being changed just now
    cut over  the table is locked; when its last change is in the copy, the copy takes its place
    adopt     another owner's migration: the step that comes next is seen at the database and at the feed
    end       the feed is removed; that of a revert stays with the migration that was to be reverted
    revert    the table before is the copy: the steps are those from the feed on (back.py)

The owner writes no row itself: those that were there before are written by the tasks of its own streaming query
(replication/range_copy.py), those that change by the agents' lanes.
"""

from typing import Any

import msgspec

from headgate.migration.core import effects as fx
from headgate.migration.core.copy_steps import FeedSeen
from headgate.migration.core.feed_names import feed_of
from headgate.migration.core.spec import MigrationSpec, parse_spec
from headgate.migration.statements.reading import parse_statement
from headgate.migration.statements.statement import Statement, StatementError
from headgate.migration.strategies.contract import (
    DatabaseUnavailableError,
    LockUnavailableError,
    Memory,
    RefusedError,
)
from headgate.migration.strategies.examining import AT_SUBMISSION, checked_plan, plan_copy, read_plan
from headgate.migration.strategies.online.back import OnlineBack
from headgate.migration.strategies.online.lane import CutOver, FeedBehindError, Lane
from headgate.migration.strategies.online.lane_plan import LanePlan, lane_plan, several_and_unique
from headgate.migration.strategies.online.marked import Copier, MigrationParts, Note
from headgate.migration.strategies.online.steps import OnlineWork
from headgate.migration.strategies.online.way_back import plan_back
from headgate.records.migration import FEED, Artifact, MigrationRecorded
from headgate.records.migration_standing import ADDING_KEYS
from headgate.records.name_lists import shown_names


class OnlineStrategy:
    """One migration done by Spark; see contract.Strategy."""

    def __init__(
        self, server: Any, lane: Lane, feeds: Any, copier: Copier | None, migration: str, *, reverts: str | None = None
    ) -> None:
        self._server = server
        self._lane = lane
        self._work: OnlineWork | None = None
        self._feeds = feeds
        self._copier = copier
        self._migration = migration
        self._reverts = reverts
        self._feed = feed_of(migration, reverts)
        self._back = OnlineBack(server, lane, feeds)

    def examine(self, spec: MigrationSpec, reverted: MigrationRecorded | None) -> fx.Examined | fx.ExamineRefused:
        """See contract."""
        try:
            self._lane.sink_kind()
            if spec.reverts is not None and reverted is not None:
                self._back.check(spec.reverts, reverted)
                self._back.check_rights(reverted)
                return fx.Examined("revert", reverted.table, self._where(reverted), is_immediate=False)
            statement, plan = checked_plan(self._server, spec, self._feeds)
            lane = self._checked(statement, plan, spec)
            if self._feeds is not None:
                self._feeds.check_topic(lane.source, self._lane.origins(plan.before))
                if lane.compares_rows and len(self._feeds.ends(lane.topic)) > 1:
                    raise several_and_unique(lane)
            why_not_back = _why_not_back(lane, spec)
            warning = self._lane.warning(plan.before)
        except (RefusedError, StatementError) as error:
            return fx.ExamineRefused(str(error))
        unseen = "" if self._feeds is not None else "the topic is checked at the submission"
        return fx.Examined(
            "alter",
            f"{plan.before.schema}.{plan.before.name}",
            self._server.where(plan.before.schema),
            is_immediate=False,
            message="; ".join(filter(None, (unseen, why_not_back, warning, self._server.logged))),
        )

    def plan(self, spec: MigrationSpec) -> fx.Examined | fx.ExamineRefused:
        """See contract."""
        try:
            _, before = read_plan(self._server, spec)
            _topic_of(spec)
            self._lane.capture(before)
            warning = self._lane.warning(before)
        except (RefusedError, StatementError) as error:
            return fx.ExamineRefused(str(error))
        return fx.Examined(
            "alter",
            f"{before.schema}.{before.name}",
            self._server.where(before.schema),
            is_immediate=False,
            message="; ".join(filter(None, ("the topic is checked at the submission", AT_SUBMISSION, warning))),
        )

    def _where(self, reverted: MigrationRecorded) -> str:
        """Of the database that the reverted change was made at, if it is still this one."""
        schema = reverted.table.rpartition(".")[0] or None
        return reverted.server if self._server.is_at(reverted.server) else str(self._server.where(schema))

    def _checked(self, statement: Statement, plan: Any, spec: MigrationSpec) -> LanePlan:
        found = lane_plan(plan, _topic_of(spec), name_bytes_max=self._server.name_bytes_max)
        whole = msgspec.structs.replace(
            found,
            publication=self._lane.capture(plan.before),
            registry=spec.registry,
            change=self._lane.form_change(statement, plan),
        )
        self._lane.try_forms(statement, whole)
        return whole

    def start(self, effect: fx.StartMigration) -> Any:
        """See contract."""
        spec = parse_spec(effect.record.spec)
        memory = self._server.take_over(effect.owner_rev)
        if (done := self._completed(effect.record, memory)) is not None:
            return done
        self._let_go()
        if spec.reverts is not None:
            return self._start_back(effect, spec, spec.reverts)
        statement = parse_statement(spec.statement, self._server.dialect)
        self._feeds.remove(self._feed)  # an earlier attempt's
        try:
            plan = self._checked(statement, plan_copy(self._server, statement, spec), spec)
        except RefusedError as error:
            self._server.forget()
            return fx.Refused(str(error))
        memory = Memory(effect.owner_rev, effect.record.attempt, "begun", msgspec.json.encode(plan).decode())
        try:
            memory = self._lane.make(statement, plan, memory, spec.cutover_threshold_seconds)
        except RefusedError as error:
            return fx.Broke(str(error), self._lane.artifacts(plan))
        self._begin(effect.record, _plan_of(memory), memory, spec, Note())
        return self._progress(effect.record)

    def _start_back(self, effect: fx.StartMigration, spec: MigrationSpec, reverts: str) -> Any:
        try:
            plan, held = self._back.plan(reverts, effect.reverted, effect.owner_rev)
        except RefusedError as error:
            return fx.Refused(str(error))
        before, after = (msgspec.json.encode(part).decode() for part in (plan, held))
        memory = Memory(effect.owner_rev, effect.record.attempt, "returning", before, after)
        try:
            memory = self._lane.take(plan, memory, spec.cutover_threshold_seconds)
        except RefusedError as error:
            return fx.Broke(str(error))
        self._begin(effect.record, plan, memory, spec, Note())
        return self._progress(effect.record)

    def adopt(self, effect: fx.AdoptMigration) -> Any:
        """See contract."""
        spec = parse_spec(effect.record.spec)
        memory = self._server.take_over(effect.owner_rev)
        if (done := self._completed(effect.record, memory)) is not None:
            return done
        if memory is None or memory.stage == "stopped" or memory.attempt != effect.record.attempt:
            return fx.NotThere()
        plan = _plan_of(memory)
        if not self._lane.is_made(plan, memory):
            return fx.NotThere()
        if self._work is None or self._work.is_over_in_vain:
            note = msgspec.json.decode(effect.record.note, type=Note) if effect.record.note else Note()
            self._begin(effect.record, plan, memory, spec, note)
        return self._progress(effect.record)

    def _completed(self, record: MigrationRecorded, memory: Memory | None) -> Any:
        """Completed, if the copy is in the table's place; the feed is gone then, and the change can be reverted."""
        if memory is None or memory.attempt != record.attempt:
            return None
        plan = _plan_of(memory)
        if not self._server.is_changed(memory, plan.plan):
            return None
        self._lane.settle(plan)
        self._let_go()
        self._feeds.remove(self._feed)
        spec = parse_spec(record.spec)
        way = self._back.open(self._migration, plan, memory, connection=spec.database, is_kept=spec.keep_way_back)
        if self._reverts is not None:
            self._back.forget(self._reverts, memory.owner_rev)
        return fx.Completed(
            f"seen in force; {way.reason}" if way.reason else "seen in force",
            (*self._lane.artifacts(plan), *([Artifact(FEED, way.feed)] if way.feed else [])),
            msgspec.json.encode(way).decode(),
        )

    def _artifacts(self, plan: LanePlan) -> tuple[Artifact, ...]:
        """Until the change can no longer be reverted, the table before is what the reverted migration has left."""
        return () if plan.is_back else self._lane.artifacts(plan)

    def _begin(
        self, record: MigrationRecorded, plan: LanePlan, memory: Memory, spec: MigrationSpec, note: Note
    ) -> None:
        self._let_go()
        assert self._copier is not None  # noqa: S101 - only an owner runs effects, and it has one
        parts = MigrationParts(self._server, self._lane, self._feeds, self._feed, self._copier)
        self._work = OnlineWork(parts, plan, memory, spec=spec, note=note, throttle_ratio=record.throttle_ratio)
        self._work.start()

    def watch(self, effect: fx.WatchMigration) -> Any:
        """See contract."""
        if self._work is None or self._work.is_over_in_vain:
            return self.adopt(fx.AdoptMigration(effect.migration, effect.record, owner_rev=effect.owner_rev))
        return self._progress(effect.record)

    def _let_go(self) -> None:
        if self._work is not None:
            self._work.stop()
            self._work = None

    def close(self) -> None:
        """Let go of the database."""
        self._let_go()
        self._server.close()

    def _progress(self, record: MigrationRecorded) -> Any:
        work = self._work
        if work is None:
            return fx.NotThere()
        work.pace.ratio = record.throttle_ratio
        if isinstance(work.error, RefusedError):
            return fx.Broke(str(work.error), self._artifacts(work.plan))
        return fx.Progressed(
            stage=work.stage,
            rows_copied=work.note.rows,
            table_rows=max(work.plan.held.before.rows, work.note.rows),
            eta_seconds=work.eta_seconds(work.note.rows, work.plan.held.before.rows),
            stage_percent=work.percent,
            is_ready_to_complete=work.is_ready,
            is_live=work.is_alive(),
            is_working=work.stage == ADDING_KEYS,
            is_held=work.pace.is_held,
            position=work.position,
            throttle_reason=work.pace.reason,
            artifacts=self._artifacts(work.plan),
            note=msgspec.json.encode(work.note).decode(),
        )

    def cut_over(self, effect: fx.CutOverMigration) -> Any:
        """See contract."""
        memory = self._server.take_over(effect.owner_rev)
        work = self._work
        found = None if work is None else work.found()
        if memory is None or work is None or found is None:
            return fx.CutOverFailed("the copy is not ready any more")
        held, marks, touched = found
        tail = self._feeds.tail(work.plan.source)
        asked = CutOver(
            work.plan,
            memory,
            held.position.feed_id,
            tail,
            parse_spec(effect.record.spec).cutover_threshold_seconds,
            held.built,
            touched,
            effect.record.cutover_forced,
            marks,
        )
        failure: Any = None
        self._server.ended = []
        try:
            with touched.lock:
                self._lane.cut_over(asked)
        except FeedBehindError as error:
            work.behind, work.is_ready = str(error), False
            return self._progress(effect.record)
        except RefusedError as error:
            failure = fx.Broke(str(error), self._artifacts(work.plan))
        except (LockUnavailableError, DatabaseUnavailableError) as error:
            failure = fx.CutOverFailed(str(error))
        finally:
            tail.close()
        # The answer may have been lost on the way: what became of it is looked up, never guessed. If the coordinator
        # does not answer now, the migration is resumed later, and the feed removed then.
        done = self._completed(effect.record, self._server.take_over(effect.owner_rev))
        failure = failure or fx.CutOverFailed("the cut-over has come to its end, and is not seen in force")
        return _naming(self._server.ended, done or failure)

    def stop(self, effect: fx.StopMigration) -> Any:
        """See contract."""
        self._let_go()
        memory = self._server.take_over(effect.owner_rev)
        if (done := self._completed(effect.record, memory)) is not None:
            return done
        plan = None if memory is None else _plan_of(memory)
        if memory is None or plan is None:
            self._server.forget()
            return fx.Stopped()
        # The feed of a revert stays: what it has applied need not be applied again by the next revert.
        begun: tuple[Artifact, ...] = ()
        if not plan.is_back:
            self._feeds.remove(self._feed)
        elif self._feeds.seen(self._feeds.record(self._feed)) is not FeedSeen.ABSENT:
            begun = (Artifact(FEED, self._feed),)
        left = self._artifacts(plan)
        self._server.note(msgspec.structs.replace(memory, stage="stopped"))
        self._server.close()
        return fx.Stopped(left, way_back=begun)

    def clean_up(self, effect: fx.CleanUpMigration) -> Any:
        """See contract. A feed goes before the table that it writes to."""
        for artifact in effect.record.artifacts:
            if artifact.kind == FEED:
                self._feeds.remove(artifact.name)
        tables = tuple(artifact for artifact in effect.record.artifacts if artifact.kind != FEED)
        if effect.keeps_tables:
            return fx.CleanedUp(tables)
        self._server.take_over(effect.owner_rev)
        return fx.CleanedUp(self._server.drop(tables))


def _topic_of(spec: MigrationSpec) -> str:
    if spec.topic is None:
        raise RefusedError(
            "strategy online follows the table's changes: name their topic with --topic, or use strategy direct, "
            "or pt-osc at MariaDB"
        )
    return spec.topic


def _naming(ended: list[str], result: Any) -> Any:
    """The result of a cut-over, with the sessions that it has ended."""
    if not ended:
        return result
    said = f"force-cutover ended {len(ended)} session{'s' * (len(ended) != 1)}: {shown_names(ended)}"
    if isinstance(result, fx.Completed):
        return msgspec.structs.replace(result, message=f"{result.message}; {said}")
    return msgspec.structs.replace(result, reason=f"{result.reason}; {said}")


def _why_not_back(plan: LanePlan, spec: MigrationSpec) -> str:
    """Why the change could not be reverted; empty if it could. Raises RefusedError if the spec demands that it can."""
    try:
        plan_back(plan, plan.plan.after)
    except RefusedError as error:
        if spec.keep_way_back:
            raise RefusedError(f"{error}. Without --keep-revertible it is done all the same") from error
        if spec.must_be_revertible:
            raise RefusedError(f"{error}. If it may be final, confirm it with --yes") from error
        return str(error)
    return ""


def _plan_of(memory: Memory) -> LanePlan:
    return msgspec.json.decode(memory.before, type=LanePlan)
