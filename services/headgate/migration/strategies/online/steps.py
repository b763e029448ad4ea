"""The steps of strategy ``online``, one after the other, on a thread of the owner (see core/copy_steps.py).

Each step begins with a check of the database and of the feed, so that a thread that another owner starts finds its
place. The cut-over is not a step: the scheduler requests it, once the thread reports that it is ready.
"""

import time
from typing import Any, Final, cast

import msgspec

from headgate.config.start_offsets import StartOffsets
from headgate.migration.core.copy_steps import CopyStage, CopyStep, FeedSeen, next_step
from headgate.migration.core.progress import percent_of
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.strategies.contract import (
    Chunk,
    DatabaseUnavailableError,
    LockUnavailableError,
    Memory,
    RefusedError,
    SupersededError,
)
from headgate.migration.strategies.online.copying import COPYING, noted_key, read_key
from headgate.migration.strategies.online.followed import FollowedRows, still_differing
from headgate.migration.strategies.online.lane import HOT_KEYS_MAX, CopySink, Held, Row
from headgate.migration.strategies.online.lane_plan import LanePlan
from headgate.migration.strategies.online.marked import POLL_SECONDS, MarkedWork, MigrationParts, Note
from headgate.migration.strategies.online.marks import TopicMarks
from headgate.migration.strategies.online.range_work import RangeWork
from headgate.records.identifiers import show_identifier
from headgate.records.migration_standing import (
    ADDING_KEYS,
    AWAITING_CHANGE,
    AWAITING_TRANSACTIONS,
    READY_TO_CUT_OVER,
    STARTING_FEED,
)
from headgate.records.throttle_reasons import FEED

PROOF_SECONDS: Final = 600.0
"""For a change to come by connector, topic and agent into the copy: a busy machine starts an agent in minutes."""

MARK_SECONDS: Final = 10.0
"""Another row is marked after so long: the first may have been deleted since."""

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
"""Rows that differ are compared again, so many times, because their changes are on their way."""

DIFFERING_KEYS_MAX: Final = 20_000
"""Rows that differ are compared again once all ranges were compared, or there are so many."""

COMPARE_SECONDS: Final = 60.0
"""For the changes that came since to be read and compared."""

AGAIN_SECONDS: Final = 1.0
"""Pause after a database, broker or coordinator did not answer, or a lock was not to be had."""

_PASSING: Final = (LockUnavailableError, DatabaseUnavailableError)


