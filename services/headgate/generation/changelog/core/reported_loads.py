"""The load of a change log as its writers report it, summed over them.

What counts is the last report of each life that may write, if it is of the generation in force: a life that was fenced
or has left is forgotten, and so is what was counted by an earlier map. A writer that was heard and is silent for
``SILENT_SECONDS`` writes nothing, since it reports by the thread that writes. One that has not measured by this map yet
is *unknown*, and so is one whose report cannot be true: then what is known is the least that the streams bear, by which
they may be split, but not merged.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from headgate.generation.changelog.core.life import REPORT_SECONDS
from headgate.generation.changelog.core.load_sketch import SAMPLE_CHANGES
from headgate.generation.changelog.core.planning import MeasuredLoad
from headgate.generation.core.ranges import LogMap
from headgate.generation.core.stream_id import StreamId, StreamIdError
from headgate.records.generation import SetRecorded, StreamLoad, WriterReported

SILENT_SECONDS: Final = 3 * REPORT_SECONDS
"""A writer reports within REPORT_SECONDS if it turns at all; two reports may be late."""


class LoadError(ValueError):
    """A reported load that cannot be true; the message names the stream and the value."""


class WriterLoad(msgspec.Struct, frozen=True):
    """One writer's part: changes per second in all, and the seconds since its last report."""

    writer: str
    per_second: float
    age_seconds: float


class ReportedLoads(msgspec.Struct, frozen=True):
    """The sum. ``streams`` has every stream of the map, or none if no writer has reported.

    ``unknown``: writers whose load is not known yet. ``refused``: writer → what is wrong with its report.
    """

    streams: Mapping[StreamId, MeasuredLoad] = {}
    writers: tuple[WriterLoad, ...] = ()
    unknown: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    refused: Mapping[str, str] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the streams bear no more than this."""
        return bool(self.writers or self.silent) and not self.unknown and not self.refused


def check_loads(log: LogMap, loads: tuple[StreamLoad, ...]) -> None:
    """Check one writer's loads of the streams of ``log``. Raises LoadError."""
    if sum(len(load.keys) for load in loads) > SAMPLE_CHANGES:
        raise LoadError(f"{sum(len(load.keys) for load in loads)} keys, more than the {SAMPLE_CHANGES} of a sample")
    named = [load.stream for load in loads]
    if len(set(named)) != len(named):
        raise LoadError(f"stream {max(named, key=named.count)} is named twice")
    for load in loads:
        try:
            stream = log.by_id[StreamId.parse(load.stream)]
        except (StreamIdError, KeyError) as error:
            raise LoadError(f"stream {load.stream} is not open in generation {log.generation}") from error
        if load.changes < 0:
            raise LoadError(f"stream {load.stream}: {load.changes} changes, which is below 0")
        if not 0 < load.seconds < math.inf:
            raise LoadError(f"stream {load.stream}: {load.seconds} seconds, which is not above 0 and finite")
        for key in load.keys:
            if not stream.start < key.token <= stream.end:
                raise LoadError(f"stream {load.stream}: token {key.token} is not in ({stream.start}, {stream.end}]")
            if key.changes < 1:
                raise LoadError(f"stream {load.stream}: {key.changes} changes of token {key.token}, which is below 1")
        if sum(key.changes for key in load.keys) > load.changes:
            raise LoadError(f"stream {load.stream}: more changes in the sample than the {load.changes} it is of")


def ages_of(reports: Mapping[tuple[str, int], WriterReported], now_ms: int) -> dict[tuple[str, int], float]:
    """Seconds since each report was written, by the clocks of two machines: to be shown, never to decide by."""
    return {life: max(0, now_ms - report.reported_ms) / 1000 for life, report in reports.items()}


def sum_loads(
    record: SetRecorded,
    log: LogMap,
    reports: Mapping[tuple[str, int], WriterReported],
    ages: Mapping[tuple[str, int], float],
    open_seconds: Mapping[StreamId, float],
) -> ReportedLoads:
    """What the streams of ``log``, the map in force, bear by the last ``reports`` of writers and their lives.

    ``ages``: seconds since each report was heard; one that is not there is unknown. ``open_seconds``: of each stream.
    """
    rates: dict[StreamId, float] = {}
    samples: dict[StreamId, dict[int, float]] = {}
    heard: list[WriterLoad] = []
    unknown: list[str] = []
    silent: list[str] = []
    refused: dict[str, str] = {}
    for admitted in record.writers:
        life = (admitted.writer, admitted.life)
        report = reports.get(life)
        if admitted.is_over or report is None or report.leaving or report.epoch != log.generation:
            continue
        if not report.loads or life not in ages:
            unknown.append(admitted.writer)
            continue
        if ages[life] > SILENT_SECONDS:
            silent.append(admitted.writer)
            continue
        try:
            check_loads(log, report.loads)
        except LoadError as error:
            refused[admitted.writer] = str(error)
            continue
        for load in report.loads:
            _add(rates, samples, load)
        per_second = sum(load.changes / load.seconds for load in report.loads)
        heard.append(WriterLoad(admitted.writer, per_second, ages[life]))
    known = log.streams if heard or silent else ()
    streams = {
        stream.id: MeasuredLoad(
            rates.get(stream.id, 0.0),
            open_seconds.get(stream.id, 0.0),
            tuple(sorted(samples.get(stream.id, {}).items())),
        )
        for stream in known
    }
    return ReportedLoads(streams, tuple(heard), tuple(unknown), tuple(silent), refused)


def _add(rates: dict[StreamId, float], samples: dict[StreamId, dict[int, float]], load: StreamLoad) -> None:
    """A writer's sample counts by its load: each has a sample of the same size, whatever it writes."""
    stream = StreamId.parse(load.stream)
    per_second = load.changes / load.seconds
    rates[stream] = rates.get(stream, 0.0) + per_second
    sampled = sum(key.changes for key in load.keys)
    tokens = samples.setdefault(stream, {})
    for key in load.keys:
        tokens[key.token] = tokens.get(key.token, 0.0) + per_second * key.changes / sampled
