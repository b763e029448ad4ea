"""Strategy ``online``: the copy's rows all come through Spark; a feed brings the changes made meanwhile.

    start     the copy, empty; then a thread of the owner goes from step to step (core/copy_steps.py)
    steps     a feed from the table's topic into the copy is begun, shown to work, and paused at a position; every row
              of the table is read and written by a streaming query; the feed goes on from its position; when it has
              caught up, the tables are compared
    watch     how far it is, and whether the feed is well; ready once no row differs but those being changed just now
    cut over  the table is locked; when its last change is in the copy, the copy takes its place
    adopt     another owner's migration: the step that comes next is seen at the database and at the feed
    end       the feed is removed

The owner writes no row itself: those that were there before are written by the tasks of its own streaming query
(replication/range_copy.py), those that change by the agents' lanes.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec

from headgate.migration.core import effects as fx
from headgate.migration.core.copy_steps import CopyStage, FeedSeen, Position, Step, next_step
from headgate.migration.core.spec import MigrationSpec, parse_spec
from headgate.migration.strategies.contract import (
    Chunk,
    DatabaseUnavailableError,
    LockUnavailableError,
    Memory,
    RefusedError,
    SupersededError,
)
from headgate.migration.strategies.examining import checked_plan, plan_copy
from headgate.migration.strategies.lane_plan import LanePlan, lane_plan
from headgate.migration.strategies.pace import Pace
from headgate.migration.strategies.postgresql_lane import HOT_KEYS_MAX, PostgresLane
from headgate.migration.strategies.postgresql_ranges import RangeWork
from headgate.migration.strategies.statement import StatementError, parse_statement
from headgate.records.identifiers import show_identifier
from headgate.records.migration import MigrationRecorded

__all__ = ["Copier", "OnlineStrategy"]

PROOF_SECONDS: Final = 600.0
"""For a change to come by connector, topic and agent into the copy: a busy machine starts an agent in minutes."""

MARK_SECONDS: Final = 10.0
"""Another row is marked after so long: the first may have been deleted meanwhile."""

POLL_SECONDS: Final = 0.2
HEALTH_SECONDS: Final = 5.0
"""How often the log is asked for the feed, while there is nothing else to do."""

RANGE_BYTES: Final = 16 << 20
"""Of one range, by the average row: a task holds a few thousand rows of it at a time, the database its transaction."""

RANGE_ROWS_MAX: Final = 50_000

LAG_OFFSETS_MAX: Final = 1_000
"""So close to the topic's end counts as caught up."""

COMPARE_ROWS: Final = 10_000
ROUNDS_MAX: Final = 60
ROUND_SECONDS: Final = 1.0
"""Rows that differ are looked at again, so many times, for their changes are on their way."""

AGAIN_SECONDS: Final = 1.0
"""Pause after a database, broker or coordinator did not answer, or a lock was not to be had."""

_PASSING: Final = (LockUnavailableError, DatabaseUnavailableError)


class Copier(Protocol):
    """Copies ranges by a streaming query of Spark's."""

    def copy(
        self,
        work: RangeWork,
        next_ranges: Callable[[int], list[Chunk]],
        copied: Callable[[list[Chunk], int], None],
        stopping: threading.Event,
    ) -> None:
        """Until ``next_ranges(how many)`` gives none; ``copied`` is told of ranges with their rows, in order.

        Raises what reading and writing a range raise.
        """
        ...


class Note(msgspec.Struct, omit_defaults=True):
    """What the log keeps: the key up to which every row is copied."""

    upto: list[Any] | None = None
    rows: int = 0


class Held(msgspec.Struct, frozen=True):
    """What the database remembers of the moment before the first row was read."""

    position: Position
    built: str


