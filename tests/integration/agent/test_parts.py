"""A table shared by two agents, on a real log, broker, Spark and PostgreSQL: divided and made whole under writes."""

import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.agent.core.executor import SpanTask
from headgate.agent.shell.service import AgentOptions, run_agent
from headgate.cli.changes import Permit
from headgate.cli.requests import ask, operation
from headgate.coordinator.shell.effect_runner import FeedWork
from headgate.coordinator.shell.service import CoordinatorService
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.snapshot import read_snapshot
from headgate.eventlog.topics import create_topics
from headgate.observability.probes import Probes
from headgate.records.control import AgentAnnounced, FeedProgressed, OperationKind, ReplicationState, SpanPlan
from headgate.records.keys import AgentKey, FeedProgressKey, SpanKey
from headgate.records.spans import plan_of
from headgate.replication.executor import SparkExecutor
from headgate.runtime.service import ServiceSettings
from support import kafka_cluster
from support.executor_contract import ExecutorContract
from support.waiting import END_SECONDS_MAX, eventually

from .conftest import DEADLINE_SECONDS, Bed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

BATCH = 40

OVERLAP = BATCH // 2
"""Keys of a batch that the next one changes once more; the first of them it deletes."""

PAUSE_SECONDS = 0.05
"""Between two batches of the load: it is to be there all the time, not to fill the broker."""

NOTES = """
CREATE TABLE noted (seq bigint GENERATED ALWAYS AS IDENTITY, id bigint, name text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.noted (id, name) VALUES (coalesce(NEW.id, OLD.id), NEW.name); RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON hot FOR EACH ROW EXECUTE FUNCTION note()
"""
"""What the table itself saw: whatever our own rows at the sink say."""


class Load:
    """Writes rows, changes and deletes until it is stopped; knows what the table must hold."""

    def __init__(self, bed: Bed, plan: SpanPlan) -> None:
        self.expected: dict[int, tuple[str, int]] = {}
        self.events = 0
        self._bed, self._plan = bed, plan
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._over.wait(PAUSE_SECONDS):
            turn += 1
            changes: dict[int, dict[str, object] | None] = {
                turn * OVERLAP + n: {"name": f"turn {turn}", "qty": n} for n in range(BATCH)
            }
            changes[turn * OVERLAP] = None
            self._bed.put(self._plan, changes)
            self.events += len(changes)
            for number, row in changes.items():
                if row is None:
                    self.expected.pop(number, None)
                else:
                    self.expected[number] = (f"turn {turn}", number - turn * OVERLAP)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(END_SECONDS_MAX)
        assert not self._thread.is_alive()


class Cluster:
    """A coordinator and two agents, each on threads of this process."""

    def __init__(self, bed: Bed) -> None:
        bed.runtime.start()  # here, so that no deadline of a test has to wait for a JVM
        settings = kafka_cluster.Cluster(bed.bootstrap, f"c{uuid.uuid4().hex[:8]}", shards=1)
        create_topics(settings)
        self.log: KafkaLog = open_log(settings)
        self._coordinator = CoordinatorService(
            ServiceSettings(
                cluster=settings.cluster, shards=(0,), lease_seconds=10, holder_lease_seconds=60, shutdown_seconds=20
            ),
            self.log,
            FeedWork(self.log.connection, cluster_id=self.log.cluster_id, own_prefix=f"{settings.cluster}."),
            probes=Probes(600),
            registry=CollectorRegistry(),
        )
        self._stop = threading.Event()
        agents = [AgentOptions(agent=f"a{n}", address="test", lease_seconds=60, drain_seconds=0) for n in (1, 2)]
        self._threads = [threading.Thread(target=self._coordinator.run)] + [
            threading.Thread(target=run_agent, args=(options, self.log, bed.executor, self._stop)) for options in agents
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, kind: OperationKind, feed: str, **more: Any) -> str:
        """The outcome of a request that is done."""
        return ask(self.log, operation(kind, feed, **more), DEADLINE_SECONDS, Permit()).reason

    def agents(self) -> set[str]:
        return {key.agent for key, _ in read_snapshot(self.log).each(AgentKey, AgentAnnounced)}

    def holders(self, feed: str) -> dict[str, str]:
        """Which agent has which span, of all that the owner keeps a record of."""
        snapshot = read_snapshot(self.log)
        spans = [key.span for key in snapshot.current if isinstance(key, SpanKey) and key.feed == feed]
        records = {span: snapshot.dispatched(feed, span) for span in spans}
        return {span: record.primary.agent for span, record in records.items() if record and record.primary}

    def checkpoint(self, feed: str, table: str) -> dict[int, int]:
        said = read_snapshot(self.log).get(FeedProgressKey(feed), FeedProgressed)
        return {} if said is None else said.positions.get(table, {})

    def close(self) -> None:
        self._stop.set()
        self._coordinator.stop()
        for thread in self._threads:
            thread.join(END_SECONDS_MAX)
        assert not any(thread.is_alive() for thread in self._threads)


@pytest.fixture
def cluster(bed: Bed) -> Iterator[Cluster]:
    made = Cluster(bed)
    yield made
    made.close()


