"""What of strategy ``online`` needs marks: that every partition of the topic has a row, and when unique keys may come.

The thread's other steps are in steps.py.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from headgate.migration.core.copy_steps import Position
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.strategies.contract import Chunk, CopyPlan, DatabaseUnavailableError, Memory, RefusedError
from headgate.migration.strategies.online.copying import CopyWork
from headgate.migration.strategies.online.followed import check_complete
from headgate.migration.strategies.online.lane import Held, Lane, Marked
from headgate.migration.strategies.online.lane_plan import LanePlan, several_and_unique
from headgate.migration.strategies.online.marks import TopicMarks
from headgate.migration.strategies.online.range_work import RangeWork
from headgate.migration.strategies.planning import equal_rows, unproven_keys
from headgate.records.migration_standing import ADDING_KEYS

POLL_SECONDS: Final = 0.2

REACH_SECONDS: Final = 60.0
"""For marks to come to every partition of the topic, once it is known that changes come."""

STOP_POLL_SECONDS: Final = 0.5


def which_rows(server: Any, plan: CopyPlan, error: RefusedError) -> RefusedError:
    """The error of a unique key that could not be added, with the columns in which rows of the table are equal."""
    for key in unproven_keys(plan):
        if server.duplicates(plan, key) is not None:
            return RefusedError(
                f"{equal_rows(plan, key)}, written since the change was submitted: {error}. The table is untouched"
            )
    return error


class Copier(Protocol):
    """Copies ranges by a streaming query of Spark's."""

    def copy(
        self,
        work: RangeWork,
        next_ranges: Callable[[int], list[Chunk]],
        copied: Callable[[list[Chunk], int], None],
        stopping: threading.Event,
    ) -> None:
        """Until ``next_ranges(how many)`` gives none; ``copied`` gets ranges with the number of their rows, in order.

        Raises what reading and writing a range raise.
        """
        ...


class Note(msgspec.Struct, omit_defaults=True):
    """What the log keeps: the key up to which every row is copied."""

    upto: list[Any] | None = None
    rows: int = 0


class MigrationParts(NamedTuple):
    """What a migration is done with: its database, its feed by name, and Spark."""

    server: Any
    lane: Lane
    feeds: Any
    feed: str
    copier: Copier


class MarkedWork(CopyWork):
    """The thread, as far as it sets marks."""

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
        super().__init__(parts.server, spec, throttle_ratio, rows_before=note.rows, lags=parts.feeds.lags())
        self.plan, self.note = plan, note
        self.held = msgspec.json.decode(memory.after, type=Held) if memory.after else None
        self.marks: TopicMarks | None = None
        self._memory = memory
        self._server, self._lane, self._feeds, self._feed, self._copier = parts
        self._reached: Marked | None = None
        """The marks that the feed must have passed before unique keys are added."""

    @abstractmethod
    def run(self) -> None:
        """See CopyWork."""

    def _check_marks(self) -> None:
        """Before anything is copied: every partition must have a row that can be marked, or no cut-over can be sure."""
        before = self._feeds.ends(self.plan.topic)
        marked = self._set_marks()
        if marked.is_late:
            raise DatabaseUnavailableError(f"marks have not come to topic {self.plan.topic} in {REACH_SECONDS:g} s")
        if (missing := self._marks().partitions - set(marked.reached)) and self._lane.rows(self.plan, 1):
            raise RefusedError(
                f"no row of the table was found whose changes go to partitions {sorted(missing)} of topic "
                f"{self.plan.topic}, so it cannot be known when all changes have arrived. Use strategy direct, "
                "or pt-osc at MariaDB. The table is unchanged"
            )

        self._check_events(before, marked)

    def _check_events(self, before: dict[int, int], marked: Marked) -> None:
        """The marks' own events show whether events carry every column."""
        with closing(self._feeds.changes(self.plan.source, before)) as found:
            for changes in found.read(marked.reached, REACH_SECONDS):
                for change in changes:
                    check_complete(self.plan, change)

    def _marks(self) -> TopicMarks:
        if self.marks is None:
            partitions = frozenset(self._feeds.ends(self.plan.topic))
            if self.plan.compares_rows and len(partitions) > 1:  # since the submission
                raise several_and_unique(self.plan)
            self.marks = TopicMarks(self._lane, self.plan, partitions)
        return self.marks

    def _set_marks(self) -> Marked:
        with closing(self._feeds.tail(self.plan.source)) as tail:
            return self._marks().set(tail, REACH_SECONDS)

    def _reach(self, position: Position | None) -> None:
        """See the feed come past all that was read: from then on the copy is the table as it was at some time."""
        if self._reached is None:
            marked = self._set_marks()
            if (missing := self._marks().partitions - set(marked.reached)) and (
                self._lane.rows(self.plan, 1) or not self._lane.is_copy_empty(self.plan)
            ):
                self._wait_for_feed(f"no mark has come to partitions {sorted(missing)} of the topic", POLL_SECONDS)
                return
            self._reached = marked
        if position is None or position.is_behind(self._reached.reached, self._reached.topic_id):
            self._wait_for_feed("", POLL_SECONDS)
        else:
            self._remember("level")

    def _add_keys(self) -> None:
        self.stage = ADDING_KEYS
        try:
            self._memory = self._lane.add_keys(self.plan, msgspec.structs.replace(self._memory, stage="keyed"))
        except RefusedError as error:
            raise which_rows(self._server, self.plan.plan, error) from error

    def stop(self) -> None:
        """See CopyWork; an index that is being built is not waited for."""
        self.stopping.set()
        while self.is_alive():
            if self.stage == ADDING_KEYS:
                self._lane.break_off()
            self.join(STOP_POLL_SECONDS)

    def _wait_for_feed(self, why: str, seconds: float) -> None:
        self.stage, self.is_ready, self.pace.reason = "catching up", False, why
        self.stopping.wait(seconds)

    def _remember(self, stage: Any) -> None:
        after = "" if self.held is None else msgspec.json.encode(self.held).decode()
        self._memory = msgspec.structs.replace(self._memory, stage=stage, after=after)
        self._server.note(self._memory)