class OnlineStrategy:
    """One migration done by Spark; see contract.Strategy."""

    def __init__(self, server: Any, feeds: Any, copier: Copier | None, migration: str) -> None:
        self._server = server
        self._lane = PostgresLane(server)
        self._feeds = feeds
        self._copier = copier
        self._migration = migration
        self._feed = f"migration-{server.mark}"
        self._work: _Work | None = None

    def examine(self, spec: MigrationSpec, reverted: MigrationRecorded | None) -> fx.Examined | fx.ExamineRefused:
        """See contract."""
        if reverted is not None:
            return fx.ExamineRefused("a revert of strategy online is not built yet: submit the opposite change")
        try:
            _, plan = checked_plan(self._server, self._migration, spec)
            lane = self._checked(plan, spec)
            if self._feeds is not None:
                before = plan.before
                table = show_identifier((before.schema, before.name))
                self._feeds.check_topic(lane.topic, self._server.sessions.database, table)
        except (RefusedError, StatementError) as error:
            return fx.ExamineRefused(str(error))
        return fx.Examined(
            "alter",
            f"{plan.before.schema}.{plan.before.name}",
            self._server.address,
            is_immediate=False,
            message="" if self._feeds is not None else "the topic is looked at by the owner",
        )

    def _checked(self, plan: Any, spec: MigrationSpec) -> LanePlan:
        if spec.topic is None:
            raise RefusedError(
                "strategy online follows the table's changes: name their topic with --topic, or use strategy triggers"
            )
        primary = self._lane.primary(plan.before)
        found = lane_plan(plan, primary, spec.topic, name_bytes_max=self._server.name_bytes_max)
        return msgspec.structs.replace(found, publication=self._lane.capture(plan.before))

    def start(self, effect: fx.StartMigration) -> Any:
        """See contract."""
        spec = parse_spec(effect.record.spec)
        statement = parse_statement(spec.statement, self._server.dialect)
        memory = self._server.take_over(effect.owner_rev)
        if (done := self._completed(effect.record, memory)) is not None:
            return done
        self._let_go()
        self._feeds.remove(self._feed)  # an earlier attempt's
        try:
            plan = self._checked(plan_copy(self._server, self._migration, statement, spec), spec)
        except RefusedError as error:
            return fx.Refused(str(error))
        memory = Memory(effect.owner_rev, effect.record.attempt, "begun", msgspec.json.encode(plan).decode())
        try:
            self._lane.make(statement, plan, memory, spec.cutover_threshold_seconds)
        except RefusedError as error:
            return fx.Broke(str(error), self._lane.artifacts(plan))
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
        if not self._lane.artifacts(plan):
            return fx.NotThere()
        if self._work is None or self._work.is_over_in_vain:
            note = msgspec.json.decode(effect.record.note, type=Note) if effect.record.note else Note()
            self._begin(effect.record, plan, memory, spec, note)
        return self._progress(effect.record)

    def _completed(self, record: MigrationRecorded, memory: Memory | None) -> Any:
        """Completed, if the copy is in the table's place; the feed is gone then."""
        if memory is None or memory.stage != "changed" or memory.attempt != record.attempt:
            return None
        self._let_go()
        self._feeds.remove(self._feed)
        return fx.Completed("seen in force", self._lane.artifacts(_plan_of(memory)))

    def _begin(
        self, record: MigrationRecorded, plan: LanePlan, memory: Memory, spec: MigrationSpec, note: Note
    ) -> None:
        self._let_go()
        assert self._copier is not None  # noqa: S101 - only an owner runs effects, and it has one
        parts = _Parts(self._server, self._lane, self._feeds, self._feed, self._copier)
        self._work = _Work(parts, plan, memory, spec=spec, note=note, throttle_ratio=record.throttle_ratio)

    def _progress(self, record: MigrationRecorded) -> Any:
        work = self._work
        if work is None:
            return fx.NotThere()
        work.pace.ratio = record.throttle_ratio
        if isinstance(work.error, RefusedError):
            return fx.Broke(str(work.error), self._lane.artifacts(work.plan))
        return fx.Progressed(
            stage=work.stage,
            rows_copied=work.note.rows,
            table_rows=max(work.plan.held.before.rows, work.note.rows),
            eta_seconds=work.eta_seconds(),
            is_ready_to_complete=work.is_ready,
            is_live=work.is_alive(),
            throttle_reason=work.pace.reason,
            artifacts=self._lane.artifacts(work.plan),
            note=msgspec.json.encode(work.note).decode(),
        )

    def watch(self, effect: fx.WatchMigration) -> Any:
        """See contract."""
        if self._work is None or self._work.is_over_in_vain:
            return self.adopt(fx.AdoptMigration(effect.migration, effect.record, owner_rev=effect.owner_rev))
        return self._progress(effect.record)

    def cut_over(self, effect: fx.CutOverMigration) -> Any:
        """See contract."""
        memory = self._server.take_over(effect.owner_rev)
        work = self._work
        if memory is None or work is None or not work.is_ready or work.held is None:
            return fx.CutOverFailed("the copy is not ready any more")
        seconds = parse_spec(effect.record.spec).cutover_threshold_seconds
        tail = self._feeds.tail(work.plan.topic)
        try:
            self._lane.cut_over(
                work.plan,
                memory,
                seconds,
                feed_id=work.held.position.feed_id,
                built=work.held.built,
                hot=work.hot,
                tail=tail,
                is_forced=effect.record.cutover_forced,
            )
        except LockUnavailableError as error:
            return fx.CutOverFailed(str(error))
        except RefusedError as error:
            return fx.Broke(str(error), self._lane.artifacts(work.plan))
        except DatabaseUnavailableError as error:
            # The answer may have been lost on the way: it is looked up, never guessed.
            found = self._server.take_over(effect.owner_rev)
            if found is None or found.stage != "changed":
                return fx.CutOverFailed(str(error))
        finally:
            tail.close()
        # If the coordinator does not answer now, the migration is taken up again, and the feed removed then.
        return self._completed(effect.record, self._server.take_over(effect.owner_rev))

    def stop(self, effect: fx.StopMigration) -> Any:
        """See contract."""
        self._let_go()
        memory = self._server.take_over(effect.owner_rev)
        if (done := self._completed(effect.record, memory)) is not None:
            return done
        self._feeds.remove(self._feed)
        if memory is None:
            return fx.Stopped()
        left = self._lane.artifacts(_plan_of(memory))
        self._server.note(msgspec.structs.replace(memory, stage="stopped"))
        self._server.close()
        return fx.Stopped(left)

    def clean_up(self, effect: fx.CleanUpMigration) -> Any:
        """See contract."""
        self._server.take_over(effect.owner_rev)
        return fx.CleanedUp(self._server.drop(effect.record.artifacts))

    def _let_go(self) -> None:
        if self._work is not None:
            self._work.stop()
            self._work = None

    def close(self) -> None:
        """Let go of the database."""
        self._let_go()
        self._server.close()


