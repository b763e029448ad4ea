"""What a session says of itself, made here for the agent as for whoever plays one (simulation, search, scenarios).

Once each of them made these records by itself, and the agent alone said the wrong schema version (docs/bugs.md, B11).
"""

from headgate import SCHEMA_VERSION, __version__
from headgate.records.control import AgentAnnounced, Liveness, SyncAnswered

__all__ = ["announced", "answered"]


def announced(
    liveness: Liveness,
    heartbeat: int,
    now_ms: int,
    *,
    capacity_spans: int,
    address: str,
    load_bytes_per_s: float = 0.0,
    reads: int = SCHEMA_VERSION,
) -> AgentAnnounced:
    """One heartbeat; ``reads`` is the newest schema version that this build reads (docs/adr/0008)."""
    return AgentAnnounced(
        version=__version__,
        schema_version=reads,
        capacity_spans=capacity_spans,
        load_bytes_per_s=load_bytes_per_s,
        liveness=liveness,
        address=address,
        heartbeat=heartbeat,
        announced_ms=now_ms,
    )


def answered(owner_rev: int | None, task_count: int, now_ms: int, *, reads: int = SCHEMA_VERSION) -> SyncAnswered:
    """The answer to the owner of a term; None for a new session's own word."""
    return SyncAnswered(owner_rev=owner_rev, schema_version=reads, task_count=task_count, answered_ms=now_ms)
