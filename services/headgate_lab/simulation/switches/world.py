"""A world of switches: who does the next step is drawn from a seed, and so is who dies at it; a judge looks on.

The judge knows what each source has and checks at every delivery: per key the changes come once each, in their order.
At the end everything is left alone until all is written and read; then nothing may be missing.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from headgate.eventlog.log import Partition
from headgate.generation.changelog.core.reading import Gap
from headgate.generation.core.state import GenerationState, evolve
from headgate.generation.owner.core.machine import GENERATION, new_state
from headgate.records.generation import (
    GenerationPhase,
    SetRecorded,
)
from headgate_lab.memory_log.log import CommitFault, MemoryBroker
from headgate_lab.memory_log.partition import LogEntry
from headgate_lab.simulation.switches.actors import (
    GENERATION_TOPIC,
    SET,
    Checkpoint,
    SimOwner,
    SimReader,
    SimWriter,
)
from headgate_lab.simulation.switches.data_log import DataLog, DataRecord
from headgate_lab.simulation.switches.feed import FeedAgent, FeedCoordinator, SinkOfFeed
from headgate_lab.simulation.switches.operator import SwitchOperator
from headgate_lab.worlds.kernel import replayed

__all__ = ["Crash", "Judge", "OrderBrokenError", "SwitchProfile", "SwitchWorld"]

TICK_SECONDS: Final = 0.05
KEYS_PER_WRITER: Final = 5
CALM_STEPS_MAX: Final = 60_000
LATE_RATE: Final = 0.005
READERS_MAX: Final = 3
STILL_SECONDS_MAX: Final = 12.0
"""Beyond the seconds after which the silent are fenced, for a promise and for an END."""


class OrderBrokenError(AssertionError):
    """A reader was given a change twice, out of order, or never."""


class Crash(msgspec.Struct, frozen=True):
    """Who dies at which of its steps: ``who`` is owner, writer, reader, agent or coordinator."""

    who: str
    at: int


class SwitchProfile(msgspec.Struct, frozen=True):
    """What a history has. ``feed_parts``: a feed reads, by so many agents; 0: a ChangeReader does.

    ``automatic``: the owner splits and merges by itself, too. ``late``: nothing is retired, and further readers begin
    with the oldest generation later, or continue from positions that were stored long before. ``retention_rate``: how
    often a partition loses its oldest records, or all of them. ``grow_rate``: how often a partition is added.
    ``delete_at``: at which step the log is deleted, and created again as soon as it is gone; 0: not at all.
    """

    seed: int
    steps: int = 2_500
    writers: int = 3
    owners: int = 2
    partitions: int = 12
    changes: int = 60
    crash_rate: float = 0.004
    freeze_rate: float = 0.004
    effect_failure_rate: float = 0.1
    switch_rate: float = 0.01
    strict: bool = False
    crashes: tuple[Crash, ...] = ()
    feed_parts: int = 0
    automatic: bool = False
    late: bool = False
    retention_rate: float = 0.0
    grow_rate: float = 0.0
    delete_at: int = 0


class Judge:
    """Checks what one reader delivers against what the sources have. ``deleted``: see DataLog."""

    def __init__(
        self, sources: dict[str, list[str]], deleted: Mapping[tuple[str, int], tuple[int, int]] | None = None
    ) -> None:
        self._expected: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for writer, keys in sources.items():
            for position, key in enumerate(keys):
                self._expected[key].append((writer, position))
        self._next: Counter[str] = Counter()
        self._given: set[tuple[str, int]] = set()
        self._deleted = {} if deleted is None else deleted
        self._gaps: list[Gap] = []

    def copy(self) -> "Judge":
        """Of what was delivered by now, to continue from here."""
        other = Judge({}, self._deleted)
        other._expected, other._gaps = self._expected, list(self._gaps)
        other._next, other._given = Counter(self._next), set(self._given)
        return other

    def deliver(self, record: DataRecord) -> None:
        """Raises OrderBrokenError unless this is the next change of its key that retention has not deleted."""
        expected = self._expected[record.key]
        number = self._next[record.key]
        found = (record.writer, record.position)
        while number < len(expected) and expected[number] != found and expected[number] in self._deleted:
            number += 1
        if number >= len(expected) or expected[number] != found:
            due = expected[number] if number < len(expected) else "nothing"
            raise OrderBrokenError(f"key {record.key}: change {found} was delivered where {due} was due")
        self._next[record.key] = number + 1
        self._given.add(found)

    def tell(self, gap: Gap) -> None:
        """A reader reports a gap. Raises OrderBrokenError where nothing was deleted."""
        if not self._deleted and not gap.what.startswith("deleted"):
            raise OrderBrokenError(f"a gap where the reader was waited for: {gap}")
        self._gaps.append(gap)

    def missing(self) -> int:
        """How many changes that still exist were not delivered."""
        return sum(1 for _ in self._left())

    def is_content(self) -> bool:
        """Whether none is missing. Asked after each step, so it stops at the first."""
        return next(self._left(), None) is None

    def _left(self) -> Iterator[tuple[str, int]]:
        for key, expected in self._expected.items():
            for number in range(self._next[key], len(expected)):
                if expected[number] not in self._deleted:
                    yield expected[number]

    def check_gaps(self) -> None:
        """Raises OrderBrokenError for a change that was deleted before it was delivered, and that no gap covers."""
        for change, (partition, offset) in self._deleted.items():
            is_told = any(gap.partition == partition and gap.first <= offset < gap.last for gap in self._gaps)
            if change not in self._given and not is_told:
                raise OrderBrokenError(f"change {change} was deleted at {partition}/{offset}, and no gap has it")


class ReaderOnTrial:
    """A reader through all its runs: what its caller has stored, and what the judge knows of it."""

    def __init__(self, name: str, judge: Judge, stored: bytes = b"{}") -> None:
        self.name, self.judge, self.checkpoint = name, judge, Checkpoint(stored)
        self.run: SimReader | None = None

    def older(self, name: str) -> "ReaderOnTrial":
        """A reader that continues later from what is stored now."""
        return ReaderOnTrial(name, self.judge.copy(), self.checkpoint.positions)


class SwitchWorld:
    """One history."""

    def __init__(self, profile: SwitchProfile) -> None:
        self.profile = profile
        self.random = random.Random(profile.seed)  # noqa: S311 - a seed's history, no secret
        self.broker = MemoryBroker()
        self._observed = new_state(0)
        self.broker.on_committed = self._observe
        self.data = DataLog(profile.partitions)
        self.now = 100.0
        self.steps = 0
        self.broker.monotonic = lambda: self.now
        self.sources = {
            f"w{number}": [f"k{number}.{self.random.randrange(KEYS_PER_WRITER)}" for _ in range(profile.changes)]
            for number in range(profile.writers)
        }
        self.judge = Judge(self.sources, self.data.deleted)
        self.owners: dict[str, SimOwner] = {}
        self.writers: dict[str, SimWriter] = {}
        self.zombies: list[SimWriter] = []
        self.lives: Counter[str] = Counter()
        self.readers = [] if profile.feed_parts else [ReaderOnTrial("r", self.judge)]
        self.older: list[ReaderOnTrial] = []
        partitions, parts = range(profile.partitions), profile.feed_parts
        self.sink = SinkOfFeed(dict.fromkeys(partitions, 0), [tuple(partitions[part::parts]) for part in range(parts)])
        self.feed_coordinator: FeedCoordinator | None = None
        self.agents: dict[int, FeedAgent] = {}
        self.counts: Counter[str] = Counter()
        self._steps: Counter[str] = Counter()
        self.operator = SwitchOperator(
            self.broker,
            self.random,
            profile.partitions,
            self.state,
            is_feed=bool(profile.feed_parts),
            retires=not profile.late,
        )
        self._unasked: set[int] = set()
        self._still_until: dict[str, float] = {}
        self._has_deleted = self._is_deleting = False

    def run(self) -> Counter[str]:
        """The whole history; what has happened in it, by name. Raises OrderBrokenError."""
        self.operator.create()
        for number in range(1, self.profile.steps + 1):
            if 0 < self.profile.delete_at <= number and not self._has_deleted and SET in self.state().sets:
                self._has_deleted = self._is_deleting = True
                self.readers.clear()
                self.operator.delete()
            self._step(calm=False)
        self._calm_down()
        return self.counts

    def state(self) -> GenerationState:
        """The current state of the log."""
        return self._observed

    def _observe(self, partition: Partition, entry: LogEntry) -> None:
        if partition == GENERATION_TOPIC and not isinstance(entry.key, str):
            evolve(self._observed, entry.key, entry.value, entry.offset)
            if isinstance(entry.value, SetRecorded):
                unasked = {each.epoch for each in entry.value.generations if not each.requests}
                self.counts["automatic"] += len(unasked - self._unasked)
                self._unasked |= unasked

    # --- one step ---

    def _step(self, *, calm: bool) -> None:
        self.now += TICK_SECONDS
        self.steps += 1
        actors = [self._owner_step, self._owner_step, self._writer_step, self._writer_step, self._reader_step]
        self.random.choice(actors)(calm)
        if not calm and self.random.random() < self.profile.switch_rate:
            self.operator.ask_for_something()
        if not calm and self.profile.grow_rate and self.random.random() < self.profile.grow_rate:
            self.operator.grow()
        if self._is_deleting:
            self._recreate()
        if self.profile.automatic:
            self.operator.keep_automatic()
        if not calm and self.random.random() < self.profile.retention_rate:
            self._delete()

    def _recreate(self) -> None:
        """Once the log is gone; its readers begin again, and its sources send all of their changes again."""
        if SET in self.state().deleted:
            self._is_deleting = False
            self.counts["recreated"] += 1
            self.judge = self._fresh_judge()
            self.readers.append(ReaderOnTrial("r", self.judge))
            self.operator.create()

    def _delete(self) -> None:
        partition = self.random.randrange(self.profile.partitions)
        end = self.data.ends[partition]
        if end > self.data.starts[partition]:
            self.counts["deleted"] += 1
            upto = end if self.random.random() < 0.5 else self.random.randint(self.data.starts[partition], end)
            self.data.delete(partition, upto)

    def _dies(self, who: str, *, calm: bool) -> bool:
        self._steps[who] += 1
        if Crash(who, self._steps[who]) in self.profile.crashes:
            self.counts[f"{who} killed"] += 1
            return True
        dies = not calm and self.random.random() < self.profile.crash_rate
        self.counts[f"{who} killed"] += dies
        return dies

    def _owner_step(self, calm: bool) -> None:
        for number in range(self.profile.owners):
            name = f"o{number}"
            if name not in self.owners:
                self.owners[name] = SimOwner(self.broker, self.data, name, lambda: self.random.getrandbits(64))
        name = self.random.choice(sorted(self.owners))
        owner = self.owners[name]
        if self._dies("owner", calm=calm):
            self.owners.pop(name).role.close()
            return
        if not calm and self.random.random() < self.profile.crash_rate:
            fault = self.random.choice(list(CommitFault))
            self.broker.fail_commit("generation", fault)
        if owner.effects and self.random.random() < 0.5:
            fails = not calm and self.random.random() < self.profile.effect_failure_rate
            owner.run_effect(self.random.randrange(len(owner.effects)), fails=fails)
            if self._dies("effect", calm=calm):
                self.owners.pop(name).role.close()
        else:
            owner.turn(self.now)

    def _writer_step(self, calm: bool) -> None:
        if self.zombies and self.random.random() < 0.1:
            # A process that was frozen continues as if nothing had happened.
            zombie = self.random.choice(self.zombies)
            zombie.step(self.now)
            zombie.feed(more=True)
            if zombie.is_over:
                self.zombies.remove(zombie)
            return
        name = self.random.choice(sorted(self.sources))
        writer = self.writers.get(name)
        if writer is None or writer.is_over:
            self.lives[name] += 1
            before = None if writer is None or writer.is_replaced or self.random.random() < 0.3 else writer
            source = self.sources[name]
            self.writers[name] = SimWriter(self.broker, self.data, name, self.lives[name], source, before)
            return
        if not calm and self._still_until.get(name, 0.0) > self.now:
            return
        if self._dies("writer", calm=calm):
            del self.writers[name]
            return
        if not calm and self.random.random() < self.profile.freeze_rate:
            self._freeze(name)
            return
        writer.step(self.now)
        writer.feed(more=calm or self.random.random() < 0.5)

    def _freeze(self, name: str) -> None:
        """It is frozen: until another has taken its place and longer, or for long enough to be fenced."""
        self.counts["writer frozen"] += 1
        if self.random.random() < 0.5:
            self.zombies.append(self.writers.pop(name))
        else:
            self._still_until[name] = self.now + self.random.uniform(0.0, STILL_SECONDS_MAX)

    def _reader_step(self, calm: bool) -> None:
        if self.profile.late and not calm and self.random.random() < LATE_RATE:
            self._come_late()
        if self.profile.feed_parts and (not self.readers or self.random.random() < 0.5):
            self._feed_step(calm)
            return
        if not self.readers:
            return
        reader = self.random.choice(self.readers)
        if reader.run is None or self._dies("reader", calm=calm):
            reader.run = self._run_of(reader)
        else:
            reader.run.step()

    def _come_late(self) -> None:
        """A new reader begins, or its caller keeps what one has stored by now."""
        if len(self.readers) < READERS_MAX:
            self.readers.append(ReaderOnTrial(f"late-{len(self.readers)}", self._fresh_judge()))
        elif len(self.older) < READERS_MAX:
            self.older.append(self.random.choice(self.readers).older(f"older-{len(self.older)}"))

    def _fresh_judge(self) -> Judge:
        return Judge(self.sources, self.data.deleted)

    def _run_of(self, reader: ReaderOnTrial) -> SimReader:
        return SimReader(
            self.broker,
            self.data,
            reader.checkpoint,
            reader.judge.deliver,
            reader.judge.tell,
            strict=self.profile.strict,
            reader=reader.name,
        )

    def _feed_step(self, calm: bool) -> None:
        if self.random.random() < 0.2:
            if self.feed_coordinator is None or self._dies("coordinator", calm=calm):
                self.feed_coordinator = FeedCoordinator(self.broker, self.sink)
            self.feed_coordinator.step()
            return
        part = self.random.randrange(len(self.sink.parts))
        if part not in self.agents or self._dies("agent", calm=calm):
            own = self.sink.parts[part]
            deliver, strict = self.judge.deliver, self.profile.strict
            self.agents[part] = FeedAgent(self.broker, self.data, self.sink, own, deliver, strict=strict)
            return
        self.agents[part].step()

    # --- the end ---

    def _calm_down(self) -> None:
        self.zombies.clear()
        self.broker.cancel_faults()
        for _ in range(CALM_STEPS_MAX):
            self._step(calm=True)
            idle = all(name in self.writers and self.writers[name].is_idle() for name in self.sources)
            if idle and all(judge.is_content() for judge in self._judges()) and self._is_settled():
                break
        else:
            missing = sum(judge.missing() for judge in self._judges())
            raise OrderBrokenError(f"{missing} changes were not delivered: {self._standing()}")
        self._check_end()
        if self.profile.late:
            self._read_again()

    def _judges(self) -> list[Judge]:
        return [self.judge, *(reader.judge for reader in self.readers)]

    def _read_again(self) -> None:
        """Readers that begin when all is over: with the oldest generation, or where another one was long before."""
        for reader in (ReaderOnTrial("last", self._fresh_judge()), *self.older):
            reader.run = self._run_of(reader)
            for _ in range(CALM_STEPS_MAX):
                reader.run.step()
                if reader.judge.is_content():
                    break
            else:
                raise OrderBrokenError(f"{reader.name}: {reader.judge.missing()} changes are never delivered")
            self._check_reader(reader)

    def _is_settled(self) -> bool:
        record = self.state().sets.get(SET)
        if record is None:
            return False
        return not any(
            each.phase in (GenerationPhase.PREPARED, GenerationPhase.CLOSING, GenerationPhase.SUPERSEDED)
            for each in record.generations
        )

    def _check_end(self) -> None:
        state = self.state()
        record = state.sets[SET]
        self.counts["committed"] += record.last_epoch
        self.counts["aborted"] += sum(each.phase is GenerationPhase.ABORTED for each in record.generations)
        before = GENERATION.digest(state)
        self.broker.compact(GENERATION_TOPIC)
        if GENERATION.digest(replayed(self.broker, GENERATION, [GENERATION_TOPIC])) != before:
            raise OrderBrokenError("replay of the compacted log gives another state")
        for reader in self.readers:
            self._check_reader(reader)

    def _check_reader(self, reader: ReaderOnTrial) -> None:
        if reader.run is not None and reader.run.progress.refused:
            raise OrderBrokenError(f"{reader.run.progress.refused} records were behind their writer's END")
        reader.judge.check_gaps()

    def _standing(self) -> str:
        record = self.state().sets.get(SET)
        roles = {name: owner.role.status for name, owner in self.owners.items()}
        return f"{record}\n{roles}\n{ {name: writer.followed for name, writer in self.writers.items()} }"
