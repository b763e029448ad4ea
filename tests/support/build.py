"""Builders of records and of what sinks are given: each has a default for what a test is not about.

``build.feed_recorded(state=FeedState.STOPPED)`` is a running feed but for its state. Arguments are the record's fields,
by name.
"""

from typing import Any

from headgate.records.control import (
    AgentAnnounced,
    Epoch,
    FeedProgressed,
    FeedRecorded,
    FeedState,
    Liveness,
    OperationRequested,
    OwnerAnnounced,
    ReplicationState,
    SpanDispatched,
    SpanPlan,
    SpanProgressed,
    TaskReported,
    WantedState,
)
from headgate.sinks.contract import Claim, FeedIdentity

FEED_ID = "0-1"
IDENTITY = FeedIdentity("c", FEED_ID, "shop")


def feed_recorded(**fields: Any) -> FeedRecorded:
    """A feed that runs and has no spans."""
    given: dict[str, Any] = {
        "feed_id": FEED_ID,
        "owner_rev": 1,
        "incarnation": 1,
        "spec": "{}",
        "spans": (),
        "wanted": WantedState.RUNNING,
        "state": FeedState.NORMAL,
        "error_code": None,
        "error": None,
        "request": None,
        "changed_ms": 0,
    }
    return FeedRecorded(**given | fields)


def feed_of(topic: str, *tables: str, partitions: int) -> FeedRecorded:
    """A feed that runs, of one topic for all its tables."""
    start = dict.fromkeys(range(partitions), 0)
    return feed_recorded(incarnation=0, spans=tuple(SpanPlan(table, topic, table, start) for table in tables))


def feed_progressed(**fields: Any) -> FeedProgressed:
    """A checkpoint without positions."""
    given: dict[str, Any] = {
        "feed_id": FEED_ID,
        "incarnation": 1,
        "owner_rev": 1,
        "positions": {},
        "checkpoint_ts": None,
        "held_by": None,
        "progressed_ms": 0,
    }
    return FeedProgressed(**given | fields)


def span_dispatched(**fields: Any) -> SpanDispatched:
    """A span that replicates without anybody assigned."""
    given: dict[str, Any] = {
        "feed_id": FEED_ID,
        "incarnation": 1,
        "owner_rev": 1,
        "state": ReplicationState.REPLICATING,
        "primary": None,
        "secondary": None,
        "sealed": False,
        "moving_request": None,
        "failures": 0,
        "last_error": None,
    }
    return SpanDispatched(**given | fields)


def span_progressed(**fields: Any) -> SpanProgressed:
    """Progress of a span that has applied nothing."""
    given: dict[str, Any] = {
        "feed_id": FEED_ID,
        "epoch": Epoch(0, 1),
        "positions": {},
        "seen_ts": None,
        "resolved_ts": None,
        "rows": 0,
        "bytes": 0,
        "lag_ms": 0,
        "progressed_ms": 0,
    }
    return SpanProgressed(**given | fields)


def task_reported(**fields: Any) -> TaskReported:
    """An agent's report without an error. ``state`` has no default."""
    given: dict[str, Any] = {
        "feed_id": FEED_ID,
        "epoch": Epoch(0, 1),
        "positions": {},
        "error_code": None,
        "error": None,
        "retryable": False,
        "reported_ms": 0,
    }
    return TaskReported(**given | fields)


def agent_announced(**fields: Any) -> AgentAnnounced:
    """An agent that lives and has room."""
    given: dict[str, Any] = {
        "version": "1",
        "schema_version": 1,
        "capacity_spans": 10,
        "load_bytes_per_s": 0.0,
        "liveness": Liveness.ALIVE,
        "address": "",
        "heartbeat": 1,
        "announced_ms": 0,
    }
    return AgentAnnounced(**given | fields)


def owner_announced(**fields: Any) -> OwnerAnnounced:
    """An owner that announces itself for the first time."""
    given: dict[str, Any] = {
        "owner_id": "o",
        "owner_rev": None,
        "version": "test",
        "schema_version": 1,
        "lease_seconds": 5.0,
        "announced_ms": 0,
    }
    return OwnerAnnounced(**given | fields)


def operation_requested(**fields: Any) -> OperationRequested:
    """An operator's request. ``kind`` has no default."""
    given: dict[str, Any] = {
        "feed": "shop",
        "spec": None,
        "table": None,
        "agent": None,
        "requested_by": "tester",
        "requested_ms": 0,
    }
    return OperationRequested(**given | fields)


def claim(**fields: Any) -> Claim:
    """A claim of the first epoch, of one partition from its start."""
    given: dict[str, Any] = {
        "identity": IDENTITY,
        "table": "public.t",
        "topic": "topic",
        "epoch": Epoch(1, 1),
        "incarnation": 0,
        "start": {0: 0},
    }
    return Claim(**given | fields)
