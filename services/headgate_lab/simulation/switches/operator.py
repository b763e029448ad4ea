"""Who asks for switches, at random, and keeps autoscaling on."""

import random
from collections.abc import Callable
from typing import Final

from headgate.eventlog.log import Placed
from headgate.generation.changelog.core.planning import resize
from headgate.generation.core.ranges import Recut
from headgate.generation.core.state import GenerationState, current_of
from headgate.records.base import Fact
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    LoadPolicy,
    PolicyRequested,
    PolicyRequestKey,
    ReaderKey,
    StreamsRecut,
)
from headgate_lab.memory_log.log import MemoryBroker
from headgate_lab.simulation.switches.actors import GENERATION_TOPIC, SET

POLICY: Final = LoadPolicy(
    split_above_per_second=0.5,
    merge_below_per_second=0.25,
    streams_max=5,
    streams_min=1,
    settle_seconds=0.0,
    changes_max=8,
    cool_down_seconds=1.0,
)
"""A writer makes one to two changes a second, until its source has no more."""


class SwitchOperator:
    """Writes requests; what becomes of them it does not wait for."""

    def __init__(
        self,
        broker: MemoryBroker,
        chance: random.Random,
        partitions: int,
        state: Callable[[], GenerationState],
        *,
        is_feed: bool,
        retires: bool,
    ) -> None:
        """``retires``: it asks for retirements, so a reader that begins later does not find everything."""
        self._broker, self._random, self._partitions, self._state = broker, chance, partitions, state
        self._is_feed, self._retires = is_feed, retires
        self._requests = 0

    def create(self) -> None:
        """Ask for the change log."""
        self._ask(GenerationRequestKind.CREATE, topic="t", partitions=self._partitions, streams=1)

    def ask_for_something(self) -> None:
        """A switch, or that one is taken back, or a check."""
        state = self._state()
        record = state.sets.get(SET)
        current = None if record is None else current_of(record)
        if current is None:
            return
        log = state.map_of(SET, current.epoch)
        kind = self._random.choice(["resize", "split", "merge", "abort", "retire", "repair"])
        changes: tuple[Recut, ...] = ()
        if kind == "resize":
            changes = resize(log, self._random.randint(1, max(1, self._partitions // 2)))
        elif kind == "split":
            stream = self._random.choice(log.streams)
            if stream.end - stream.start > 1:
                changes = (Recut((stream.id,), (self._random.randint(stream.start + 1, stream.end - 1),), ""),)
        elif kind == "merge" and len(log.streams) > 1:
            at = self._random.randrange(len(log.streams) - 1)
            changes = (Recut((log.streams[at].id, log.streams[at + 1].id), (), ""),)
        else:
            # What is retired before the feed is registered is lost to it, and reported: its histories begin with all.
            may_retire = self._retires and (not self._is_feed or SET in state.readers)
            if kind in ("abort", "repair") or (kind == "retire" and may_retire):
                self._ask(GenerationRequestKind(kind))
            return
        asked = tuple(StreamsRecut(tuple(map(str, change.streams)), change.cuts) for change in changes)
        self._ask(GenerationRequestKind.SWITCH, epoch=current.epoch, changes=asked)

    def delete(self) -> None:
        """Forget every reader, then ask that the change log is deleted."""
        for reader in sorted(self._state().readers.get(SET, {})):
            self._broker.append(Placed(GENERATION_TOPIC, Fact(ReaderKey(SET, reader), None)), 2)
        self._ask(GenerationRequestKind.DELETE)

    def grow(self) -> None:
        """Ask for another partition."""
        record = self._state().sets.get(SET)
        if record is not None:
            self._ask(GenerationRequestKind.GROW, partitions=record.partitions + 1)

    def keep_automatic(self) -> None:
        """Set the policy, and set it again when a switch that was asked for has suspended it."""
        state = self._state()
        automatic = state.automatic.get(SET)
        is_open = any(GenerationOutcomeKey(SET, key.request) not in state.outcomes for key in state.policies)
        if SET not in state.sets or is_open or (automatic is not None and not automatic.suspended):
            return
        key = PolicyRequestKey(SET, self._next())
        self._broker.append(Placed(GENERATION_TOPIC, Fact(key, PolicyRequested(POLICY, "sim", 0))), 2)

    def _ask(
        self,
        kind: GenerationRequestKind,
        *,
        topic: str = "",
        partitions: int = 0,
        streams: int = 0,
        epoch: int = 0,
        changes: tuple[StreamsRecut, ...] = (),
    ) -> None:
        request = GenerationRequested(kind, topic, partitions, streams, epoch, changes, "sim", 0)
        self._broker.append(Placed(GENERATION_TOPIC, Fact(GenerationRequestKey(SET, self._next()), request)), 2)

    def _next(self) -> str:
        self._requests += 1
        return f"q{self._requests:04}"
