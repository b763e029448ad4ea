"""The draft of the owner of generations: sets and writers, with everything decided so far."""

from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from headgate.generation.core.ranges import LogMap, MapSwitch
from headgate.generation.core.state import GenerationState, chunks_of
from headgate.generation.core.term import AutomaticMemory, GenerationTerm
from headgate.records.control import OutcomeStatus, RequestSettled
from headgate.records.generation import (
    AutomaticKey,
    AutomaticRecorded,
    ChunkKey,
    GenerationOutcomeKey,
    GenerationPhase,
    GenerationRecorded,
    SetKey,
    SetRecorded,
    WriterAdmitted,
    WriterKey,
    WriterReported,
)
from headgate.records.timestamps import RingKey, RingRecorded, TimestampSetKey, TimestampSetRecorded
from headgate.runtime import draft
from headgate.runtime.machine import Now

__all__ = ["GenerationDraft"]


class GenerationDraft(draft.Draft[GenerationState, GenerationTerm]):
    """Facts and effects of one decision (runtime/draft.py). Chunks are written before the set that names them."""

    def __init__(self, state: GenerationState, term: GenerationTerm, now: Now) -> None:
        """An empty decision."""
        super().__init__(state, term, now)
        self._maps: dict[tuple[str, int], LogMap] = {}

    # --- sets and generations ---

    def find(self, name: str) -> SetRecorded | None:
        """The set as it is decided so far."""
        found = self.decided(SetKey(name), self.state.sets.get(name))
        return found if found is not None and found.topic else None

    def record(self, name: str) -> SetRecorded:
        """The set. Raises LookupError if it does not exist."""
        found = self.find(name)
        if found is None:
            raise LookupError(f"set {name} does not exist")
        return found

    def put_set(self, name: str, record: SetRecorded) -> None:
        """Decide the record of a set."""
        self.put_last(SetKey(name), replace(record, owner_rev=self.term.owner_rev))

    def last_epoch(self, name: str) -> int:
        """The highest epoch that was ever given to a change log of this name."""
        known = self.find(name) or self.state.deleted.get(name)
        return 0 if known is None else known.last_epoch

    def delete_set(self, name: str) -> None:
        """Delete everything about a set except its last epoch."""
        record = self.record(name)
        self.put_set(name, SetRecorded(0, "", None, 0, record.last_epoch, (), ()))
        for generation in record.generations:
            self.undescribe(name, generation)
        for writer, life in self.state.writers.get(name, {}):
            self.delete(WriterKey(name, writer, life))
        if self.automatic(name) is not None:
            self.put_automatic(name, None)
        self.term.automatic.pop(name, None)
        self.term.failures = {about: why for about, why in self.term.failures.items() if about[1] != name}

    def generation(self, name: str, epoch: int) -> GenerationRecorded | None:
        """One generation of a set; None if it is retired or was never there."""
        return next((each for each in self.record(name).generations if each.epoch == epoch), None)

    def change(self, name: str, epoch: int, **changes: Any) -> None:
        """Decide fields of a generation."""
        record = self.record(name)
        if "phase" in changes:
            changes["changed_ms"] = self.now.wall_ms
        generations = tuple(replace(each, **changes) if each.epoch == epoch else each for each in record.generations)
        self.put_set(name, replace(record, generations=generations))

    def describe(self, name: str, log: LogMap) -> int:
        """Decide a map's chunks. Returns their number."""
        chunks = chunks_of(log, self.term.owner_rev)
        for number, chunk in enumerate(chunks):
            self.put(ChunkKey(name, log.generation, number), chunk)
        self._maps[name, log.generation] = log
        return len(chunks)

    def undescribe(self, name: str, generation: GenerationRecorded) -> None:
        """Delete a generation's chunks, after the set that no longer names it."""
        for number in range(generation.chunks):
            self.delete(ChunkKey(name, generation.epoch, number))

    def map_of(self, name: str, epoch: int) -> LogMap:
        """A generation's map. Raises MapError."""
        return self._maps.get((name, epoch)) or self.state.map_of(name, epoch)

    def switch_to(self, name: str, generation: GenerationRecorded) -> MapSwitch:
        """What the switch to a generation closes and opens. Raises MapError."""
        return MapSwitch.between(self.map_of(name, generation.follows), self.map_of(name, generation.epoch))

    def free_partitions(self, name: str, current: LogMap) -> list[int]:
        """Partitions without a stream that anybody writes or has still to read. Raises MapError."""
        record = self.record(name)
        taken = {stream.partition for stream in current.streams}
        for generation in record.generations:
            if generation.phase is GenerationPhase.SUPERSEDED:
                taken |= {stream.partition for stream in self.map_of(name, generation.epoch).streams}
        return [number for number in range(record.partitions) if number not in taken]

    # --- timestamp sets ---

    def timestamp_set(self, name: str) -> TimestampSetRecorded | None:
        """The set as it is decided so far."""
        return self.decided(TimestampSetKey(name), self.state.timestamps.sets.get(name))

    def put_timestamp_set(self, name: str, record: TimestampSetRecorded) -> None:
        """Decide the record of a timestamp set."""
        self.put_last(TimestampSetKey(name), replace(record, owner_rev=self.term.owner_rev))

    def ring(self, name: str, timestamp_ms: int) -> RingRecorded | None:
        """The ring that a generation is made for; None if its record was lost."""
        return self.decided(RingKey(name, timestamp_ms), self.state.timestamps.rings.get((name, timestamp_ms)))

    # --- autoscaling ---

    def automatic(self, name: str) -> AutomaticRecorded | None:
        """The policy of autoscaling, as it is decided so far; None if it is off."""
        return self.decided(AutomaticKey(name), self.state.automatic.get(name))

    def put_automatic(self, name: str, record: AutomaticRecorded | None) -> None:
        """Decide the policy of autoscaling. None turns it off."""
        if record is None:
            self.delete(AutomaticKey(name))
        else:
            self.put_last(AutomaticKey(name), replace(record, owner_rev=self.term.owner_rev))

    def memory(self, name: str) -> AutomaticMemory:
        """What autoscaling remembers of a set in this term."""
        return self.term.automatic.setdefault(name, AutomaticMemory())

    def note_committed(self, name: str, epoch: int) -> None:
        """Remember when a generation came into force, as long as it is on record."""
        memory = self.memory(name)
        known = {each.epoch for each in self.record(name).generations}
        memory.committed = {each: at for each, at in memory.committed.items() if each in known}
        memory.committed[epoch] = self.now.monotonic

    # --- writers ---

    def report_of(self, name: str, writer: str, life: int | None) -> WriterReported | None:
        """The report of one incarnation of a writer."""
        return None if life is None else self.state.writers.get(name, {}).get((writer, life))

    def admit(self, name: str, admitted: WriterAdmitted) -> None:
        """Decide which incarnation of a writer may write."""
        record = self.record(name)
        others = [each for each in record.writers if each.writer != admitted.writer]
        self.put_set(name, replace(record, writers=tuple(sorted((*others, admitted), key=lambda each: each.writer))))

    def change_cut(self, name: str, epoch: int, writer: str, **changes: Any) -> None:
        """Decide fields of one writer's cut in a switch."""
        generation = self.generation(name, epoch)
        if generation is not None:
            cuts = tuple(replace(cut, **changes) if cut.writer == writer else cut for cut in generation.cuts)
            self.change(name, epoch, cuts=cuts)

    def end_cuts(self, name: str, epoch: int, writers: Collection[str]) -> None:
        """Record that these writers' END markers are on the streams that a switch closes."""
        generation = self.generation(name, epoch)
        if generation is not None:
            cuts = tuple(replace(cut, ended=cut.ended or cut.writer in writers) for cut in generation.cuts)
            self.change(name, epoch, cuts=cuts)

    # --- requests, timers, effects ---

    def settle(self, key: GenerationOutcomeKey, status: OutcomeStatus, reason: str) -> None:
        """Decide the outcome of a request."""
        self.put_outcome(key, status, reason)

    def outcome(self, key: GenerationOutcomeKey) -> RequestSettled | None:
        """The latest outcome of a request."""
        return self.decided(key, self.state.outcomes.get(key))

    def run(self, about: tuple[Any, ...], effect: Any) -> None:
        """Run an effect, unless one about the same thing is running."""
        if about not in self.term.running:
            self.term.running.add(about)
            self.add_effect(effect)

    def finish(self, about: tuple[Any, ...]) -> None:
        """Record that an effect has returned."""
        self.term.running.discard(about)

    def is_running(self, about: tuple[Any, ...]) -> bool:
        """Whether an effect about this is running."""
        return about in self.term.running

    def count_running(self, what: str, name: str) -> int:
        """How many effects of one kind are running for a set."""
        return sum(about[:2] == (what, name) for about in self.term.running)

    def wait_for_writers(
        self, kind: str, name: str, epoch: int, delay_seconds: float, seconds_max: float = float("inf")
    ) -> None:
        """Set a timer again. It fires no later than ``seconds_max`` after it was first set in this term."""
        began = self.term.waiting.setdefault((kind, name, epoch), self.now.monotonic)
        left = began + seconds_max - self.now.monotonic
        self.set_timer(kind, (epoch, name), max(0.0, min(delay_seconds, left)))

    def stop_waiting(self, kind: str, name: str, epoch: int) -> None:
        """Cancel such a timer."""
        self.term.waiting.pop((kind, name, epoch), None)
        self.cancel_timer(kind, (epoch, name))
