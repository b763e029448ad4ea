"""What a switch of a change log costs: its time, and how long changes wait that are written in the meantime.

A real broker, an owner in a process of its own, and writers as threads of this one, as in `headgate serve ingest`, or
in several processes. The lower half of the ring is split in four and merged again, in turn; the upper half stays one
stream. A reader follows all the time and keeps for each change how long it took from ``write`` to its delivery in
order. The stall of a half is the longest of these times among changes written in the seconds from a request on, less
the longest in the seconds before it: times differ by themselves, and what no switch causes is in both. How much the
same difference is where nothing is switched (the seconds before a request, less those before them) is measured as
well: a half that a switch does not touch has no stall if it does not exceed that.

Beside its time, the processor time of all parts from a switch's request to its outcome is counted: on a machine that is
shared it is more reliable. The comparison with a plain topic that grows is generation_control.py.

Routing is measured apart: a key's token and its stream, on maps of equal ranges.
"""

import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import psutil

from headgate.cli.changes import Permit
from headgate.cli.generation_requests import ask, request_of
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.log import LogError
from headgate.eventlog.topics import create_topics
from headgate.generation import ChangeReader
from headgate.generation.changelog.core.planning import first_map
from headgate.generation.core.ranges import LogMap, MapError, Recut
from headgate.generation.core.splitmix import Splitmix
from headgate.generation.core.state import current_of
from headgate.generation.core.tokens import token_of_key
from headgate.generation.shell.tail import GenerationTail
from headgate.records.base import Fact
from headgate.records.control import OutcomeStatus
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    StreamsRecut,
)
from headgate_lab.benchmarks.figures import BenchReport, Figure, median_of
from headgate_lab.benchmarks.generation_control import compare
from headgate_lab.benchmarks.generation_parts import WAIT_SECONDS, BenchCluster, await_owner, owner_of
from headgate_lab.benchmarks.generation_writers import WritersApart, WritersHere, WritersLoad
from headgate_lab.benchmarks.parts import BenchError
from headgate_lab.embedded.broker import CALM, EmbeddedKafka

SET: Final = "bench"
PARTITIONS: Final = 40
KEYS: Final = 20
"""Of each writer."""

SWITCH_GOAL_MS: Final = 2_000.0
"""p99 with the most writers."""

UNAFFECTED_GOAL_MS: Final = 0.0

STRETCH_SECONDS: Final = 2.0
"""Before and from a request on."""

ROUTED_KEYS: Final = 50_000


class GenerationOptions(msgspec.Struct, frozen=True):
    """Numbers of writers, ``switches`` with each, at ``rate`` changes per second in all; sizes of maps."""

    writers: tuple[int, ...] = (1, 10, 100)
    switches: int = 10
    rate: int = 200
    ranges: tuple[int, ...] = (64, 4_096, 65_536)
    processes: int = 0
    """In which the writers are; 0: in this one."""
    compared: bool = True
    """With a plain topic."""


class _Sample(msgspec.Struct, frozen=True):
    """One change as it was read: when it was written, how long it took, and whether its half is switched."""

    written: float
    seconds: float
    is_affected: bool


def bench_generation(options: GenerationOptions, say: Callable[[str], None]) -> BenchReport:
    """Every number of writers, then routing. Raises BenchError if a switch fails or the last change does not come."""
    figures: dict[str, Figure] = {}
    folder = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    stalls: dict[bool, list[float]] = {True: [], False: []}
    by_themselves: list[float] = []
    lost = reordered = 0
    try:
        with EmbeddedKafka(folder / "kafka", heap_mb=1024, settings=CALM) as kafka:
            for count in options.writers:
                run = _Run(BenchCluster(kafka.bootstrap, f"bench{count}"), count, options, folder)
                switches = run.measure(say)
                figures[f"switch_{count}_writers_cpu_ms"] = median_of(run.cpu_ms, "ms")
                goal = SWITCH_GOAL_MS if count == max(options.writers) else None
                figures[f"switch_{count}_writers_p50_ms"] = median_of(switches, "ms")
                figures[f"switch_{count}_writers_p99_ms"] = _p99(switches, goal)
                for is_affected, found in run.stalls.items():
                    stalls[is_affected] += found
                by_themselves += run.by_themselves
                lost, reordered = lost + run.lost, reordered + run.reordered
                worst = {side: max(found) for side, found in run.stalls.items()}
                say(
                    f"{count} writers: switches {', '.join(f'{each:.0f}' for each in switches)} ms; longest stall "
                    f"{worst[True]:.0f} ms affected, {worst[False]:.0f} ms not; "
                    f"{run.lost} lost, {run.reordered} reordered"
                )
            if options.compared:
                figures |= _compared(kafka.bootstrap, folder, say)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures["affected_stall_p99_ms"] = _p99(stalls[True], None)
    figures["unaffected_stall_p99_ms"] = _p99(stalls[False], UNAFFECTED_GOAL_MS)
    figures["unswitched_stall_p99_ms"] = _p99(by_themselves, None)
    figures["lost"] = Figure(lost, "changes", 0, 1, 0)
    figures["reordered"] = Figure(reordered, "changes", 0, 1, 0)
    for ranges in options.ranges:
        figures[f"route_{ranges}_us"] = median_of(_route(ranges), "us", digits=2)
    return BenchReport("generation", figures)