def _plan_of(memory: Memory) -> LanePlan:
    return msgspec.json.decode(memory.before, type=LanePlan)


def _storable(value: Any) -> Any:
    """A key's value as it stands on the log: what the server takes as a literal of the column."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)


class _Parts(NamedTuple):
    """What a migration is done with: its database, its feed by name, and Spark."""

    server: Any
    lane: PostgresLane
    feeds: Any
    feed: str
    copier: Copier


class _Work:
    """The thread that goes from step to step; everything else only reads its fields."""

    def __init__(
        self,
        parts: "_Parts",
        plan: LanePlan,
        memory: Memory,
        *,
        spec: MigrationSpec,
        note: Note,
        throttle_ratio: float,
    ) -> None:
        self.plan = plan
        self.note = note
        self.stage = "beginning"
        self.is_ready = False
        self.hot: list[tuple[str, ...]] = []
        """Rows that differed when they were looked at last: the cut-over compares them."""
        self.held = msgspec.json.decode(memory.after, type=Held) if memory.after else None
        self.error: Exception | None = None
        self._memory = memory
        self._spec = spec
        self._server, self._lane, self._feeds, self._feed, self._copier = parts
        self._stopping = threading.Event()
        self.pace = Pace(self._server, spec, throttle_ratio, self._stopping)
        self._begun, self._rows_before = time.monotonic(), note.rows
        self._marked_at = 0.0
        self._mark: tuple[str, ...] | None = None
        self._proof_until: float | None = None
        self._thread = threading.Thread(target=self._run, name="online", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def is_over_in_vain(self) -> bool:
        """It has ended by something that may pass: it is begun again, from what is seen then."""
        return not self.is_alive() and not isinstance(self.error, RefusedError)

    def stop(self) -> None:
        """End it; ranges that are under way are finished."""
        self._stopping.set()
        self._thread.join()

    def eta_seconds(self) -> int:
        """By the speed of the copy so far; -1 where that says nothing."""
        done, left = self.note.rows - self._rows_before, self.plan.held.before.rows - self.note.rows
        if self.is_ready:
            return 0
        if done <= 0 or left < 0:
            return -1
        return round((time.monotonic() - self._begun) * left / done)

    # --- steps ---

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._step()
                except _PASSING as error:
                    self.pace.reason = str(error)
                    self._stopping.wait(AGAIN_SECONDS)
        except (RefusedError, SupersededError) as error:
            self.error = error
        finally:
            self.is_ready = self.is_ready and self.error is None
            self._server.let_go()

    def _step(self) -> None:
        self._lane.check_ours()
        record = self._feeds.record(self._feed)
        feed = self._feeds.seen(record)
        step = next_step(cast("CopyStage", self._memory.stage), feed)
        match step:
            case Step.CREATE:
                self._create()
            case Step.PROVE:
                self._prove()
            case Step.HOLD:
                self._hold(record.feed_id)
            case Step.COPY:
                self._copy()
            case Step.RESUME:
                self.stage = "catching up"
                self._feeds.resume(self._feed)
            case Step.CATCH_UP:
                self._catch_up()
            case Step.END:
                raise RefusedError(self._why_it_ends(feed, record))

    def _why_it_ends(self, feed: FeedSeen, record: Any) -> str:
        if feed is FeedSeen.FAILED:
            return f"the feed into the copy has failed: {record.error}"
        said = "is gone" if feed is FeedSeen.ABSENT else "has been resumed by somebody"
        return f"the feed into the copy, {self._feed}, {said} (stage {self._memory.stage}): the table is untouched"

    def _create(self) -> None:
        self.stage = "starting the feed"
        held = self.plan.held
        table = show_identifier((held.before.schema, held.shadow))
        self._feeds.create(self._feed, self.plan.topic, self._server.address, self._server.password_file, table)

    def _prove(self) -> None:
        """See one change come through; a table without rows has none to show."""
        self.stage = "waiting for a change to come through"
        now = time.monotonic()
        self._proof_until = self._proof_until or now + PROOF_SECONDS
        if self._mark is None or now - self._marked_at > MARK_SECONDS:
            self._mark, self._marked_at = self._lane.mark(self.plan), now
        if self._mark is None:
            self._pause_when_claimed(now)
            return
        if self._lane.has(self.plan, self._mark):
            self._feeds.pause(self._feed)
            self._stopping.wait(POLL_SECONDS)  # asked before by an owner that died: it is on its way
        elif now > self._proof_until:
            raise RefusedError(
                f"a change of the table has not come into the copy by topic {self.plan.topic} within "
                f"{PROOF_SECONDS:g} s: does its connector run and capture this table, and is there an agent? See "
                f"`headgate why {self._feed}`. The table is untouched"
            )
        else:
            self._stopping.wait(POLL_SECONDS)

    def _pause_when_claimed(self, now: float) -> None:
        record = self._feeds.record(self._feed)
        if record is not None and self._lane.position(self.plan, record.feed_id) is not None:
            self._feeds.pause(self._feed)
        elif self._proof_until is not None and now > self._proof_until:
            raise RefusedError(f"feed {self._feed} has no agent that runs it: see `headgate why {self._feed}`")
        else:
            self._stopping.wait(POLL_SECONDS)

    def _hold(self, feed_id: str) -> None:
        self.stage = "waiting for transactions under way"
        position = self._lane.position(self.plan, feed_id)
        if position is None or not position.is_closed:
            raise DatabaseUnavailableError(f"feed {self._feed} is stopped, but not sealed at its sink: {position}")
        writers = self._lane.writers(self.plan)
        while writers:
            if self._stopping.wait(POLL_SECONDS):
                return
            writers &= self._lane.writers(self.plan)
        self.held = Held(position, self._lane.built(self.plan))
        self._remember("paused")

    def _remember(self, stage: Any) -> None:
        after = "" if self.held is None else msgspec.json.encode(self.held).decode()
        self._memory = msgspec.structs.replace(self._memory, stage=stage, after=after)
        self._server.note(self._memory)

    def _copy(self) -> None:
        self.stage = "copying"
        assert self.held is not None  # noqa: S101 - it is remembered with the stage
        held = self.plan.held
        work = RangeWork(
            self._server.migration,
            self._server.address,
            self._server.password_file,
            held,
            self._memory.owner_rev,
            self._memory.attempt,
            self.held.position,
        )
        rows = max(1, min(RANGE_ROWS_MAX, RANGE_BYTES // self._lane.row_bytes(self.plan)))
        at = None if self.note.upto is None else tuple(self.note.upto)
        is_last = False
        asked = time.monotonic()

        def next_ranges(count: int) -> list[Chunk]:
            nonlocal at, is_last, asked
            self.pace.slow_down(time.monotonic() - asked)
            asked = time.monotonic()
            found: list[Chunk] = []
            while len(found) < count and not is_last and not self._stopping.is_set():
                upto = self._server.next_bound(held, at, rows)
                found.append(Chunk(at, upto))
                at, is_last = upto, upto is None
            return found

        def copied(chunks: list[Chunk], count: int) -> None:
            self.note.rows += count
            if chunks[-1].upto is not None:
                self.note.upto = [_storable(value) for value in chunks[-1].upto]

        self._copier.copy(work, next_ranges, copied, self._stopping)
        if is_last and not self._stopping.is_set():
            self._remember("copied")

    def _catch_up(self) -> None:
        """Then compare, then watch."""
        assert self.held is not None  # noqa: S101 - it is remembered with the stage
        self.stage = "catching up" if not self.is_ready else self.stage
        feed_id = self.held.position.feed_id
        position = self._lane.position(self.plan, feed_id)
        end = self._feeds.end(self.plan.topic)
        if position is None or position.next_offset < end - LAG_OFFSETS_MAX:
            behind = "" if position is None else f"{end - position.next_offset} changes behind"
            self.pace.reason = behind
            self._stopping.wait(POLL_SECONDS)
            return
        self.pace.reason = ""
        if self.is_ready:
            self._stopping.wait(HEALTH_SECONDS)
            return
        self.stage = "comparing"
        self.hot = self._compare()
        if not self._stopping.is_set():
            self.stage, self.is_ready = "ready to cut over", True

    def _compare(self) -> list[tuple[str, ...]]:
        """Rows that differ, time and again."""
        above, hot = None, []
        while not self._stopping.is_set():
            begun = time.monotonic()
            upto = self._server.next_bound(self.plan.held, above, COMPARE_ROWS)
            hot += self._settled(self._lane.differing(self.plan, Chunk(above, upto)))
            if len(hot) > HOT_KEYS_MAX:
                hot = self._settled(hot)
            self.pace.slow_down(time.monotonic() - begun)
            if upto is None:
                break
            above = upto
        return hot

    def _settled(self, keys: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Those of ``keys`` that still differ after a while; RefusedError if they are too many."""
        for _ in range(ROUNDS_MAX):
            if not keys or self._stopping.wait(ROUND_SECONDS):
                return keys
            left = self._lane.still_differing(self.plan, keys)
            if len(left) <= HOT_KEYS_MAX and len(left) == len(keys):
                return left
            keys = left
        if len(keys) > HOT_KEYS_MAX:
            raise RefusedError(
                f"the copy differs in {len(keys)} rows (one has the key {keys[0]}): the table is untouched"
            )
        return keys
