"""A decision while it is being made: facts laid over the state, so that later rules see what earlier ones decided."""

from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from headgate.generation.core.ranges import LogMap, MapSwitch
from headgate.generation.core.state import GenerationState, chunks_of
from headgate.generation.core.term import AutomaticMemory, Term
from headgate.records.base import Fact, Key, Record
from headgate.records.control import OutcomeStatus, RequestSettled
from headgate.records.fitting import fitted
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
from headgate.runtime.machine import CancelTimer, Decision, Now, SetTimer

__all__ = ["Draft"]


class Draft:
    """Facts and effects of one decision."""

    def __init__(self, state: GenerationState, term: Term, now: Now) -> None:
        self.state = state
        self.term = term
        self.now = now
        self._facts: dict[Key, Fact] = {}
        self._deletions: dict[Key, Fact] = {}
        self._maps: dict[tuple[str, int], LogMap] = {}
        self._effects: list[Any] = []

    def decision(self) -> Decision:
        """All of it: chunks stand before the set that names them, and are deleted behind it."""
        return Decision((*self._facts.values(), *self._deletions.values()), tuple(self._effects))

    # --- sets and generations ---

    def find(self, name: str) -> SetRecorded | None:
        """The set as it is decided so far."""
        fact = self._facts.get(SetKey(name))
        if fact is not None and isinstance(fact.value, SetRecorded):
            return fact.value if fact.value.topic else None
        return self.state.sets.get(name)

    def record(self, name: str) -> SetRecorded:
        """The set, which is there."""
        found = self.find(name)
        if found is None:
            raise LookupError(f"there is no set {name}")
        return found

    def put_set(self, name: str, record: SetRecorded) -> None:
        """Decide what a set is."""
        key = SetKey(name)
        self._facts.pop(key, None)
        self._facts[key] = Fact(key, replace(record, owner_rev=self.term.owner_rev))

    def last_epoch(self, name: str) -> int:
        """The highest epoch that was ever given to a change log of this name."""
        known = self.find(name) or self.state.deleted.get(name)
        return 0 if known is None else known.last_epoch

    def delete_set(self, name: str) -> None:
        """Delete all that is known of a set, but its last epoch."""
        record = self.record(name)
        self.put_set(name, SetRecorded(0, "", None, 0, record.last_epoch, (), ()))
        for generation in record.generations:
            self.undescribe(name, generation)
        for writer, life in self.state.writers.get(name, {}):
            self.forget_life(WriterKey(name, writer, life))
        if self.automatic(name) is not None:
            self.put_automatic(name, None)
        self.term.automatic.pop(name, None)
        self.term.failures = {about: why for about, why in self.term.failures.items() if about[1] != name}

    def generation(self, name: str, epoch: int) -> GenerationRecorded | None:
        """One generation of a set; None if it is retired or was never there."""
        return next((each for each in self.record(name).generations if each.epoch == epoch), None)

    def change(self, name: str, epoch: int, **changes: Any) -> None:
        """Decide what a generation is."""
        record = self.record(name)
        if "phase" in changes:
            changes["changed_ms"] = self.now.wall_ms
        generations = tuple(replace(each, **changes) if each.epoch == epoch else each for each in record.generations)
        self.put_set(name, replace(record, generations=generations))

    def describe(self, name: str, log: LogMap) -> int:
        """Write a map's chunks; how many there are."""
        chunks = chunks_of(log, self.term.owner_rev)
        for number, chunk in enumerate(chunks):
            key = ChunkKey(name, log.generation, number)
            self._facts[key] = Fact(key, chunk)
        self._maps[name, log.generation] = log
        return len(chunks)

    def undescribe(self, name: str, generation: GenerationRecorded) -> None:
        """Delete a generation's chunks, behind the set that does not name it any more."""
        for number in range(generation.chunks):
            key = ChunkKey(name, generation.epoch, number)
            self._deletions[key] = Fact(key, None)

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
        fact = self._facts.get(TimestampSetKey(name))
        if fact is not None and isinstance(fact.value, TimestampSetRecorded):
            return fact.value
        return self.state.timestamps.sets.get(name)

    def put_timestamp_set(self, name: str, record: TimestampSetRecorded) -> None:
        """Decide what a timestamp set is."""
        self.say(TimestampSetKey(name), replace(record, owner_rev=self.term.owner_rev))

    def ring(self, name: str, timestamp_ms: int) -> RingRecorded | None:
        """For which ring a generation is made; None if that was lost."""
        fact = self._facts.get(RingKey(name, timestamp_ms))
        if fact is not None and isinstance(fact.value, RingRecorded):
            return fact.value
        return self.state.timestamps.rings.get((name, timestamp_ms))

    def say(self, key: Key, record: Record) -> None:
        """Decide a record, behind those that are decided already."""
        self._facts.pop(key, None)
        self._facts[key] = Fact(key, record)

    def delete(self, key: Key) -> None:
        """Delete a record, behind all that is written."""
        self._deletions[key] = Fact(key, None)

    # --- automatic mode ---

    def automatic(self, name: str) -> AutomaticRecorded | None:
        """What automatic mode goes by, as it is decided so far; None if it is off."""
        key = AutomaticKey(name)
        if key in self._deletions:
            return None
        fact = self._facts.get(key)
        if fact is not None and isinstance(fact.value, AutomaticRecorded):
            return fact.value
        return self.state.automatic.get(name)

    def put_automatic(self, name: str, record: AutomaticRecorded | None) -> None:
        """Decide what it goes by; None: it is off."""
        key = AutomaticKey(name)
        self._deletions.pop(key, None)
        self._facts.pop(key, None)
        if record is None:
            self._deletions[key] = Fact(key, None)
        else:
            self._facts[key] = Fact(key, fitted(replace(record, owner_rev=self.term.owner_rev)))

    def memory(self, name: str) -> AutomaticMemory:
        """What automatic mode remembers of a set in this term."""
        return self.term.automatic.setdefault(name, AutomaticMemory())

    def note_committed(self, name: str, epoch: int) -> None:
        """Remember when a generation came into force, as long as it is on record."""
        memory = self.memory(name)
        known = {each.epoch for each in self.record(name).generations}
        memory.committed = {each: at for each, at in memory.committed.items() if each in known}
        memory.committed[epoch] = self.now.monotonic

    # --- writers ---

    def report_of(self, name: str, writer: str, life: int | None) -> WriterReported | None:
        """The word of one life of a writer."""
        return None if life is None else self.state.writers.get(name, {}).get((writer, life))

    def admit(self, name: str, admitted: WriterAdmitted) -> None:
        """Decide which life of a writer may write."""
        record = self.record(name)
        others = [each for each in record.writers if each.writer != admitted.writer]
        self.put_set(name, replace(record, writers=tuple(sorted((*others, admitted), key=lambda each: each.writer))))

    def change_cut(self, name: str, epoch: int, writer: str, **changes: Any) -> None:
        """Decide what a switch needs of one writer."""
        generation = self.generation(name, epoch)
        if generation is not None:
            cuts = tuple(replace(cut, **changes) if cut.writer == writer else cut for cut in generation.cuts)
            self.change(name, epoch, cuts=cuts)

    def end_cuts(self, name: str, epoch: int, writers: Collection[str]) -> None:
        """END markers of these writers stand on what a switch closes."""
        generation = self.generation(name, epoch)
        if generation is not None:
            cuts = tuple(replace(cut, ended=cut.ended or cut.writer in writers) for cut in generation.cuts)
            self.change(name, epoch, cuts=cuts)

    def forget_life(self, key: WriterKey) -> None:
        """Delete the word of a life that is over."""
        self._deletions[key] = Fact(key, None)

    # --- requests, timers, effects ---

    def settle(self, key: GenerationOutcomeKey, status: OutcomeStatus, reason: str) -> None:
        """Say what became of a request."""
        self._facts[key] = Fact(key, fitted(RequestSettled(self.term.owner_rev, status, reason, self.now.wall_ms)))

    def outcome(self, key: GenerationOutcomeKey) -> RequestSettled | None:
        """What became of a request so far."""
        fact = self._facts.get(key)
        return (
            fact.value if fact is not None and isinstance(fact.value, RequestSettled) else self.state.outcomes.get(key)
        )

    def delete_outcome(self, key: GenerationOutcomeKey) -> None:
        """Whoever asked has read it."""
        self._deletions[key] = Fact(key, None)

    def run(self, about: tuple[Any, ...], effect: Any) -> None:
        """Ask for an effect, unless one about the same is under way."""
        if about not in self.term.running:
            self.term.running.add(about)
            self._effects.append(effect)

    def finish(self, about: tuple[Any, ...]) -> None:
        """An effect has come back."""
        self.term.running.discard(about)

    def is_running(self, about: tuple[Any, ...]) -> bool:
        """Whether an effect about this is under way."""
        return about in self.term.running

    def count_running(self, what: str, name: str) -> int:
        """How many effects of one kind are under way for a set."""
        return sum(about[:2] == (what, name) for about in self.term.running)

    def set_timer(self, kind: str, name: str, epoch: int, delay_seconds: float) -> None:
        """A timer about one generation."""
        self._effects.append(SetTimer(f"{kind}/{epoch}/{name}", delay_seconds))

    def wait_for_writers(
        self, kind: str, name: str, epoch: int, delay_seconds: float, seconds_max: float = float("inf")
    ) -> None:
        """Set a timer again, so that it runs out at the latest ``seconds_max`` after it was set first in this term."""
        began = self.term.waiting.setdefault((kind, name, epoch), self.now.monotonic)
        left = began + seconds_max - self.now.monotonic
        self.set_timer(kind, name, epoch, max(0.0, min(delay_seconds, left)))

    def stop_waiting(self, kind: str, name: str, epoch: int) -> None:
        """Forget such a timer."""
        self.term.waiting.pop((kind, name, epoch), None)
        self.cancel_timer(kind, name, epoch)

    def cancel_timer(self, kind: str, name: str, epoch: int) -> None:
        """Forget it."""
        self._effects.append(CancelTimer(f"{kind}/{epoch}/{name}"))