def test_a_table_is_split_over_two_agents_made_whole_paused_and_resumed_under_writes(
    bed: Bed, cluster: Cluster, tmp_path: Path
) -> None:
    plan = bed.table("hot", partitions=4)
    bed.database.execute(NOTES)
    feed, table = bed.feed, plan.table
    cluster.ask(OperationKind.CREATE_FEED, feed, spec=_spec(bed, plan, tmp_path / "password"))
    eventually(lambda: cluster.holders(feed), "an agent has the table")
    eventually(lambda: cluster.agents() == {"a1", "a2"}, "both agents are there, so each gets a part")
    load = Load(bed, plan)
    try:
        eventually(lambda: bed.rows(plan), "rows")
        before = eventually(lambda: cluster.checkpoint(feed, table), "a checkpoint")
        eventually(lambda: _is_replicating(cluster, feed, table), "the owner knows that it replicates")
        # At once: a new log begins at the schema level that all who are there read, and dividing needs level 2.
        split = cluster.ask(OperationKind.SPLIT_TABLE, feed, table=table, parts=2)
        assert split == "replicating as 2 parts"
        holders = cluster.holders(feed)
        assert sorted(holders) == [f"{table}~0-1", f"{table}~2-3"]
        assert sorted(holders.values()) == ["a1", "a2"]
        reached = cluster.checkpoint(feed, table)
        assert all(reached[partition] >= offset for partition, offset in before.items()), "it goes back"
        eventually(lambda: _grown(_written(bed), reached), "both agents write")
        merged = cluster.ask(OperationKind.MERGE_TABLE, feed, table=table)
        assert merged == "replicating as one"
        assert list(cluster.holders(feed)) == [table]
        paused = cluster.ask(OperationKind.PAUSE_TABLE, feed, table=table)
        assert paused == "paused: the table is sealed at the sink"
        assert cluster.holders(feed) == {}
        sealed_at = _written(bed)
        assert _closed_count(bed) == len(sealed_at), "nobody can write a partition of a paused table"
        resumed = cluster.ask(OperationKind.RESUME_TABLE, feed, table=table)
        assert resumed == "the table resumes from its checkpoint"
        eventually(lambda: _grown(_written(bed), sealed_at), "it is written again")
    finally:
        load.stop()
    eventually(lambda: bed.rows(plan) == load.expected, "target = source")
    eventually(
        lambda: sum(cluster.checkpoint(feed, table).values()) == load.events, "the checkpoint has passed every event"
    )
    assert sum(_written(bed).values()) == load.events
    assert _closed_count(bed) == 0
    history = _history(bed)
    assert history, "nobody took notes"
    for number, turns in history.items():
        assert turns == sorted(set(turns)), f"changes of {number}: each once, in their order"


def _written(bed: Bed) -> dict[int, int]:
    """The next offset of each partition at the sink."""
    return dict(bed.database.execute("SELECT partition, next_offset FROM headgate.progress").fetchall())


def _closed_count(bed: Bed) -> int:
    """Partitions that are sealed at the sink."""
    (count,) = bed.database.execute("SELECT count(*) FROM headgate.progress WHERE closed").fetchone() or (0,)
    return int(count)


def _grown(now: dict[int, int], before: dict[int, int]) -> bool:
    assert now.keys() == before.keys()
    return all(offset > before[partition] for partition, offset in now.items())


def _history(bed: Bed) -> dict[int, list[int]]:
    """id → the turns of the load whose changes of it were written, as they were."""
    history: dict[int, list[int]] = {}
    for number, name in bed.database.execute("SELECT id, name FROM noted ORDER BY seq"):
        turn = number // OVERLAP if name is None else int(name.removeprefix("turn "))
        history.setdefault(number, []).append(turn)
    return history


def _spec(bed: Bed, plan: SpanPlan, password_file: Path) -> str:
    address = conninfo_to_dict(bed.dsn)
    password_file.write_text(str(address.pop("password", "")))
    sink = {"type": "postgresql", "dsn": make_conninfo(**address), "password_file": str(password_file)}
    spec = {"feed": bed.feed, "source": {"topics": [plan.topic]}, "sink": sink}
    return msgspec.json.encode(spec).decode()


def _is_replicating(cluster: Cluster, feed: str, table: str) -> bool:
    record = read_snapshot(cluster.log).dispatched(feed, table)
    return record is not None and record.state is ReplicationState.REPLICATING


class PartsBench:
    """An executor on lanes, with two tables that have rows to apply."""

    def __init__(self, bed: Bed) -> None:
        self.executor: SparkExecutor = bed.executor()
        self._bed = bed
        self._plans = {"t": bed.table("t", partitions=2), "u": bed.table("u")}
        for plan in self._plans.values():
            bed.put(plan, {n: {"name": "x", "qty": n} for n in range(20)})

    def task(self, span: str, n: int) -> SpanTask:
        plan = plan_of(self._plans.values(), span)
        assert plan is not None
        return self._bed.task(plan, n)

    def until(self, fact: Callable[[], bool], what: str) -> None:
        eventually(fact, what)


class TestSparkExecutor(ExecutorContract):
    """Lanes keep the contract of every executor."""

    @pytest.fixture
    def bench(self, bed: Bed) -> PartsBench:
        return PartsBench(bed)
