"""The control topics' state, as commands read it: on a terminal they show that they wait for it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headgate.cli.waiting import waiting
from headgate.eventlog import snapshot
from headgate.eventlog.log import Delivery, Log, Partition
from headgate.eventlog.replay import read_to_end
from headgate.eventlog.snapshot import Snapshot

__all__ = ["deliveries", "read_snapshot", "reading_topics"]


@contextmanager
def reading_topics() -> Iterator[None]:
    """Show on a terminal that the control topics are read."""
    with waiting("the control topics to be read"):
        yield


def read_snapshot(log: Log, partitions: Iterable[Partition] | None = None) -> Snapshot:
    """The state now. Raises LogError."""
    with reading_topics():
        return snapshot.read_snapshot(log, partitions)


def deliveries(log: Log, partitions: Iterable[Partition]) -> list[Delivery]:
    """Every record that compaction has left, in the order of each partition. Raises LogError."""
    with reading_topics():
        return [read for read in read_to_end(log, sorted(partitions)) if isinstance(read, Delivery)]
