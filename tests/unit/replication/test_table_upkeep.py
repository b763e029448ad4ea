"""When a lake's table is maintained next, and what becomes of a maintenance that fails."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from headgate.agent.core.executor import SpanId, SpanTask
from headgate.agent.core.span.states import Span, TaskPhase
from headgate.records.control import Epoch, SpanPlan, TaskState
from headgate.replication.table_upkeep import RETRY_SECONDS, TableUpkeep
from headgate.sinks.contract import Claim, FeedIdentity, SinkError, SinkFencedError, SinkUnavailableError
from headgate.sinks.maintaining import Maintained, Upkeep

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
PLAN = SpanPlan(span="t", topic="t", table="public.t", start={0: 0})
CLAIM = Claim(FeedIdentity("cluster", "shop", "0-1"), "public.t", "t", Epoch(1, 1), 1, {0: 0})
DONE = Maintained(10, 1, 5_000, 2_000_000, 3, 12)


class Lake:
    """A sink whose table was maintained at ``last``; the next maintenance ends with ``outcome``."""

    def __init__(self, outcome: Maintained | SinkError = DONE, last: datetime | None = NOW) -> None:
        self.outcome, self.last = outcome, last
        self.asked: list[Upkeep] = []

    def maintained_at(self, claim: Claim) -> datetime | None:
        assert claim is CLAIM
        return self.last

    def maintain(self, claim: Claim, upkeep: Upkeep, now: datetime) -> Maintained:
        assert (claim, now) == (CLAIM, NOW)
        self.asked.append(upkeep)
        if isinstance(self.outcome, SinkError):
            raise self.outcome
        return self.outcome


def span(request: str | None = None, **options: object) -> Span:
    sink = {"type": "delta", "dsn": "file:///lake", "maintenance": options}
    spec = msgspec.json.encode({"feed": "shop", "source": {"topics": ["a.b"]}, "sink": sink}).decode()
    task = SpanTask(SpanId("shop", "t"), "0-1", 1, Epoch(1, 1), PLAN, spec)
    return Span(task, 1, True, TaskPhase.OPENING, 0.0, maintain_for=request)


@pytest.fixture
def upkeep() -> TableUpkeep:
    return TableUpkeep(lambda: NOW, lambda: 1_000.0)


def test_a_table_is_due_when_its_time_has_passed_since_it_was_maintained(upkeep: TableUpkeep) -> None:
    for hours, seconds in ((0, 86_400), (20, 4 * 3_600), (30, -6 * 3_600)):
        lake = Lake(last=NOW - timedelta(hours=hours))
        assert upkeep.due_at(lake, span(), CLAIM, None) == 1_000.0 + seconds  # type: ignore[arg-type]
    assert upkeep.due_at(Lake(), span(every_hours=1), CLAIM, None) == 4_600.0  # type: ignore[arg-type]


def test_a_table_that_does_not_exist_or_has_no_schedule_is_never_due(upkeep: TableUpkeep) -> None:
    assert upkeep.due_at(Lake(last=None), span(), CLAIM, None) is None  # type: ignore[arg-type]
    assert upkeep.due_at(Lake(), span(scheduled=False), CLAIM, None) is None  # type: ignore[arg-type]
    assert upkeep.due_at(object(), span(), CLAIM, None) is None  # type: ignore[arg-type]


def test_what_was_done_is_reported_for_the_request(upkeep: TableUpkeep) -> None:
    lake = Lake()
    report = upkeep.maintain(lake, span("m1", target_file_megabytes=2), CLAIM)  # type: ignore[arg-type]
    assert (report.request, report.has_failed, report.number) == ("m1", False, 1)
    assert report.text == (
        "10 data files (5.0 kB) before, 1 data file (2.0 MB) now; 3 versions expired, 12 files removed, in 0.0 s"
    )
    assert lake.asked == [Upkeep(2 << 20, timedelta(days=7), timedelta(days=7))]


def test_a_failure_is_reported_and_a_scheduled_one_is_tried_again_later(upkeep: TableUpkeep) -> None:
    lake = Lake(SinkUnavailableError("the disk is full"), last=NOW - timedelta(days=9))
    report = upkeep.maintain(lake, span(), CLAIM)  # type: ignore[arg-type]
    assert (report.request, report.has_failed) == (None, True)
    assert "the disk is full" in report.text
    assert upkeep.due_at(lake, span(), CLAIM, report) == 1_000.0 + RETRY_SECONDS  # type: ignore[arg-type]


def test_a_claim_that_was_overtaken_is_the_spans_own_failure(upkeep: TableUpkeep) -> None:
    with pytest.raises(SinkFencedError):
        upkeep.maintain(Lake(SinkFencedError("another agent")), span(), CLAIM)  # type: ignore[arg-type]


def test_a_sink_without_files_says_so(upkeep: TableUpkeep) -> None:
    report = upkeep.maintain(object(), span("m1"), CLAIM)  # type: ignore[arg-type]
    assert report.has_failed
    assert "its sink is not a lake" in report.text


def test_a_table_is_maintained_between_two_batches_and_not_while_it_is_copied() -> None:
    ready = msgspec.structs.replace(span("m1"), phase=TaskPhase.CLAIMED, served=TaskState.REPLICATING)
    assert ready.owes_maintenance(0.0)
    assert not msgspec.structs.replace(ready, copying="some rows").owes_maintenance(0.0)
    assert not msgspec.structs.replace(ready, phase=TaskPhase.WRITING).owes_maintenance(0.0)
    scheduled = msgspec.structs.replace(ready, maintain_for=None, maintain_at=60.0)
    assert (scheduled.owes_maintenance(59.0), scheduled.owes_maintenance(60.0)) == (False, True)
