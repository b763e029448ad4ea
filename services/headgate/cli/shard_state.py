"""What a shard's owner knows, from a snapshot of the log."""

from headgate.coordinator.core.state import CoordinatorState, evolve, new_state
from headgate.eventlog.snapshot import Snapshot


def replayed(snapshot: Snapshot, shard: int) -> CoordinatorState:
    """The state an owner of the shard would have."""
    state = new_state(shard)
    for read in snapshot.standing():
        if read.partition.topic == "announce" or read.partition.number == shard:
            evolve(state, read.key, read.value, read.offset)
    return state
