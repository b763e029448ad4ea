"""A whole agent on a real log: what an owner writes becomes rows, and what it must know comes back as records."""

import threading
import uuid
from typing import Any

import pytest

from headgate.agent.shell.service import AgentOptions, run_agent
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.log import Delivery, LogReader, Partition
from headgate.eventlog.sharding import place
from headgate.eventlog.topics import create_topics
from headgate.records.base import Fact, Key
from headgate.records.control import (
    AgentAnnounced,
    Assignment,
    ReplicationState,
    SpanPlan,
    SpanProgressed,
    TaskReported,
    TaskState,
)
from headgate.records.keys import FeedKey, SpanKey
from support import build
from support.kafka_cluster import Cluster
from support.waiting import END_SECONDS_MAX, eventually

from .conftest import Bed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]


class Owner:
    """Writes what an owner would, and reads what agents say."""

    def __init__(self, log: KafkaLog, bed: Bed, plan: SpanPlan) -> None:
        self._log_writer = log.writer("owner")
        starts = {Partition("announce", 0): 0, Partition("sync", 0): 0, Partition("checkpoint", 0): 0}
        self._reader: LogReader = log.reader(starts)
        self._bed, self._plan = bed, plan
        self.newest: dict[Key, Any] = {}

    def _write(self, key: Key, value: Any) -> None:
        self._log_writer.write([place(Fact(key, value), 0)], 20)

    def find(self, kind: type[Any]) -> Any:
        """The newest record of a kind, with its key."""
        for item in self._reader.poll(1000, 0.1):
            if isinstance(item, Delivery):
                self.newest[item.key] = item.value
        return next(((key, value) for key, value in self.newest.items() if isinstance(value, kind)), None)

    def accept(self) -> None:
        task = self._bed.task(self._plan, 1)
        record = build.feed_recorded(feed_id=task.feed_id, spec=task.spec, spans=(self._plan,))
        self._write(FeedKey(self._bed.feed), record)

    def dispatch(self, state: ReplicationState, session: str) -> None:
        task = self._bed.task(self._plan, 1)
        record = build.span_dispatched(
            feed_id=task.feed_id,
            owner_rev=task.epoch.owner_rev,
            state=state,
            primary=Assignment("a1", session, task.epoch),
        )
        self._write(SpanKey(self._bed.feed, self._plan.span), record)

    def close(self) -> None:
        self._log_writer.close()
        self._reader.close()


def test_a_dispatched_span_is_replicated_reported_and_sealed(bed: Bed) -> None:
    settings = Cluster(bed.bootstrap, f"c{uuid.uuid4().hex[:8]}", shards=1)
    create_topics(settings)
    log = open_log(settings)
    plan = bed.table("goods")
    bed.put(plan, {n: {"name": "x", "qty": n} for n in range(25)})
    owner, stop = Owner(log, bed, plan), threading.Event()
    options = AgentOptions(agent="a1", address="test", lease_seconds=60)
    agent = threading.Thread(target=run_agent, args=(options, log, bed.executor, stop))
    agent.start()
    try:
        key, _ = eventually(lambda: owner.find(AgentAnnounced), "a session")
        owner.dispatch(ReplicationState.COMMIT, key.session)
        owner.accept()
        eventually(lambda: len(bed.rows(plan)) == 25, "rows")
        eventually(lambda: (said := owner.find(SpanProgressed)) and said[1].positions == {0: 25}, "progress to the end")
        eventually(
            lambda: (said := owner.find(TaskReported)) and said[1].state is TaskState.REPLICATING, "a report of it"
        )

        owner.dispatch(ReplicationState.REMOVING, key.session)
        eventually(lambda: owner.find(TaskReported)[1].state is TaskState.STOPPED, "the seal")
        assert owner.find(TaskReported)[1].positions == {0: 25}
    finally:
        stop.set()
        agent.join(END_SECONDS_MAX)
        owner.close()
    assert not agent.is_alive()
