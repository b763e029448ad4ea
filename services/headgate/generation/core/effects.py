"""Effects that the owner of generations requests outside of its pure machine, and their results.

Effects are idempotent: a new owner asks again for every one whose result is not on the log.
"""

import msgspec

from headgate.generation.core.timestamp_records import RowKey
from headgate.generation.core.topology import Topology
from headgate.records.timestamps import RingKey, RingNode

__all__ = [
    "CheckRows",
    "CreateLog",
    "DeleteLog",
    "EffectRefused",
    "EndsMeasured",
    "EndsWritten",
    "FenceWriter",
    "GrowLog",
    "LogDeleted",
    "LogSeen",
    "LookAtLog",
    "MakeTopology",
    "MeasureEnds",
    "RowsChecked",
    "TopologyMade",
    "WriteEnds",
    "WriterFenced",
]


class CreateLog(msgspec.Struct, frozen=True):
    """Create the topic of a change log and its positions, or check those that exist. Result: LogSeen, EffectRefused.

    ``request`` is the id of the request that asks for it.
    """

    set: str
    topic: str
    partitions: int
    request: str


class GrowLog(msgspec.Struct, frozen=True):
    """Add partitions to a change log's topic until it has ``partitions``. Result: LogSeen, EffectRefused."""

    set: str
    topic: str
    partitions: int


class DeleteLog(msgspec.Struct, frozen=True):
    """Fence the writers, then delete a change log's topics; nothing if its topic has not ``topic_id`` any more.

    A writer that is not fenced could write into a topic of the same name that is created later. Result: LogDeleted.
    """

    set: str
    topic: str
    topic_id: str | None
    writers: tuple[str, ...]


class LookAtLog(msgspec.Struct, frozen=True):
    """Find out what a change log's topic is like now. Result: LogSeen, EffectRefused (it is gone).

    With ``is_check`` also whether another change log has it, which reads the whole topic generation.
    """

    set: str
    topic: str
    is_check: bool = False


class FenceWriter(msgspec.Struct, frozen=True):
    """Take a writer's transactional.id, so that it can write no more, then read its position. Result: WriterFenced."""

    set: str
    epoch: int
    topic: str
    writer: str


class WriteEnds(msgspec.Struct, frozen=True):
    """Write the END markers of a switch: for each of ``cuts`` (writer, position) one on each partition.

    A duplicate marker changes nothing. Result: EndsWritten.
    """

    set: str
    epoch: int
    topic: str
    partitions: tuple[int, ...]
    cuts: tuple[tuple[str, int], ...]


class MeasureEnds(msgspec.Struct, frozen=True):
    """Ask where partitions end. Result: EndsMeasured."""

    set: str
    epoch: int
    topic: str
    partitions: tuple[int, ...]


class MakeTopology(msgspec.Struct, frozen=True):
    """Make the topology of a generation of a timestamp set, too slow for a turn. Result: TopologyMade."""

    set: str
    timestamp_ms: int
    nodes: tuple[RingNode, ...]


class CheckRows(msgspec.Struct, frozen=True):
    """Read the rows of published generations off the log, and compare them with what their ``rings`` make of them.

    An owner does not read its own records, so it cannot detect otherwise what another client has done to them. Result:
    RowsChecked.
    """

    set: str
    rings: dict[int, tuple[RingNode, ...]]


class TopologyMade(msgspec.Struct, frozen=True):
    """The topology of a generation."""

    topology: Topology


class RowsChecked(msgspec.Struct, frozen=True):
    """Rows that are missing or wrong."""

    wrong: tuple[RowKey | RingKey, ...]


class LogSeen(msgspec.Struct, frozen=True):
    """A change log's topic: its id, the end of each partition, and some entropy for new streams' ids.

    ``problem``: why no change log can be on it, or empty.
    """

    topic_id: str | None
    ends: dict[int, int]
    entropy: int
    problem: str = ""


class LogDeleted(msgspec.Struct, frozen=True):
    """The topics of a change log do not exist any more, or, ``is_shared``, stay with another change log."""

    is_shared: bool = False


class WriterFenced(msgspec.Struct, frozen=True):
    """The writer writes no more; ``position`` is the highest that it has written, -1 for none."""

    position: int


class EndsWritten(msgspec.Struct, frozen=True):
    """The writer's END markers are on the log."""


class EndsMeasured(msgspec.Struct, frozen=True):
    """Partition → the offset behind its last record."""

    ends: dict[int, int]


class EffectRefused(msgspec.Struct, frozen=True):
    """It cannot be done, and asking again does not help: what is wrong, where, and what to do."""

    reason: str
