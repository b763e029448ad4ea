"""A campaign holds only if everything does."""

from typing import Any

import msgspec
import pytest

from headgate_lab.chaos.report import ChaosReport, Suffered
from headgate_lab.demo.audit import AuditReport, FindingKind
from headgate_lab.demo.compare import Comparison


def suffered(fault: str, failover: float | None, pause: float) -> Suffered:
    return Suffered(
        fault=fault,
        victim="agent-1",
        at_seconds=10.0,
        seconds=15.0,
        failover_seconds=failover,
        tables=("shop.orders",),
        begin=0.0,
        end=15.0,
        pauses={"shop.orders": pause},
    )


REPORT = ChaosReport(
    sink="mysql",
    seed=7,
    lease_seconds=5.0,
    seconds=60.0,
    suffered=(
        suffered("agent_killed", 6.0, 8.0),
        suffered("agent_killed", 5.0, 1.0),
        suffered("jvm_killed", None, 3.0),
    ),
    missed=(),
    operations={"move done": 3, "pause refused": 1},
    comparisons=(Comparison("shop.orders", 100, 0, ()),),
    audited=AuditReport(200, 12, {}, ()),
    false_losses=(),
    is_hijacked=False,
    left_over=(),
    changes_written=200,
    drain_seconds=1.0,
)


def test_a_clean_campaign_holds_and_says_what_its_faults_cost() -> None:
    assert REPORT.holds()
    figures = REPORT.figures()
    assert (figures["faults"].value, figures["operations"].value) == (3, 4)
    failover = figures["failover_agent_killed_s"]
    assert (failover.value, failover.n, failover.spread, failover.goal) == (6.0, 2, 1.0, 7.0)
    assert "failover_jvm_killed_s" not in figures
    assert (figures["pause_shop.orders_p50_s"].value, figures["pause_shop.orders_p99_s"].value) == (3.0, 8.0)
    assert REPORT.to_json()["faults"][2]["failover_s"] is None


@pytest.mark.parametrize(
    "change",
    [
        {"comparisons": (Comparison("shop.orders", 100, 1, ()),)},
        {"comparisons": (Comparison("shop.orders", 0, 0, ()),)},
        {"comparisons": ()},
        {"audited": AuditReport(200, 12, {FindingKind.STALE_EPOCH: 1}, ())},
        {"audited": AuditReport(0, 12, {}, ())},
        {"audited": AuditReport(200, 0, {}, ())},
        {"false_losses": ("session a of agent-1",)},
        {"left_over": ("1 java",)},
        {"suffered": ()},
        {"missed": ("password_rotated",)},
        {"is_hijacked": True},
    ],
)
def test_anything_that_is_not_as_it_must_be_fails_it(change: dict[str, Any]) -> None:
    assert not msgspec.structs.replace(REPORT, **change).holds()