class OnlineWork(MarkedWork):
    """Goes from step to step."""

    def __init__(
        self,
        parts: MigrationParts,
        plan: LanePlan,
        memory: Memory,
        *,
        spec: MigrationSpec,
        note: Note,
        throttle_ratio: float,
    ) -> None:
        super().__init__(parts, plan, memory, spec=spec, note=note, throttle_ratio=throttle_ratio)
        self.behind = ""
        """Why the cut-over found the feed behind; it is ready again after a while."""
        self.position = ""
        """How far the feed is, or the comparison: while it does not change, nothing progresses."""
        self.touched: FollowedRows | None = None
        """Rows that the cut-over compares, once every row was compared."""
        self._spec = spec
        self._behind_most = 0
        self._passing = ""
        self._marked_at = 0.0
        self._mark: Row | None = None
        self._proof_until: float | None = None

    def found(self) -> tuple[Held, TopicMarks, FollowedRows] | None:
        """What a cut-over needs; None while it is not ready for one."""
        if not self.is_ready or self.held is None or self.marks is None or self.touched is None:
            return None
        return self.held, self.marks, self.touched

    # --- steps ---

    def run(self) -> None:
        """See CopyWork. It ends where its main session is lost: whose the migration is must be found out again."""
        try:
            self._lane.hold_form(self.plan)
            while not self.stopping.is_set():
                self._lane.check_ours()
                try:
                    self._step()
                    self._passed_over()
                except _PASSING as error:
                    self.pace.reason = self._passing = str(error)
                    self.stopping.wait(AGAIN_SECONDS)
        except (RefusedError, SupersededError, *_PASSING) as error:
            self.error = error
        finally:
            self.is_ready = False
            if self.touched is not None:
                self.touched.close()
            self._server.let_go()
            self.pace.close()

    def _passed_over(self) -> None:
        """A step was done: whatever did not answer before it holds nothing up any more."""
        if self._passing and self.pace.reason == self._passing:
            self.pace.reason = ""
        self._passing = ""

    def _step(self) -> None:
        record = self._feeds.record(self._feed)
        feed = self._feeds.seen(record)
        step = next_step(cast("CopyStage", self._memory.stage), feed)
        match step:
            case CopyStep.CREATE:
                self._create()
            case CopyStep.PROVE:
                self._prove()
            case CopyStep.HOLD:
                self._hold(record.feed_id)
            case CopyStep.COPY:
                self._copy()
            case CopyStep.RESUME:
                self.stage = "catching up"
                self._feeds.resume(self._feed)
            case CopyStep.CATCH_UP:
                self._know_feed(record)
                self._catch_up(record.error or "")
            case CopyStep.PAUSE:
                self.stage = ADDING_KEYS
                self._feeds.pause(self._feed)
                self.stopping.wait(POLL_SECONDS)
            case CopyStep.ADD_KEYS:
                self._add_keys()
            case CopyStep.END:
                raise RefusedError(self._why_it_ends(feed, record))

    def _why_it_ends(self, feed: FeedSeen, record: Any) -> str:
        if feed is FeedSeen.FAILED:
            return f"the feed into the copy has failed: {record.error}"
        said = "is gone" if feed is FeedSeen.ABSENT else "has been resumed"
        return f"the feed into the copy, {self._feed}, {said} (stage {self._memory.stage}): the table is unchanged"

    def _create(self) -> None:
        self.stage = STARTING_FEED
        held = self.plan.held
        table = show_identifier((held.before.schema, held.shadow))
        start = None
        if self.plan.is_back and self.held is not None:
            start = StartOffsets(offsets=self.held.reached, topic_id=self.held.topic_id)
        sink = CopySink(self._lane.sink_kind(), self._spec.database, table, rounds=bool(self._spec.allow_lossy))
        self._feeds.create(self._feed, self.plan.source, sink, start=start)

    def _prove(self) -> None:
        """See one change come through; a table without rows has none to show."""
        self.stage = AWAITING_CHANGE
        now = time.monotonic()
        self._proof_until = self._proof_until or now + PROOF_SECONDS
        if self._mark is None or now - self._marked_at > MARK_SECONDS:
            mark = self._lane.mark(self.plan)
            self._mark, self._marked_at = None if mark is None else mark.row, now
        if self._mark is None:
            self._pause_when_claimed(now)
            return
        if self._lane.has(self.plan, self._mark):
            self._check_marks()
            self._feeds.pause(self._feed)
            self.stopping.wait(POLL_SECONDS)  # asked before by an owner that died: it is on its way
        elif now > self._proof_until:
            raise RefusedError(
                f"a change of the table has not come into the copy by topic {self.plan.topic} within "
                f"{PROOF_SECONDS:g} s: does its connector run and capture this table, and is there an agent? See "
                f"`headgate why {self._feed}`. The table is untouched"
            )
        else:
            self.stopping.wait(POLL_SECONDS)

    def _pause_when_claimed(self, now: float) -> None:
        record = self._feeds.record(self._feed)
        if record is not None and self._lane.position(self.plan, record.feed_id) is not None:
            self._feeds.pause(self._feed)
        elif self._proof_until is not None and now > self._proof_until:
            raise RefusedError(f"feed {self._feed} has no agent that runs it: see `headgate why {self._feed}`")
        else:
            self.stopping.wait(POLL_SECONDS)

    def _hold(self, feed_id: str) -> None:
        self.stage = AWAITING_TRANSACTIONS
        position = self._lane.position(self.plan, feed_id)
        partitions = self._marks().partitions
        if position is None or not position.is_closed or set(position.offsets) != partitions:
            raise DatabaseUnavailableError(f"{FEED}{self._feed} is stopped, but not sealed at its sink: {position}")
        is_hidden = self._lane.hidden(self.plan)
        while is_hidden():
            if self.stopping.wait(POLL_SECONDS):
                return
        self.held = Held(position, self._lane.built(self.plan))
        self._remember("paused")

    def _copy(self) -> None:
        self.stage = COPYING
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
        at = read_key(self.note.upto)
        is_last = False
        asked = time.monotonic()

        def next_ranges(count: int) -> list[Chunk]:
            nonlocal at, is_last, asked
            self.pace.slow_down(time.monotonic() - asked)
            asked = time.monotonic()
            found: list[Chunk] = []
            while len(found) < count and not is_last and not self.stopping.is_set():
                upto = self._server.next_bound(held, at, rows)
                found.append(Chunk(at, upto))
                at, is_last = upto, upto is None
            return found

        def copied(chunks: list[Chunk], count: int) -> None:
            self.note.rows += count
            self.percent = percent_of(self.note.rows, held.before.rows)
            if chunks[-1].upto is not None:
                self.note.upto = noted_key(chunks[-1].upto)

        self._copier.copy(work, next_ranges, copied, self.stopping)
        if is_last and not self.stopping.is_set():
            self._remember("copied")

    def _know_feed(self, record: Any) -> None:
        """In a revert the feed may have existed before, or have been started again."""
        assert self.held is not None  # noqa: S101 - it is remembered with the stage
        position = self.held.position
        if self.plan.is_back and position.feed_id != record.feed_id:
            self.held = msgspec.structs.replace(
                self.held, position=msgspec.structs.replace(position, feed_id=record.feed_id)
            )
            self._remember(self._memory.stage)

    def _catch_up(self, error: str) -> None:
        """Catch up, then compare, then watch. ``error``: why the feed waits, if it reports that."""
        assert self.held is not None  # noqa: S101 - it is remembered with the stage
        if self.behind:
            self._wait_for_feed(self.behind, HEALTH_SECONDS)
            self.behind = ""
            return
        position = self._lane.position(self.plan, self.held.position.feed_id)
        ends = self._feeds.ends(self.plan.topic)
        behind = None if position is None else sum(ends.values()) - sum(position.offsets.values())
        self.position = "" if position is None else f"feed {sorted(position.offsets.items())}"
        if behind is None or behind > LAG_OFFSETS_MAX:
            not_begun = f"{FEED}{self._feed} has not started. Check that an agent runs: `headgate why {self._feed}`"
            self._wait_for_feed(error or (not_begun if behind is None else f"{behind} changes behind"), POLL_SECONDS)
            self._count_behind(behind)
            return
        self.pace.reason = ""
        self._marks()
        if self.plan.keys and self._memory.stage == "copied":
            self._reach(position)
        elif self.touched is None:
            self.stage = "comparing"
            self._compare({} if position is None else position.offsets)
        elif not self.is_ready:
            self.stage, self.is_ready = READY_TO_CUT_OVER, True
        else:
            self.touched.compare({} if position is None else position.offsets, COMPARE_SECONDS)
            self.stopping.wait(HEALTH_SECONDS)

    def _count_behind(self, behind: int | None) -> None:
        """How much of the way to the topic's end is made, from where the feed was farthest behind."""
        if behind is not None:
            self._behind_most = max(self._behind_most, behind)
            self.percent = percent_of(self._behind_most - behind, self._behind_most)

    def _compare(self, offsets: dict[int, int]) -> None:
        """Compare every row, while the feed continues; then again those that differed: their changes were on their way.

        ``offsets``: where the feed is. What it brings from there on is compared again.
        """
        touched = FollowedRows(self._lane, self.plan, self._feeds.changes(self.plan.source, offsets))
        try:
            touched.hot.update(self._differing())
        except BaseException:
            touched.close()
            raise
        if self.stopping.is_set():
            touched.close()
        else:
            self.touched = touched

    def _differing(self) -> list[Row]:
        above, found, ranges = None, [], 0
        rows = max(self.note.rows, self.plan.held.before.rows)
        while not self.stopping.is_set():
            begun = time.monotonic()
            self.percent = percent_of(ranges * COMPARE_ROWS, rows)
            self.position = f"compared {above}"
            upto = self._server.next_bound(self.plan.held, above, COMPARE_ROWS)
            found += self._lane.differing(self.plan, Chunk(above, upto))
            if len(found) > DIFFERING_KEYS_MAX:
                found = self._settled(found)
            self.pace.slow_down(time.monotonic() - begun)
            if upto is None:
                break
            above, ranges = upto, ranges + 1
        return self._settled(found)

    def _settled(self, keys: list[Row]) -> list[Row]:
        """Those of ``keys`` that still differ after a while. RefusedError if they are too many."""
        for _ in range(ROUNDS_MAX):
            left = still_differing(self._lane, self.plan, keys)
            if not left or (len(left) <= HOT_KEYS_MAX and len(left) == len(keys)):
                return left
            keys = left
            if self.stopping.wait(ROUND_SECONDS):
                return keys
        if len(keys) > HOT_KEYS_MAX:
            raise RefusedError(
                f"the copy differs in {len(keys)} rows (one has the key {keys[0]}): the table is unchanged"
            )
        return keys
