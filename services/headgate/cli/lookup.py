"""Looked up in a snapshot of the log: a feed by its name, and what a shard's owner knows."""

from difflib import get_close_matches

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.coordinator.core.state import CoordinatorState, evolve, new_state
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import FeedRecorded
from headgate.records.keys import FeedKey


def replayed(snapshot: Snapshot, shard: int) -> CoordinatorState:
    """The state an owner of the shard would have."""
    state = new_state(shard)
    for read in snapshot.standing():
        if read.partition.topic == "announce" or read.partition.number == shard:
            evolve(state, read.key, read.value, read.offset)
    return state


def find_feed(snapshot: Snapshot, feed: str) -> FeedRecorded:
    """The feed's record; raises CommandError with the names there are."""
    record = snapshot.get(FeedKey(feed), FeedRecorded)
    if record is None:
        names = [key.feed for key, _ in snapshot.each(FeedKey, FeedRecorded)]
        near = get_close_matches(feed, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        there = f"{hint}there are {', '.join(names)}" if names else "there are none yet: `headgate feed create FILE`"
        raise CommandError(ExitCode.NOT_FOUND, f"no feed is called {feed!r}; {there}")
    return record
