"""A feed that reads the change log: agents with a part of its partitions each, one sink, and the feed's coordinator.

As the product's lanes do: a batch's end is taken first, then the topic generation is read to its end, and what may be
applied follows from that and from the sink's positions (changelog/core/bounds.py). An agent may stop between any two
of these steps; of other agents' partitions it knows what the sink had some time ago.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from headgate.generation.changelog.core.bounds import bounds_of, gaps_of, read_epoch_of
from headgate.records.base import Fact
from headgate.records.generation import ReaderKey, ReaderReported
from headgate_lab.memory_log.log import MemoryBroker
from headgate_lab.simulation.switches.actors import SET, Follower, has_current
from headgate_lab.simulation.switches.data_log import DataLog, DataRecord

READER: Final = "feed"
ROWS_MAX: Final = 4


class SinkOfFeed(msgspec.Struct):
    """Positions at the sink: they move with what is applied, and outlive every agent. ``parts``: the table's."""

    positions: dict[int, int]
    parts: list[tuple[int, ...]]


class FeedCoordinator(Follower):
    """Reports on the topic generation up to which switch the sink has all, and finds what the log has gained."""

    def __init__(self, broker: MemoryBroker, sink: SinkOfFeed) -> None:
        super().__init__(broker)
        self._sink = sink
        self._said: int | None = None

    def step(self) -> None:
        """One look."""
        while self.follow():
            pass
        if not has_current(self.state):
            return
        self._add_partitions(self.state.sets[SET].partitions)
        epoch = read_epoch_of(self.state, SET, self._sink.positions)
        if epoch != self._said:
            self._said = epoch
            self.say(Fact(ReaderKey(SET, READER), ReaderReported(epoch, 0)))

    def _add_partitions(self, partitions: int) -> None:
        """Those that are new become a part of the table, which reads them from their beginning."""
        added = tuple(range(len(self._sink.positions), partitions))
        if added:
            self._sink.parts.append(added)
            self._sink.positions.update(dict.fromkeys(added, 0))


class FeedAgent(Follower):
    """One life of an agent with ``own`` partitions of the log."""

    def __init__(
        self,
        broker: MemoryBroker,
        data: DataLog,
        sink: SinkOfFeed,
        own: tuple[int, ...],
        deliver: Callable[[DataRecord], None],
        *,
        strict: bool,
    ) -> None:
        super().__init__(broker)
        self._data, self._sink, self._own, self._deliver, self._strict = data, sink, own, deliver, strict
        self._known = dict(sink.positions)
        self._is_open = False
        self._batch: tuple[int, list[DataRecord], int] | None = None
        self._turn = 0

    def step(self) -> None:
        """Open, look at the sink, take a batch, or apply what may be applied of it."""
        self._turn += 1
        if not self._is_open:
            self._open()
        elif self._batch is not None:
            self._apply(*self._batch)
            self._batch = None
        elif self._turn % 3 == 0:
            self._known = dict(self._sink.positions)
        else:
            partition = self._own[self._turn // 3 % len(self._own)]
            position = self._sink.positions[partition]
            self._batch = (partition, *self._data.read(partition, position, ROWS_MAX, None))

    def _open(self) -> None:
        ends = dict(self._data.ends)
        while self.follow():
            pass
        self._is_open = READER in self.state.readers.get(SET, {})
        gaps = gaps_of(self.state, SET, self._own_positions(), ends) if self._is_open else {}
        if gaps:
            raise AssertionError(f"a gap where the feed was waited for: {gaps}")

    def _own_positions(self) -> dict[int, int]:
        return {partition: self._sink.positions[partition] for partition in self._own}

    def _positions(self) -> dict[int, int]:
        return {**self._known, **self._own_positions()}

    def _apply(self, partition: int, records: list[DataRecord], end: int) -> None:
        self.catch_up()
        bounds = bounds_of(self.state, SET, self._positions(), strict=self._strict)[partition]
        for record in records:
            is_within = record.offset >= bounds.first and (bounds.limit is None or record.offset < bounds.limit)
            if is_within and record.marker is None:
                self._deliver(record)
        reached = max(bounds.first, end if bounds.limit is None else min(end, bounds.limit))
        self._sink.positions[partition] = max(self._sink.positions[partition], reached)

    def catch_up(self) -> None:
        """Read the topic generation to its end: a batch holds nothing of a stream that is not on it by now."""
        while self.follow():
            pass
