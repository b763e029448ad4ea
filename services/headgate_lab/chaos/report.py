"""What a campaign came to: each fault with what it cost, and whether everything is as it must be."""

from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate_lab.demo.audit import AuditReport
from headgate_lab.demo.compare import Comparison
from headgate_lab.demo.report import Figure, figures_json, row_findings


class Suffered(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. ``failover_seconds`` from the strike to the record that proves that others have taken over.

    ``recovery_seconds`` from the strike until the target showed that those struck had recovered.

    ``at_seconds`` since the campaign began, ``seconds`` until it was made good; ``begin`` and ``end`` since 1970.
    ``pauses`` are, per table, the longest gap between visible changes that overlaps the fault.
    """

    fault: str
    victim: str
    at_seconds: float
    seconds: float
    failover_seconds: float | None
    tables: tuple[str, ...]
    begin: float
    end: float
    recovery_seconds: float | None = None
    pauses: dict[str, float] = {}


class ChaosReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything found; times in seconds. ``missed``: faults that were drawn and struck no victim."""

    sink: str
    seed: int
    lease_seconds: float
    seconds: float
    suffered: tuple[Suffered, ...]
    missed: tuple[str, ...]
    operations: dict[str, int]
    comparisons: tuple[Comparison, ...]
    audited: AuditReport
    false_losses: tuple[str, ...]
    left_over: tuple[str, ...]
    changes_written: int
    drain_seconds: float
    is_hijacked: bool

    def figures(self) -> dict[str, Figure]:
        """By name, in the order in which they are shown."""
        found = {
            "faults": Figure(len(self.suffered), "faults"),
            "faults_without_victim": Figure(len(self.missed), "faults", goal=0, must=True),
            "operations": Figure(sum(self.operations.values()), "commands"),
            "rows_compared": Figure(sum(one.rows for one in self.comparisons), "rows"),
            "differences": Figure(sum(one.differences for one in self.comparisons), "rows", goal=0, must=True),
            "changes_audited": Figure(self.audited.changes, "changes"),
            "double_writes": Figure(self.audited.double_writes, "changes", goal=0, must=True),
            "false_lease_losses": Figure(len(self.false_losses), "losses", goal=0, must=True),
            "processes_left_over": Figure(len(self.left_over), "processes", goal=0, must=True),
            "hijacked": Figure(int(self.is_hijacked), "times", goal=0, must=True),
            "changes_written": Figure(self.changes_written, "changes"),
            "drain_seconds": Figure(round(self.drain_seconds, 2), "s"),
        }
        for kind in sorted({one.fault for one in self.suffered}):
            times = sorted(s.failover_seconds for s in self.suffered if s.fault == kind and s.failover_seconds)
            if times:
                spread = round(times[-1] - times[0], 2)
                middle = round(times[len(times) // 2], 2)
                found[f"failover_{kind}_s"] = Figure(
                    middle, "s", goal=self.lease_seconds + 2, n=len(times), spread=spread
                )
            times = sorted(s.recovery_seconds for s in self.suffered if s.fault == kind and s.recovery_seconds)
            if times:
                found[f"recovery_{kind}_s"] = Figure(
                    round(times[len(times) // 2], 2), "s", n=len(times), spread=round(times[-1] - times[0], 2)
                )
        for table in sorted({table for one in self.suffered for table in one.pauses}):
            gaps = sorted(one.pauses[table] for one in self.suffered if table in one.pauses)
            for name, share in (("p50", 0.50), ("p99", 0.99)):
                at = gaps[min(len(gaps) - 1, int(share * len(gaps)))]
                found[f"pause_{table}_{name}_s"] = Figure(round(at, 2), "s", n=len(gaps))
        return found

    def holds(self) -> bool:
        """Whether everything is as it must be, and something was done and looked at at all."""
        musts = all(figure.value == figure.goal for figure in self.figures().values() if figure.must)
        rows = all(one.rows > 0 for one in self.comparisons) and bool(self.comparisons)
        return musts and rows and self.audited.changes > 0 and self.audited.claims > 0 and bool(self.suffered)

    def findings(self) -> list[str]:
        """What is wrong, in words; the first few of each kind."""
        found = row_findings(self.comparisons, self.audited)
        found += [f"{fault} was drawn, but had no victim: nothing is known about it" for fault in self.missed]
        if self.is_hijacked:
            found.append("a session of Headgate has run something of the hostile schema")
        found += [f"false loss: {loss}" for loss in self.false_losses]
        return found + [f"left over: {one}" for one in self.left_over]

    def to_json(self) -> dict[str, Any]:
        """The object that ``-o json`` prints."""
        figures = figures_json(self.figures())
        return {
            "chaos": "campaign",
            "holds": self.holds(),
            "sink": self.sink,
            "seed": self.seed,
            "figures": figures,
            "faults": [_rounded(one) for one in self.suffered],
            "operations": self.operations,
            "findings": self.findings(),
        }


def _rounded(one: Suffered) -> dict[str, Any]:
    return {
        "fault": one.fault,
        "victim": one.victim,
        "at_s": round(one.at_seconds, 1),
        "seconds": round(one.seconds, 1),
        "failover_s": None if one.failover_seconds is None else round(one.failover_seconds, 2),
        "recovery_s": None if one.recovery_seconds is None else round(one.recovery_seconds, 2),
        "tables": list(one.tables),
        "pauses_s": {table: round(gap, 2) for table, gap in sorted(one.pauses.items())},
    }


def show_chaos(console: Console, report: ChaosReport) -> None:
    """The faults and the figures as tables, what is wrong, and the verdict."""
    faults = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("at", "fault", "victim", "lasted", "failover", "recovery", "longest pause"):
        faults.add_column(column, justify="left" if column in ("fault", "victim") else "right", no_wrap=True)
    for one in report.suffered:
        longest = max(one.pauses.items(), key=lambda pause: pause[1], default=None)
        faults.add_row(
            f"{one.at_seconds:.0f} s",
            one.fault,
            one.victim,
            f"{one.seconds:.1f} s",
            "" if one.failover_seconds is None else f"{one.failover_seconds:.1f} s",
            "" if one.recovery_seconds is None else f"{one.recovery_seconds:.1f} s",
            "" if longest is None else f"{longest[1]:.1f} s {longest[0]}",
        )
    figures = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("figure", "value", "unit", "goal"):
        figures.add_column(column, justify="right" if column in ("value", "goal") else "left", no_wrap=True)
    for name, figure in report.figures().items():
        goal = "" if figure.goal is None else f"{figure.goal:g}" if figure.must else f"≤ {figure.goal:g}"
        figures.add_row(name, f"{figure.value:,}", figure.unit, goal)
    console.print()
    console.print(faults)
    console.print()
    console.print(figures)
    for what, count in report.operations.items():
        console.print(Text(f"{what}: {count}"), soft_wrap=True)
    for finding in report.findings():
        console.print(Text(finding, style="red"), soft_wrap=True)
    if report.holds():
        verdict = f"Source and target are equal, nothing was written twice (seed {report.seed})."
        console.print(Text(verdict, style="bold green"), soft_wrap=True)
    else:
        console.print(Text(f"Something does not hold: see above (seed {report.seed}).", style="bold red"))
