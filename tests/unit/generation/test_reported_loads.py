"""Loads of writers, summed: whose count, whose do not, and reports that cannot be true."""

import math
import random

import pytest
from msgspec.structs import replace

from headgate.generation.changelog.core.load_sketch import SAMPLE_CHANGES
from headgate.generation.changelog.core.planning import first_map
from headgate.generation.changelog.core.reported_loads import (
    SILENT_SECONDS,
    LoadError,
    ReportedLoads,
    check_loads,
    sum_loads,
)
from headgate.records.generation import KeyLoad, SetRecorded, StreamLoad, WriterAdmitted, WriterReported

LOG = first_map(8, 2, random.Random(2).getrandbits)  # noqa: S311 (ids, not secrets)
LOW, HIGH = (str(stream.id) for stream in LOG.streams)
OPEN = dict.fromkeys((stream.id for stream in LOG.streams), 60.0)
GOOD = StreamLoad(LOW, 100, 10.0, (KeyLoad(-5, 1), KeyLoad(-3, 3)))


def report(*loads: StreamLoad, epoch: int = 1, leaving: bool = False) -> WriterReported:
    return WriterReported(epoch, 0, -1, leaving, loads, 0)


def summed(
    reports: dict[tuple[str, int], WriterReported],
    *,
    over: frozenset[str] = frozenset(),
    ages: dict[tuple[str, int], float] | None = None,
) -> ReportedLoads:
    newest = {writer: max(life for other, life in reports if other == writer) for writer, _ in reports}
    writers = tuple(WriterAdmitted(writer, life, writer in over) for writer, life in sorted(newest.items()))
    record = SetRecorded(0, "t", None, 8, 1, (), writers)
    return sum_loads(record, LOG, reports, dict.fromkeys(reports, 1.0) if ages is None else ages, OPEN)


def test_writers_are_summed_each_sample_by_its_writers_load() -> None:
    found = summed(
        {
            ("a", 1): report(GOOD),
            ("b", 1): report(StreamLoad(LOW, 600, 20.0, (KeyLoad(-3, 1),)), StreamLoad(HIGH, 40, 20.0, ())),
        }
    )
    low, high = (found.streams[stream.id] for stream in LOG.streams)
    assert (low.per_second, high.per_second) == (40.0, 2.0)
    assert low.sample == ((-5, 2.5), (-3, 37.5))
    assert low.open_seconds == 60.0
    assert [(each.writer, each.per_second) for each in found.writers] == [("a", 10.0), ("b", 32.0)]
    assert found.is_complete


def test_who_was_fenced_or_has_left_and_earlier_lives_and_generations_are_forgotten() -> None:
    found = summed(
        {
            ("fenced", 1): report(GOOD),
            ("left", 1): report(GOOD, leaving=True),
            ("old", 1): report(GOOD),
            ("old", 2): report(GOOD, epoch=0),
            ("idle", 1): report(StreamLoad(LOW, 0, 10.0, ())),
        },
        over=frozenset({"fenced"}),
    )
    assert [each.writer for each in found.writers] == ["idle"]
    assert {load.per_second for load in found.streams.values()} == {0.0}
    assert found.is_complete


def test_who_has_not_measured_yet_is_unknown_and_the_silent_write_nothing() -> None:
    reports = {("a", 1): report(GOOD), ("b", 1): report(), ("c", 1): report(GOOD), ("d", 1): report(GOOD)}
    ages = {("a", 1): SILENT_SECONDS, ("b", 1): 0.0, ("c", 1): SILENT_SECONDS + 1}
    found = summed(reports, ages=ages)
    assert [each.writer for each in found.writers] == ["a"]
    assert (found.unknown, found.silent) == (("b", "d"), ("c",))
    assert not found.is_complete


def test_without_a_report_nothing_is_known() -> None:
    assert summed({("a", 1): report()}).streams == {}
    assert not summed({}).is_complete


BAD = {
    "below 0": replace(GOOD, changes=-1),
    "not above 0": replace(GOOD, seconds=0.0),
    "nan seconds": replace(GOOD, seconds=math.nan),
    "inf seconds": replace(GOOD, seconds=math.inf),
    "-1.0 seconds": replace(GOOD, seconds=-1.0),
    "is not open": replace(GOOD, stream="0" * 31 + "1"),
    "'x' is not open|stream x is not open": replace(GOOD, stream="x"),
    "token 5 is not in": replace(GOOD, keys=(KeyLoad(5, 1),)) if LOG.streams[0].end < 5 else replace(GOOD, stream=HIGH),
    "0 changes of token": replace(GOOD, keys=(KeyLoad(-5, 0),)),
    "more changes in the sample": replace(GOOD, changes=3),
    "257 keys": replace(GOOD, changes=10**6, keys=tuple(KeyLoad(-n, 1) for n in range(5, SAMPLE_CHANGES + 6))),
}


@pytest.mark.parametrize("wrong", BAD)
def test_a_report_that_cannot_be_true_is_refused_with_what_and_where(wrong: str) -> None:
    with pytest.raises(LoadError, match="|".join(wrong.split("|")) if wrong != "token 5 is not in" else "is not in"):
        check_loads(LOG, (BAD[wrong],))
    found = summed({("a", 1): report(BAD[wrong]), ("b", 1): report(GOOD)})
    assert list(found.refused) == ["a"]
    assert found.streams[LOG.streams[0].id].per_second == 10.0
    assert not found.is_complete, "what the refused one really writes is not known"


def test_a_stream_may_be_named_once() -> None:
    with pytest.raises(LoadError, match="named twice"):
        check_loads(LOG, (GOOD, GOOD))
