"""The verdict: everything that must hold has to, and a fault that was not made up for is not forgotten."""

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from headgate.app.exit_codes import ExitCode
from headgate_lab.demo.audit import AuditFinding, AuditReport, FindingKind
from headgate_lab.demo.command import EXIT_FAILED
from headgate_lab.demo.compare import Comparison, MismatchedRow
from headgate_lab.demo.faults import FaultKind, Takeover
from headgate_lab.demo.report import DemoReport, Verified, show_report


def takeover(fault: str, seconds: float = 5.0) -> Takeover:
    return Takeover(fault, "agent-1", seconds, 7.0, "shop.orders → agent-2", ("shop.orders",), 0.0, seconds)


GOOD = DemoReport(
    seed=7,
    faults=tuple(FaultKind),
    comparisons=(Comparison("shop.orders", 100, 0, ()), Comparison("shop.stock", 50, 0, ())),
    audited=AuditReport(changes=400, claims=6, counts={}, findings=()),
    verified=Verified(rows=150, differences=0, unsettled=0, seconds=6.0),
    column_seconds=2.5,
    takeovers=(takeover("agent_killed"), takeover("agent_frozen"), takeover("owner_killed")),
    pauses={"agent_killed": {"shop.orders": 6.0, "shop.stock": 6.5}, "agent_frozen": {}},
    false_losses=(),
    left_over=(),
    changes_written=500,
    rows_applied=300,
    seconds=60.0,
    lag_seconds_max=6.2,
    lag_seconds_quiet=(0.3, 0.1, 0.2),
    drain_seconds=1.5,
)

FINDING = AuditFinding(FindingKind.VERSION_BACK, "shop.orders", ("7",), 12, "version 2 after version 3")
DIFFERENCE = MismatchedRow("shop.orders", ("7",), "missing in the target")


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"comparisons": (Comparison("shop.orders", 100, 1, (DIFFERENCE,)),)}, "missing in the target"),
        ({"comparisons": (Comparison("shop.orders", 0, 0, ()),)}, None),
        ({"audited": AuditReport(400, 6, {FindingKind.VERSION_BACK: 1}, (FINDING,))}, "version 2 after version 3"),
        ({"audited": AuditReport(0, 6, {}, ())}, None),
        ({"audited": AuditReport(400, 0, {}, ())}, None),
        ({"verified": Verified(rows=150, differences=1, unsettled=0)}, None),
        ({"false_losses": ("session s1 of agent-2",)}, "session s1 of agent-2"),
        ({"left_over": ("agent-1: 17 java",)}, "agent-1: 17 java"),
        ({"takeovers": GOOD.takeovers[:2]}, None),
    ],
)
def test_anything_that_must_hold_and_does_not_decides(change: dict[str, Any], finding: str | None) -> None:
    assert GOOD.holds()
    bad = msgspec.structs.replace(GOOD, **change)
    assert not bad.holds()
    assert bad.to_json()["holds"] is False
    if finding is not None:
        assert any(finding in line for line in bad.findings())


def test_a_slow_takeover_is_shown_and_does_not_decide() -> None:
    slow = msgspec.structs.replace(GOOD, takeovers=(takeover("agent_killed", 30.0), *GOOD.takeovers[1:]))
    assert slow.holds()
    console = Console(file=io.StringIO(), width=120)
    show_report(console, slow)
    assert isinstance(console.file, io.StringIO)
    (line,) = [line for line in console.file.getvalue().splitlines() if line.startswith("failover_agent_killed_s")]
    assert "✗" in line


def test_figures_have_the_shape_of_every_bench() -> None:
    figures = GOOD.to_json()["figures"]
    assert all(set(figure) == {"value", "unit", "goal", "n", "spread"} for figure in figures.values())
    assert figures["rows_compared"]["value"] == 150
    assert figures["differences"] == {"value": 0, "unit": "rows", "goal": 0, "n": 1, "spread": None}
    assert figures["failover_agent_killed_s"]["goal"] == 7.0
    assert figures["pause_agent_killed_s_max"] == {"value": 6.5, "unit": "s", "goal": None, "n": 2, "spread": 0.5}
    assert "pause_agent_frozen_s_max" not in figures
    assert figures["rows_per_s"]["value"] == 5.0
    assert figures["lag_seconds_quiet_p50"]["value"] == 0.2


def test_the_exit_code_is_the_documented_one() -> None:
    assert EXIT_FAILED == ExitCode.DIFFERENCE
