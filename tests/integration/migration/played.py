"""A migration by strategy online at either database, whose connector and agent the test plays; the sink is real.

A test changes the table, says what events the topic has of it, and cuts over. The real ones are in test_online.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import pytest

from fixtures.services import database_connect
from headgate.config.sink_spec import SinkSpec
from headgate.formats.change import Change, Operation
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.strategies.contract import Chunk, Memory
from headgate.migration.strategies.examining import checked_plan
from headgate.migration.strategies.mariadb.cutover import MariadbOnline
from headgate.migration.strategies.mariadb.server import MariadbServer
from headgate.migration.strategies.online.followed import FollowedRows
from headgate.migration.strategies.online.lane import CutOver, LastChange, TopicPosition
from headgate.migration.strategies.online.lane_plan import LanePlan, lane_plan
from headgate.migration.strategies.online.marks import TopicMarks
from headgate.migration.strategies.online.range_work import RangeWork
from headgate.migration.strategies.online.strategy import OnlineStrategy
from headgate.migration.strategies.postgresql.cutover import PostgresOnline
from headgate.migration.strategies.postgresql.server import PostgresServer
from headgate.migration.strategies.ranges import read_range, write_range
from headgate.migration.strategies.target import NO_CLUSTER, target_of
from headgate.records.migration import MigrationStrategy
from headgate.sinks.contract import ChangeBatch, OffsetRange, SinkError
from headgate.sinks.registry import open_sink
from support import build

__all__ = ["WHOLE", "Played", "delete", "played", "upsert"]

WHOLE = Chunk(None, None)
SECONDS = 20.0
"""What clients may wait for: a busy machine needs more than the default."""


def upsert(key: Mapping[str, Any], **others: Any) -> Change:
    """An event, at a place that ``Played`` gives it."""
    return Change(0, 0, Operation.UPSERT, dict(key), {**key, **others}, None, 0)


def delete(key: Mapping[str, Any]) -> Change:
    return Change(0, 0, Operation.DELETE, dict(key), None, None, 0)


class Played:
    """``topic`` are its changes: those up to ``applied`` are in the copy."""

    topic_id = None

    def __init__(self, url: str, folder: Path, change: str, **more: Any) -> None:
        parts = urlsplit(url)
        (folder / "password").write_text(unquote(parts.password or ""), encoding="utf-8")
        self.url, self.is_mariadb = url, parts.scheme == "mysql"
        self.spec = MigrationSpec(
            statement=f"ALTER TABLE items {change}",
            database="shop",
            strategy=MigrationStrategy.ONLINE,
            topic="topic",
            **more,
        )
        self._address = f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
        target = target_of(self._address, str(folder / "password"))
        self.server: Any = (
            MariadbServer("m", target, cluster_id=NO_CLUSTER)
            if self.is_mariadb
            else PostgresServer("m", target, cluster_id=NO_CLUSTER)
        )
        self.lane: Any = MariadbOnline(self.server) if self.is_mariadb else PostgresOnline(self.server)
        self.strategy = OnlineStrategy(self.server, self.lane, None, None, "m")
        self.topic: list[Change | None] = []
        self.partition_count = 1
        self.applied = 0
        self.is_stopped = False
        """The agent has met a change that it cannot apply, and applies nothing more."""
        self.plan: LanePlan
        self.memory: Memory
        self.built = ""
        self._writer: Any = None

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        with closing(database_connect(self.url)) as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    # --- as the steps of a migration ---

    def make(self) -> "Played":
        self.server.take_over(1)
        statement, plan = checked_plan(self.server, self.spec)
        found = lane_plan(plan, "topic", name_bytes_max=self.server.name_bytes_max)
        change = self.lane.form_change(statement, plan)
        self.plan = msgspec.structs.replace(found, publication=self.lane.capture(plan.before), change=change)
        self.lane.try_forms(statement, self.plan)
        memory = Memory(1, 1, "begun", msgspec.json.encode(self.plan).decode())
        self.memory = self.lane.make(statement, self.plan, memory, SECONDS)
        self.plan = msgspec.json.decode(self.memory.before, type=LanePlan)
        return self

    def copied(self, *, keyed: bool = True) -> "Played":
        held = self.plan.held
        self._claim(f"{held.before.schema}.{held.shadow}")
        self.run("UPDATE headgate.progress SET closed = true")
        self._note("paused")
        self.built = self.lane.built(self.plan)
        position = self.lane.position(self.plan, self._feed)
        assert position is not None
        work = RangeWork("m", self.server.address, self.server.password_file, held, 1, 1, position)
        write_range(work, WHOLE, [list(read_range(work, WHOLE))])
        self.run("UPDATE headgate.progress SET closed = false")
        self._note("copied")
        if keyed:
            self.keyed()
        return self

    def keyed(self) -> None:
        if self.plan.keys:
            self._note("level")
            self.memory = self.lane.add_keys(self.plan, msgspec.structs.replace(self.memory, stage="keyed"))

    def _claim(self, table: str) -> None:
        kind = "mysql" if self.is_mariadb else "postgresql"
        spec = {"type": kind, "dsn": self._address, "password_file": self.server.password_file}
        rounding = "allow" if self.spec.allow_lossy else "refuse"
        sink = open_sink(SinkSpec.model_validate(spec | {"rounding": rounding, "not_the_source": True}))
        claim = build.claim(table=table, topic="topic")
        sink.claim(claim)
        self._sink, self._asked, self._feed, self._writer = sink, claim, claim.identity.feed_id, sink.writer()

    def _note(self, stage: Any) -> None:
        self.memory = msgspec.structs.replace(self.memory, stage=stage)
        self.server.note(self.memory)

    # --- as connector and agent ---

    def send(self, *changes: Change) -> None:
        """Onto the topic, and into the copy."""
        for change in changes:
            self.topic.append(msgspec.structs.replace(change, offset=len(self.topic)))
        self._apply()

    def refused(self, change: Change) -> SinkError:
        """Onto the topic; the copy refuses it, and the feed stands still from there on. Returns the copy's reason."""
        with pytest.raises(SinkError) as found:
            self.send(change)
        self.is_stopped = True
        return found.value

    def late(self, *changes: Change) -> None:
        """Onto the topic; the agent applies them when the cut-over waits for its own changes."""
        self.topic += [msgspec.structs.replace(each, offset=len(self.topic) + n) for n, each in enumerate(changes)]

    def _apply(self) -> None:
        if self.is_stopped:
            return
        end = len(self.topic)
        changes = [change for change in self.topic[self.applied : end] if change is not None]
        self._writer.apply(ChangeBatch(self._asked, {0: OffsetRange(self.applied, end)}, changes))
        self.applied = end

    def find(self, changes: Sequence[LastChange], _seconds: float) -> list[tuple[TopicPosition, ...]]:
        """As the topic's end: each change has come, and is in the copy."""
        self.topic += [None] * len(changes)
        if changes:
            self._apply()
        return [(TopicPosition(0, len(self.topic) - 1),) for _ in changes]

    def partitions(self, _seconds: float) -> frozenset[int]:
        """As the topic's end."""
        return frozenset(range(self.partition_count))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
        self.strategy.close()

    # --- the cut-over ---

    def followed(self, hot: Sequence[tuple[str, ...]] = ()) -> FollowedRows:
        """From here on changes of the topic are compared again."""
        return FollowedRows(self.lane, self.plan, _Changes(self, len(self.topic)), hot)

    def cut_over(self, touched: FollowedRows | None = None, *, seconds: float = SECONDS) -> None:
        marks = TopicMarks(self.lane, self.plan, frozenset({0}))
        followed = touched or self.followed()
        self.lane.cut_over(
            CutOver(self.plan, self.memory, self._feed, self, seconds, self.built, followed, False, marks)  # type: ignore[arg-type]
        )

    @property
    def is_changed(self) -> bool:
        memory = self.server.take_over(1)
        assert memory is not None
        return bool(self.server.is_changed(memory, self.plan.plan))


class _Changes:
    """See lane.Changes."""

    def __init__(self, played: Played, start: int) -> None:
        self._played, self._next = played, start

    def read(self, upto: Mapping[int, int], _seconds: float) -> Iterator[list[Change]]:
        end = max(self._next, upto.get(0, 0))
        found = [change for change in self._played.topic[self._next : end] if change is not None]
        self._next = end
        if found:
            yield found

    def close(self) -> None:
        pass


@contextmanager
def played(url: str, folder: Path, change: str, **more: Any) -> Iterator[Played]:
    with closing(Played(url, folder, change, **more)) as found:
        yield found.make().copied()
