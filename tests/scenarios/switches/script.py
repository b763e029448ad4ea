"""Scripts of switches: the script plays writers, readers, operators and the broker (scenarios/script.py says how).

Effects are answered at once (a fenced writer was at position 99, every partition ends at 100) unless the script holds
them or lets them fail.
"""

from typing import Any, Final

from headgate.eventlog.log import Partition
from headgate.generation.changelog.core.planning import resize
from headgate.generation.core.effects import (
    CreateLog,
    DeleteLog,
    EndsMeasured,
    EndsWritten,
    FenceWriter,
    GrowLog,
    LogDeleted,
    LogSeen,
    LookAtLog,
    MeasureEnds,
    WriteEnds,
    WriterFenced,
)
from headgate.generation.core.ranges import Recut
from headgate.generation.core.state import GenerationState, current_of
from headgate.generation.owner.core.kind import GENERATION_KIND
from headgate.generation.owner.core.machine import GENERATION
from headgate.records.base import Fact
from headgate.records.control import OwnerAnnounced, RequestSettled
from headgate.records.generation import (
    AutomaticRecorded,
    GenerationDescribed,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    KeyLoad,
    LoadPolicy,
    PolicyRequested,
    PolicyRequestKey,
    ReaderKey,
    ReaderReported,
    SetRecorded,
    StreamLoad,
    StreamsRecut,
    WriterKey,
    WriterReported,
)
from headgate.runtime.machine import (
    Arrived,
    CancelTimer,
    Decision,
    EffectFailed,
    EffectFinished,
    SetTimer,
    TermBegan,
    TimerFired,
)
from scenarios.script import Script

SET: Final = "orders"
TOPIC: Final = Partition("generation", 0)
PARTITIONS: Final = 8