def _compared(bootstrap: str, folder: Path, say: Callable[[str], None]) -> dict[str, Figure]:
    """A topic that grows, and a change log that is switched, under the same load."""
    settings = BenchCluster(bootstrap, "compared")
    create_topics(settings)
    with (
        closing(open_log(settings)) as log,
        owner_of(settings, folder),
        closing(GenerationTail(log, "compared", "bench")) as tail,
    ):
        await_owner(tail)
        plain, ours = compare(bootstrap, log, tail)
    say(f"from 1 to 16: plain topic {plain.reordered} of {plain.read} reordered, change log {ours.reordered}")
    return {
        "plain_growth_reordered": Figure(plain.reordered, "changes", None, plain.read, 0),
        "plain_growth_reordered_keys": Figure(plain.keys, "keys", None, plain.read, 0),
        "switched_growth_reordered": Figure(ours.reordered, "changes", 0, ours.read, 0),
    }


class _Run:
    """One number of writers, on a change log of its own."""

    def __init__(self, settings: BenchCluster, count: int, options: GenerationOptions, folder: Path) -> None:
        self._settings, self._count, self._options, self._folder = settings, count, options, folder
        self._samples: list[_Sample] = []
        self._read: dict[bytes, list[int]] = defaultdict(list)
        self._written: int | None = None
        self.cpu_ms: list[float] = []
        self._is_over = threading.Event()
        self._wrong: list[Exception] = []
        self.stalls: dict[bool, list[float]] = {True: [], False: []}
        self.by_themselves: list[float] = []
        self.lost = self.reordered = 0

    def measure(self, say: Callable[[str], None]) -> list[float]:
        """Milliseconds of each switch, from the request to its outcome."""
        create_topics(self._settings)
        with ExitStack() as stack:
            log = stack.enter_context(closing(open_log(self._settings)))
            stack.enter_context(owner_of(self._settings, self._folder))
            tail = stack.enter_context(closing(GenerationTail(log, SET, "bench")))
            await_owner(tail)
            topic = f"{self._settings.cluster}.data"
            create = request_of(GenerationRequestKind.CREATE, topic=topic, partitions=PARTITIONS, streams=2)
            ask(log, SET, create, WAIT_SECONDS, Permit())
            writers = stack.enter_context(closing(self._writers(log)))
            writers.start()
            say(f"{self._count} writers are admitted")
            follower = threading.Thread(target=self._guarded, args=(log,))
            follower.start()
            try:
                asked = list(self._switches(tail, say))
                self._written = writers.stop()
            finally:
                self._is_over.set()
                follower.join(2 * WAIT_SECONDS)  # it gives up what has not come after WAIT_SECONDS
            if follower.is_alive():
                raise BenchError(f"the reader has not ended within {2 * WAIT_SECONDS:g} s: look at the broker's log")
        if self._wrong:
            raise BenchError(f"a thread has ended: {self._wrong[0]}") from self._wrong[0]
        self._judge([at for at, _ in asked])
        return [seconds * 1_000 for _, seconds in asked]

    def _switches(self, tail: GenerationTail, say: Callable[[str], None]) -> Iterator[tuple[float, float]]:
        """When each was asked for, and how long it took."""
        for _ in range(self._options.switches):
            self._is_over.wait(3 * STRETCH_SECONDS)  # two are compared, and before them the last switch comes to rest
            tail.read_to_end()
            current = current_of(tail.state.sets[SET])
            if current is None:
                raise BenchError("no generation is in force")
            changes = _split_or_merge(tail.state.map_of(SET, current.epoch))
            request = request_of(GenerationRequestKind.SWITCH, epoch=current.epoch, changes=changes)
            begun, cpu = time.monotonic(), _cpu_seconds()
            _switch(tail, request)
            seconds = time.monotonic() - begun
            self.cpu_ms.append((_cpu_seconds() - cpu) * 1_000)
            say(f"generation {current.epoch + 1}: {seconds * 1_000:.0f} ms")
            yield begun, seconds
        self._is_over.wait(STRETCH_SECONDS)

    def _writers(self, log: KafkaLog) -> WritersHere | WritersApart:
        parts = self._options.processes
        if not parts:
            return WritersHere(log, SET, WritersLoad(0, self._count, KEYS, self._options.rate))
        firsts = [self._count * number // parts for number in range(parts + 1)]
        loads = [
            WritersLoad(first, end - first, KEYS, self._options.rate * (end - first) / self._count)
            for first, end in pairwise(firsts)
            if end > first
        ]
        return WritersApart(self._settings.bootstrap, self._settings.cluster, SET, loads)

    def _follow(self, log: KafkaLog) -> None:
        with closing(ChangeReader(log, SET, "bench")) as reader:
            read, deadline = 0, float("inf")
            while self._written is None or read < self._written:
                for change in reader.poll(0.05):
                    key, now, written = change.key or b"", time.monotonic(), float(change.value or b"0")
                    self._read[key].append(change.position)
                    self._samples.append(_Sample(written, now - written, token_of_key(key) < 0))
                    read += 1
                if self._is_over.is_set():
                    if self._written is None:
                        return  # It went wrong.
                    deadline = min(deadline, time.monotonic() + WAIT_SECONDS)
                if time.monotonic() > deadline:
                    return  # What is missing is counted.

    def _guarded(self, log: KafkaLog) -> None:
        try:
            self._follow(log)
        except (LogError, MapError) as error:
            self._wrong.append(error)
            self._is_over.set()

    def _judge(self, asked: Sequence[float]) -> None:
        for at in asked:
            for is_affected, found in self.stalls.items():
                found.append(self._longer(at, is_affected=is_affected))
            self.by_themselves.append(self._longer(at - STRETCH_SECONDS, is_affected=False))
        self.lost = (self._written or 0) - len({(key, each) for key, found in self._read.items() for each in found})
        self.reordered = sum(later <= earlier for found in self._read.values() for earlier, later in pairwise(found))

    def _longer(self, at: float, *, is_affected: bool) -> float:
        """By how many milliseconds the longest time of a stretch from ``at`` on exceeds that of the one before."""
        during = self._longest(at, at + STRETCH_SECONDS, is_affected=is_affected)
        before = self._longest(at - STRETCH_SECONDS, at, is_affected=is_affected)
        return max(0.0, during - before) * 1_000

    def _longest(self, begin: float, end: float, *, is_affected: bool) -> float:
        within = (s.seconds for s in self._samples if begin <= s.written < end and s.is_affected is is_affected)
        return max(within, default=0.0)


def _cpu_seconds() -> float:
    """Of this process and all that it has started."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def _switch(tail: GenerationTail, request: GenerationRequested) -> None:
    """Ask and wait, with connections that are open already: a command's own would be part of the measured time."""
    key = GenerationRequestKey(SET, uuid4().hex)
    outcome = GenerationOutcomeKey(SET, key.request)
    deadline = time.monotonic() + WAIT_SECONDS
    tail.say(Fact(key, request))
    while (found := tail.state.outcomes.get(outcome)) is None or found.status is OutcomeStatus.ACCEPTED:
        if time.monotonic() >= deadline:
            raise BenchError(f"the switch is not done after {WAIT_SECONDS:g} s")
        tail.follow(0.2)
    tail.say(Fact(key, None))
    if found.status is not OutcomeStatus.DONE:
        raise BenchError(f"the switch was {found.status.value}: {found.reason}")


def _split_or_merge(log: LogMap) -> tuple[StreamsRecut, ...]:
    """The lower half in four, or in one."""
    *lower, upper = log.streams
    ids = tuple(stream.id for stream in lower)
    width = (upper.start - lower[0].start) // 4
    cuts = tuple(lower[0].start + width * number for number in (1, 2, 3)) if len(lower) == 1 else ()
    change = Recut(ids, cuts, "")
    return (StreamsRecut(tuple(map(str, change.streams)), change.cuts),)


def _p99(values: Sequence[float], goal: float | None) -> Figure:
    """With fewer than a hundred values, the greatest of them."""
    ordered = sorted(values)
    value = ordered[max(0, -(-99 * len(ordered) // 100) - 1)]
    return Figure(round(value, 1), "ms", goal, len(ordered), round(ordered[-1] - ordered[0], 1))


def _route(ranges: int) -> list[float]:
    """Microseconds for a key's token and its stream, in each of five runs."""
    log = first_map(ranges, ranges, Splitmix(1).bits)
    keys = [b"customer-%d" % number for number in range(ROUTED_KEYS)]
    log.stream_of(0)
    runs = []
    for _ in range(5):
        begun = time.process_time()
        for key in keys:
            log.stream_of(token_of_key(key))
        runs.append((time.process_time() - begun) / ROUTED_KEYS * 1e6)
    return runs
