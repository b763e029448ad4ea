"""A migration of a MariaDB table by strategy online, as far as the copy is made; the feed into the copy is played.

The test moves the feed's row of progress, and says what is on the topic. The real ones are in test_online.py.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from fixtures.services import mariadb_connect
from headgate.formats.change import Change as SourceChange
from headgate.migration.core.copy_steps import Position
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.strategies.contract import Chunk, Memory
from headgate.migration.strategies.examining import checked_plan
from headgate.migration.strategies.mariadb.cutover import MariadbOnline
from headgate.migration.strategies.mariadb.ranges import read_range, write_range
from headgate.migration.strategies.mariadb.server import MariadbServer
from headgate.migration.strategies.mariadb.swap import TableSwap
from headgate.migration.strategies.online.followed import FollowedRows
from headgate.migration.strategies.online.lane import CutOver, LastChange, TopicPosition
from headgate.migration.strategies.online.lane_plan import LanePlan, lane_plan
from headgate.migration.strategies.online.marks import TopicMarks
from headgate.migration.strategies.online.range_work import RangeWork
from headgate.migration.strategies.target import NO_CLUSTER, target_of
from headgate.records.migration import MigrationStrategy

__all__ = ["WHOLE", "Change", "PlayedChanges", "Tail", "cut_over_until_the_rename", "opened"]

WHOLE = Chunk(None, None)
SECONDS = 10.0
"""What clients may wait for: a busy machine needs more than the default."""

PROGRESS = (
    "CREATE TABLE IF NOT EXISTS headgate.progress (feed_id varchar(64), table_name varchar(129), part int, next_offset "
    "bigint, closed boolean, topic_id varchar(64))"
)


class PlayedChanges:
    """Changes that a topic has since the comparison: they come when they are asked for under the lock."""

    def __init__(self, changes: Sequence[SourceChange]) -> None:
        self._left, self._asked = list(changes), 0

    def read(self, upto: Mapping[int, int], seconds: float) -> Iterator[list[SourceChange]]:
        del upto, seconds
        self._asked += 1
        if self._asked > 1 and self._left:
            yield self._left
            self._left = []

    def close(self) -> None:
        pass


class Change:
    """A migration at its database, as far as the copy is made; and the feed, which is played."""

    def __init__(
        self, url: str, folder: Path, statement: str, *, owner_rev: int = 1, migration: str = "m", **more: Any
    ) -> None:
        parts = urlsplit(url)
        password = folder / "password"
        password.write_text(unquote(parts.password or ""), encoding="utf-8")
        self.url, self.folder, self.statement = url, folder, statement
        address = f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
        self.spec = MigrationSpec(
            statement=statement,
            database="shop",
            strategy=MigrationStrategy.ONLINE,
            **more,
        )
        self.server = MariadbServer(migration, target_of(address, str(password)), cluster_id=NO_CLUSTER)
        self.lane = MariadbOnline(self.server)
        self.migration, self.owner_rev = migration, owner_rev
        self.plan: LanePlan
        self.memory: Memory
        self.held = Position("f", {0: 7}, True)

    def make(self) -> "Change":
        self.server.take_over(self.owner_rev)
        statement, plan = checked_plan(self.server, self.spec)
        self.lane.capture(plan.before)
        change = self.lane.form_change(statement, plan)
        self.plan = msgspec.structs.replace(lane_plan(plan, "topic", name_bytes_max=64), change=change)
        memory = Memory(self.owner_rev, 1, "begun", msgspec.json.encode(self.plan).decode())
        self.memory = self.lane.make(statement, self.plan, memory, SECONDS)
        self.plan = msgspec.json.decode(self.memory.before, type=LanePlan)
        return self

    def copied(self) -> "Change":
        """Every row is in the copy, and the feed goes on."""
        self.run(PROGRESS)
        row = f"'f', '{self.schema}.{self.plan.plan.shadow}', 0, 7, TRUE, NULL"
        self.run(f"REPLACE INTO headgate.progress VALUES ({row})")
        self.note("paused")
        work = RangeWork(
            self.migration, self.server.address, self.server.password_file, self.plan.held, self.owner_rev, 1, self.held
        )
        assert write_range(work, WHOLE, [list(read_range(work, WHOLE))]) == self.run("SELECT COUNT(*) FROM items")[0][0]
        self.note("copied")
        self.run("UPDATE headgate.progress SET closed = FALSE")
        return self

    def note(self, stage: Any) -> None:
        self.memory = msgspec.structs.replace(self.memory, stage=stage)
        self.server.note(self.memory)

    def adopted(self) -> "Change":
        """Taken over from another owner."""
        memory = self.server.take_over(self.owner_rev)
        assert memory is not None
        self.memory, self.plan = memory, msgspec.json.decode(memory.before, type=LanePlan)
        self.lane.hold_form(self.plan)
        return self

    @property
    def schema(self) -> str:
        return self.plan.plan.before.schema

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(mariadb_connect(self.url)) as session, session.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def cut_over(
        self,
        tail: Any = None,
        *,
        hot: list[tuple[str, ...]] | None = None,
        changes: Sequence[SourceChange] = (),
        seconds: float = SECONDS,
        built: str | None = None,
    ) -> None:
        is_what = self.lane.built(self.plan) if built is None else built
        marks = TopicMarks(self.lane, self.plan, frozenset({0}))
        tail = tail or Tail(self)
        touched = FollowedRows(self.lane, self.plan, PlayedChanges(changes), hot or [])
        self.lane.cut_over(CutOver(self.plan, self.memory, "f", tail, seconds, is_what, touched, False, marks))

    @property
    def is_changed(self) -> bool:
        return self.server.is_changed(self.memory, self.plan.plan)

    def close(self) -> None:
        self.server.close()


class Tail:
    """The topic's end: a mark is there at once, and in the copy as well, unless ``wait`` takes its time."""

    topic_id = None

    def __init__(self, change: Change, wait: Callable[[int], None] = lambda _number: None) -> None:
        self.found: list[LastChange] = []
        self._change, self._wait = change, wait

    def find(self, changes: Sequence[LastChange], seconds: float) -> list[tuple[TopicPosition, ...]]:
        del seconds
        if not changes:
            return []
        (change,) = changes
        self.found.append(change)
        self._wait(len(self.found))
        self._change.run(f"UPDATE headgate.progress SET next_offset = {100 + len(self.found)}")
        return [(TopicPosition(0, 99 + len(self.found)),)]

    def partitions(self, _seconds: float) -> frozenset[int]:
        return frozenset({0})


@contextmanager
def opened(url: str, folder: Path, statement: str, **more: Any) -> Iterator[Change]:
    with closing(Change(url, folder, statement, **more)) as change:
        yield change.make()


def cut_over_until_the_rename(url: str, folder: str, statement: str, ready: Any) -> None:
    """In a process of its own: everything but the rename, then nothing more."""

    def wait(*_: Any) -> None:
        ready.set()
        time.sleep(600)

    TableSwap.rename = wait  # type: ignore[method-assign]
    with opened(url, Path(folder), statement) as change:
        change.copied().cut_over()