class World(Script[GenerationState]):
    def __init__(self) -> None:
        super().__init__(GENERATION_KIND, GENERATION, schema_version=2)
        self.mode = "run"
        self.partitions_of_topic = PARTITIONS

    def trace(self, name: str, given: Any, decision: Decision) -> None:
        lines = [f"  {shown_fact(fact)}" for fact in decision.facts]
        lines += [f"  * {shown_effect(effect)}" for effect in decision.effects]
        if lines or not isinstance(given, TimerFired | Arrived):
            self.output += [f"{name} < {shown_input(given)}", *lines]

    def seen(self) -> tuple[Any, ...]:
        """A role that only changes its state has its next turn with the next line."""
        return self.broker.end_offset(TOPIC), len(self.output), self.pending()

    def others_act(self) -> None:
        if self.mode == "fail":
            self.answer_effects(lambda _effect: EffectFailed("no broker answers"))
        elif self.mode == "run":
            self.answer_effects(self.result)

    def result(self, effect: Any) -> Any:
        match effect:
            case CreateLog() | LookAtLog():
                return LogSeen("topic-1", dict.fromkeys(range(self.partitions_of_topic), 100), 7)
            case GrowLog():
                self.partitions_of_topic = max(self.partitions_of_topic, effect.partitions)
                return LogSeen("topic-1", dict.fromkeys(range(self.partitions_of_topic), 100), 7)
            case DeleteLog():
                return LogDeleted()
            case FenceWriter():
                return WriterFenced(99)
            case WriteEnds():
                return EndsWritten()
            case MeasureEnds():
                return EndsMeasured(dict.fromkeys(effect.partitions, 100))
        raise TypeError(effect)

    # --- commands ---

    def do_owner(self, verb: str, name: str) -> None:
        if verb == "kill":
            self.kill(name)
        else:
            self.start(name)

    def do_effects(self, mode: str) -> None:
        self.mode = mode

    def do_topic(self, *, partitions: str) -> None:
        self.partitions_of_topic = int(partitions)

    def do_create(self, request: str, *, streams: str = "1") -> None:
        self.ask(request, GenerationRequestKind.CREATE, streams=int(streams))

    def do_switch(self, request: str, how: str, *numbers: str, cuts: str = "") -> None:
        state = self.state()
        current = current_of(state.sets[SET])
        assert current is not None
        log = state.map_of(SET, current.epoch)
        if how == "resize":
            changes = resize(log, int(numbers[0]))
        else:
            chosen = tuple(log.streams[int(number)].id for number in numbers)
            changes = (Recut(chosen, tuple(map(int, cuts.split(","))) if cuts else (), ""),)
        asked = tuple(StreamsRecut(tuple(map(str, change.streams)), change.cuts) for change in changes)
        self.ask(request, GenerationRequestKind.SWITCH, changes=asked)

    def do_request(self, request: str, kind: str) -> None:
        self.ask(request, GenerationRequestKind(kind))

    def do_grow(self, request: str, partitions: str) -> None:
        asked = GenerationRequested(GenerationRequestKind.GROW, "", int(partitions), 0, 0, (), "script", 0)
        self.write(GenerationRequestKey(SET, request), asked)

    def do_forget(self, request: str, form: str = "request") -> None:
        self.write(PolicyRequestKey(SET, request) if form == "policy" else GenerationRequestKey(SET, request), None)

    def do_writer(self, name: str, life: str, verb: str, *numbers: str) -> None:
        """``writer w1 1 joins`` · ``promises 2 50`` (to generation 2, up to position 50) · ``at 2`` · ``leaves 70``.

        ``bears 2 900 100``: of generation 2, so many changes per second on its first stream, and its second.
        """
        given = list(map(int, numbers))
        report = {
            "joins": lambda: WriterReported(0, 0, -1, False, (), 0),
            "promises": lambda: WriterReported(given[0] - 1, given[0], given[1], False, (), 0),
            "at": lambda: WriterReported(given[0], 0, -1, False, (), 0),
            "leaves": lambda: WriterReported(0, 0, given[0], True, (), 0),
            "bears": lambda: WriterReported(given[0], 0, -1, False, self.loads(given[0], given[1:]), 0),
        }[verb]()
        self.write(WriterKey(SET, name, int(life)), report)

    def do_policy(self, request: str, off: str = "", **limits: str) -> None:
        """``policy p1 split=100 merge=40`` (max, settle, cool) · ``policy p2 off``."""
        given = {"split": 100.0, "merge": 40.0, "max": 6.0, "settle": 0.0, "cool": 20.0}
        given |= {name: float(value) for name, value in limits.items()}
        policy = LoadPolicy(given["split"], given["merge"], int(given["max"]), 1, given["settle"], 8, given["cool"])
        self.write(PolicyRequestKey(SET, request), PolicyRequested(None if off else policy, "script", 0))

    def loads(self, epoch: int, per_second: list[int]) -> tuple[StreamLoad, ...]:
        """As a writer counts them in ten seconds, its changes evenly among eight keys of each stream."""
        loads = []
        for stream, rate in zip(self.state().map_of(SET, epoch).streams, per_second, strict=True):
            width = stream.end - stream.start
            keys = tuple(KeyLoad(stream.start + width * number // 9, 1) for number in range(1, 9))
            loads.append(StreamLoad(str(stream.id), 10 * rate, 10.0, keys if rate else ()))
        return tuple(loads)

    def do_reader(self, name: str, epoch: str = "") -> None:
        self.write(ReaderKey(SET, name), ReaderReported(int(epoch), 0) if epoch else None)

    def do_compact(self) -> None:
        self.broker.compact(TOPIC, drop_tombstones=True)

    # --- how ---

    def ask(self, request: str, kind: GenerationRequestKind, *, streams: int = 0, changes: Any = ()) -> None:
        is_create = kind is GenerationRequestKind.CREATE
        asked = GenerationRequested(
            kind, "t.orders" if is_create else "", PARTITIONS if is_create else 0, streams, 0, changes, "script", 0
        )
        self.write(GenerationRequestKey(SET, request), asked)


def shown_input(given: Any) -> str:
    match given:
        case TermBegan(owner_rev=rev):
            return f"term began, owner_rev {rev}"
        case Arrived(delivery=delivery):
            return f"{delivery.key.text()}: {shown_value(delivery.value)}"
        case TimerFired(name=name):
            return f"timer {name}"
        case EffectFinished(effect=effect, result=result):
            return f"{shown_effect(effect)} → {type(result).__name__}"
    raise TypeError(given)


def shown_effect(effect: Any) -> str:  # noqa: PLR0911 - a case for each effect
    match effect:
        case SetTimer(name=name, delay_seconds=seconds):
            return f"timer {name} in {seconds:g} s"
        case CancelTimer(name=name):
            return f"no timer {name}"
        case FenceWriter(writer=writer, epoch=epoch):
            return f"FenceWriter {writer} for {epoch}"
        case WriteEnds(epoch=epoch, partitions=partitions, cuts=cuts):
            told = " ".join(f"{writer}={position}" for writer, position in cuts)
            return f"WriteEnds for {epoch} on {list(partitions)}, cuts {told}"
        case MeasureEnds(partitions=partitions):
            return f"MeasureEnds of {list(partitions)}"
        case DeleteLog(writers=writers):
            return f"DeleteLog, writers {' '.join(writers) or 'none'}"
    return type(effect).__name__


def shown_fact(fact: Fact) -> str:
    return f"{fact.key.text()}: {shown_value(fact.value)}"


def shown_value(value: Any) -> str:  # noqa: PLR0911 - a case for each record
    match value:
        case None:
            return "deleted"
        case SetRecorded():
            generations = "; ".join(shown_generation(each) for each in value.generations)
            writers = " ".join(f"{each.writer}.{each.life}{' over' if each.is_over else ''}" for each in value.writers)
            if not value.topic:
                return f"deleted, last generation {value.last_epoch}"
            return f"{generations or 'no generation'} | writers: {writers or 'none'}"
        case GenerationDescribed():
            return "streams on partitions " + " ".join(
                f"{stream.partition}@{stream.start_offset}" + (f"←{len(stream.parents)}" if stream.parents else "")
                for stream in value.streams
            )
        case WriterReported():
            promise = f", promises {value.promise} for {value.promised_epoch}" if value.promised_epoch else ""
            loads = ", bears " + " ".join(f"{each.changes / each.seconds:g}" for each in value.loads)
            at = f"at {value.epoch}{promise}{loads if value.loads else ''}"
            return f"leaves at {value.promise}" if value.leaving else at
        case ReaderReported():
            return f"has read {value.read_epoch}"
        case GenerationRequested():
            return value.kind.value
        case PolicyRequested():
            return "no policy" if value.policy is None else shown_policy(value.policy)
        case AutomaticRecorded():
            return shown_policy(value.policy) + (f", suspended: {value.suspended}" if value.suspended else "")
        case RequestSettled():
            return f"{value.status.value}, {value.reason}"
        case OwnerAnnounced():
            return "announced"
    return shown_other(value)


def shown_other(value: Any) -> str:
    """For scripts of other sets, which know more records."""
    raise TypeError(value)


def shown_policy(policy: LoadPolicy) -> str:
    return (
        f"split above {policy.split_above_per_second:g}, merge below {policy.merge_below_per_second:g}, "
        f"cool down {policy.cool_down_seconds:g} s"
    )


def shown_generation(generation: Any) -> str:
    cuts = " ".join(
        f"{cut.writer}.{'-' if cut.life is None else cut.life}={'?' if cut.position is None else cut.position}"
        + ("!" if cut.ended else "")
        for cut in generation.cuts
    )
    ends = f" ends {generation.closed_ends}" if generation.closed_ends else ""
    return f"{generation.epoch} {generation.phase.value}{f' [{cuts}]' if cuts else ''}{ends}"
