"""Plans splits and merges of a change log's streams by their load.

A pure rule: the same loads give the same plan, so it can be shown before it is done. A stream with too much load is
split where half of its load lies on each side; if one key alone is more than a stream is meant to bear, it gets a range
of its own, and nothing more can be done for it. Neighbours with little load are merged. Between the two limits nothing
happens, and a stream that was opened a short while ago is left alone, so that a plan is not undone by the next one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.generation.core.ranges import FIRST_TOKEN, LAST_TOKEN, LogMap, LogStream, MapError, Recut
from headgate.generation.core.stream_id import StreamId

RANDOM_BITS: Final = 38

COOL_DOWN_SECONDS_MIN: Final = 1.0
"""A switch takes some tenths of a second, during which the ranges that it changes are blocked."""

Draw = Callable[[int], int]
"""Of a number of bits, a number of so many random bits."""


class PolicyError(ValueError):
    """Limits that contradict each other."""


class Policy(msgspec.Struct, frozen=True):
    """What a stream is meant to bear, in changes per second, and how many streams there may be.

    A stream is split above ``split_above_per_second``; neighbours are merged while they have less than
    ``merge_below_per_second`` together. ``settle_seconds``: so long a new stream is left alone. ``changes_max``: so
    many splits and merges in one plan, each of which stops the writers of its ranges for a moment.
    ``cool_down_seconds``: autoscaling makes no other switch for so long after one of its own.
    """

    split_above_per_second: float
    merge_below_per_second: float
    streams_max: int
    streams_min: int = 1
    settle_seconds: float = 60.0
    changes_max: int = 8
    cool_down_seconds: float = 120.0

    def checked(self) -> "Policy":
        """Itself. Raises PolicyError: a merged stream must be far from being split again."""
        if not 0 <= 2 * self.merge_below_per_second <= self.split_above_per_second:
            raise PolicyError(
                f"merge_below_per_second ({self.merge_below_per_second}) must be at most half of "
                f"split_above_per_second ({self.split_above_per_second}): otherwise merged streams are split again"
            )
        if not 1 <= self.streams_min <= self.streams_max:
            raise PolicyError(
                f"streams_min must be between 1 and streams_max ({self.streams_max}), got {self.streams_min}"
            )
        if not math.isfinite(self.split_above_per_second):
            raise PolicyError(f"split_above_per_second must be a finite number, got {self.split_above_per_second}")
        if self.changes_max < 1 or not 0 <= self.settle_seconds < math.inf:
            raise PolicyError("changes_max must be at least 1, and settle_seconds finite and at least 0")
        if not COOL_DOWN_SECONDS_MIN <= self.cool_down_seconds < math.inf:
            raise PolicyError(
                f"cool_down_seconds must be finite and at least {COOL_DOWN_SECONDS_MIN:g}, got {self.cool_down_seconds}"
            )
        return self


class MeasuredLoad(msgspec.Struct, frozen=True):
    """What a stream bears: changes per second, for how long it has been open, and a sample of its keys.

    ``sample``: tokens with their share of the load (any unit), ascending by token; the finer, the better a split.
    """

    per_second: float
    open_seconds: float
    sample: tuple[tuple[int, float], ...] = ()


class RecutPlan(msgspec.Struct, frozen=True):
    """Changes in the order of ranges, and what would be done but for a limit."""

    changes: tuple[Recut, ...] = ()
    left: tuple[str, ...] = ()


def plan(
    policy: Policy, log: LogMap, loads: Mapping[StreamId, MeasuredLoad], *, merge: bool = True, free: int | None = None
) -> RecutPlan:
    """What to change now. A stream without a known load is left alone; without ``merge``, nothing is merged.

    ``free``: partitions for new streams, of which each takes one; None: they are not counted. Raises PolicyError.
    """
    policy.checked()
    left: list[str] = []
    budget = policy.streams_max - len(log.streams)
    slots = len(log.streams) + policy.streams_max if free is None else free
    splits: dict[StreamId, Recut] = {}
    hot = [(loads[stream.id].per_second, stream) for stream in log.streams if _is_hot(policy, loads.get(stream.id))]
    for per_second, stream in sorted(hot, key=lambda each: (-each[0], each[1].id)):
        cuts = _cuts(policy, stream, loads[stream.id])
        if not cuts:
            left.append(f"{stream.id}: {per_second:.0f} changes/s, but its sample shows no place to cut it")
        elif len(splits) == policy.changes_max:
            left.append(f"{stream.id}: {per_second:.0f} changes/s; it waits for the next plan")
        elif len(cuts) > budget:
            left.append(f"{stream.id}: {per_second:.0f} changes/s, but there are {policy.streams_max} streams at most")
        elif len(cuts) + 1 > slots:
            left.append(f"{stream.id}: {per_second:.0f} changes/s, but only {slots} partitions are free")
        else:
            budget -= len(cuts)
            slots -= len(cuts) + 1
            splits[stream.id] = Recut((stream.id,), cuts, f"{per_second:.0f} changes/s")
    most = min(policy.changes_max - len(splits), slots) if merge else 0
    merges = _merges(policy, log, loads, most, len(log.streams) - policy.streams_min)
    order = {stream.id: number for number, stream in enumerate(log.streams)}
    return RecutPlan(
        tuple(sorted((*splits.values(), *merges), key=lambda change: order[change.streams[0]])), tuple(left)
    )


def first_map(partitions: int, streams: int, draw: Draw, *, generation: int = 1) -> LogMap:
    """The first generation of a log: equal ranges. Raises MapError if there are fewer partitions than streams."""
    if not 1 <= streams <= partitions:
        raise MapError(f"{streams} streams need as many partitions; the topic has {partitions}")
    width = (1 << 64) // streams
    ends = [FIRST_TOKEN - 1 + width * (number + 1) for number in range(streams - 1)] + [LAST_TOKEN]
    starts = [FIRST_TOKEN - 1, *ends[:-1]]
    opened = [
        LogStream(StreamId.pack(end, draw(RANDOM_BITS), number), start, end, number, generation)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    return LogMap.of(generation, opened, partitions)


def next_map(
    log: LogMap,
    changes: Sequence[Recut],
    free: Sequence[int],
    partitions: int,
    draw: Draw,
    *,
    generation: int | None = None,
    starts: Mapping[int, int] | None = None,
) -> LogMap:
    """The next generation: ``log`` with ``changes``; new streams take partitions of ``free`` from its front.

    ``generation`` is its number, by default the successor's. ``starts``: where each partition ends now, hence where a
    new stream on it begins.
    Raises MapError: an unknown stream, streams that are not neighbours, a cut outside of them, or too few partitions.
    """
    taken = {stream: change for change in changes for stream in change.streams}
    if len(taken) != sum(len(change.streams) for change in changes):
        raise MapError("two changes name the same stream")
    unknown = sorted(stream for stream in taken if stream not in log.by_id)
    if unknown:
        raise MapError(f"stream {unknown[0]} is not open in generation {log.generation}")
    number = log.generation + 1 if generation is None else generation
    slots = iter(free)
    streams: list[LogStream] = []
    done: set[StreamId] = set()
    for stream in log.streams:
        change = taken.get(stream.id)
        if change is None:
            streams.append(stream)
        elif stream.id not in done:
            opened = _cut(log, change, slots, draw, len(streams), generation=number)
            streams += [replace(each, start_offset=(starts or {}).get(each.partition, 0)) for each in opened]
            done.update(change.streams)
    return LogMap.of(number, streams, partitions)


def resize(log: LogMap, streams: int) -> tuple[Recut, ...]:
    """Changes after which the log has ``streams`` equal ranges; streams that are one of them already stay.

    Raises MapError for a number of streams that no log has.
    """
    if streams < 1:
        raise MapError(f"a log has at least one stream, not {streams}")
    width = (1 << 64) // streams
    wanted = [FIRST_TOKEN - 1 + width * (number + 1) for number in range(streams - 1)]
    present = {stream.end for stream in log.streams}
    borders = sorted({LAST_TOKEN, *(end for end in wanted if end in present)})
    changes = []
    start = FIRST_TOKEN - 1
    for border in borders:
        group = tuple(stream.id for stream in log.streams if start < stream.end <= border)
        cuts = tuple(end for end in wanted if start < end < border)
        if len(group) > 1 or cuts:
            changes.append(Recut(group, cuts, f"{streams} equal streams"))
        start = border
    return tuple(changes)


def _is_hot(policy: Policy, load: MeasuredLoad | None) -> bool:
    return (
        load is not None
        and load.open_seconds >= policy.settle_seconds
        and (load.per_second > policy.split_above_per_second)
    )


def _cuts(policy: Policy, stream: LogStream, load: MeasuredLoad) -> tuple[int, ...]:
    """Where to cut a hot stream: round a key that alone is too much, else where half of the load is on each side."""
    sample = [(token, share) for token, share in load.sample if stream.start < token <= stream.end and share > 0]
    total = sum(share for _, share in sample)
    if not sample:
        return ()
    hottest, share = max(sample, key=lambda each: (each[1], each[0]))
    if load.per_second * share / total > policy.split_above_per_second:
        return tuple(cut for cut in (hottest - 1, hottest) if stream.start < cut < stream.end)
    before = 0.0
    best: tuple[float, int] | None = None
    for token, weight in sample[:-1]:
        before += weight
        distance = abs(2 * before - total)
        if best is None or distance < best[0]:
            best = (distance, token)
    return () if best is None else (best[1],)


def _merges(policy: Policy, log: LogMap, loads: Mapping[StreamId, MeasuredLoad], most: int, spare: int) -> list[Recut]:
    """Runs of neighbours that have little load together, as long as they can be."""
    merges: list[Recut] = []
    run: list[LogStream] = []
    weight = 0.0

    def close() -> None:
        nonlocal spare
        kept = run[: spare + 1]
        if len(kept) > 1 and len(merges) < most:
            spare -= len(kept) - 1
            total = sum(loads[stream.id].per_second for stream in kept)
            merges.append(Recut(tuple(stream.id for stream in kept), (), f"{total:.0f} changes/s together"))

    for stream in log.streams:
        load = loads.get(stream.id)
        cold = load is not None and load.open_seconds >= policy.settle_seconds
        per_second = 0.0 if load is None else load.per_second
        if cold and run and weight + per_second < policy.merge_below_per_second:
            run.append(stream)
            weight += per_second
            continue
        close()
        run, weight = ([stream], per_second) if cold and per_second < policy.merge_below_per_second else ([], 0.0)
    close()
    return merges


def _cut(
    log: LogMap, change: Recut, slots: Iterator[int], draw: Draw, index: int, *, generation: int
) -> list[LogStream]:
    """The streams that take over from those of a change."""
    old = [stream for stream in log.streams if stream.id in change.streams]
    if any(before.end != after.start for before, after in pairwise(old)):
        raise MapError(f"streams {', '.join(map(str, change.streams))} are not neighbours")
    start, end = old[0].start, old[-1].end
    ends = [*sorted(set(change.cuts)), end]
    outside = [cut for cut in ends[:-1] if not start < cut < end]
    if outside:
        raise MapError(f"a cut behind {outside[0]} is outside of ({start}, {end}]")
    opened = []
    for number, (first, last) in enumerate(zip([start, *ends[:-1]], ends, strict=True)):
        partition = next(slots, None)
        if partition is None:
            raise MapError(
                "there are not enough free partitions. Add some with `headgate generation grow LOG --partitions N`, or "
                "wait until readers have read the streams that are closed"
            )
        parents = tuple(stream.id for stream in old if stream.start < last and first < stream.end)
        stream_id = StreamId.pack(last, draw(RANDOM_BITS), index + number)
        opened.append(LogStream(stream_id, first, last, partition, generation, parents))
    return opened
