"""A session's announcements, shared by the agent and everything that simulates one.

When each of them made these records by itself, the agent alone wrote the wrong schema version (docs/bugs.md, B11).
"""

from headgate import SCHEMA_VERSION, __version__
from headgate.records.control import AgentAnnounced, Liveness, SyncAnswered
from headgate.records.levels import withheld


def announced(
    liveness: Liveness,
    heartbeat: int,
    now_ms: int,
    *,
    capacity_spans: int,
    address: str,
    load_bytes_per_s: float = 0.0,
    lease_seconds: float | None = None,
    level: int = SCHEMA_VERSION,
    reads: int = SCHEMA_VERSION,
) -> AgentAnnounced:
    """One heartbeat; ``reads`` is the newest level that this build reads, ``level`` the log's (docs/adr/0008)."""
    told = AgentAnnounced(
        version=__version__,
        schema_version=reads,
        capacity_spans=capacity_spans,
        load_bytes_per_s=load_bytes_per_s,
        liveness=liveness,
        address=address,
        heartbeat=heartbeat,
        announced_ms=now_ms,
        lease_seconds=lease_seconds,
    )
    return withheld(told, level)


def answered(owner_rev: int | None, task_count: int, now_ms: int, *, reads: int = SCHEMA_VERSION) -> SyncAnswered:
    """The answer to the owner of a term; None for a new session's own word."""
    return SyncAnswered(owner_rev=owner_rev, schema_version=reads, task_count=task_count, answered_ms=now_ms)
