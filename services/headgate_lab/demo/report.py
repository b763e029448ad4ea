"""What came out: the figures, whether they are what they must be, and where to look next."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate_lab.demo.audit import AuditReport
from headgate_lab.demo.compare import Comparison
from headgate_lab.demo.faults import FaultKind, Takeover
from headgate_lab.demo.stack import FEED


class Figure(msgspec.Struct, frozen=True):
    """One figure as every bench gives it. ``goal`` is None if it has none; ``must``: whether success depends on it."""

    value: float
    unit: str
    goal: float | None = None
    n: int = 1
    spread: float | None = None
    must: bool = False


def figures_json(figures: Mapping[str, Figure]) -> dict[str, dict[str, float | str | None]]:
    """Figures as ``-o json`` prints them."""
    return {
        name: {"value": f.value, "unit": f.unit, "goal": f.goal, "n": f.n, "spread": f.spread}
        for name, f in figures.items()
    }


def row_findings(comparisons: Iterable[Comparison], audited: AuditReport) -> list[str]:
    """Rows that differ and rows that were written twice, in words; the first few of each kind."""
    differing = [
        f"{difference.table} {difference.key}: {difference.detail}"
        for comparison in comparisons
        for difference in comparison.shown
    ]
    return differing + [
        f"double write ({one.kind}) in {one.table} {one.key}, audit entry {one.entry}: {one.detail}"
        for one in audited.findings
    ]


class Verified(msgspec.Struct, frozen=True):
    """What `headgate verify` counted while the writers wrote; the whole command took ``seconds``."""

    rows: int
    differences: int
    unsettled: int
    seconds: float = 0.0


class DemoReport(msgspec.Struct, frozen=True):
    """Everything found. Lags and rates are of the time when the writers wrote; times in seconds.

    ``faults`` are those that were asked for. ``pauses`` has, per fault, the longest gap between two visible changes of
    each affected table. ``column_seconds``: from ALTER TABLE at the source until the target had the column.
    """

    seed: int
    faults: tuple[FaultKind, ...]
    comparisons: tuple[Comparison, ...]
    audited: AuditReport
    verified: Verified
    column_seconds: float
    takeovers: tuple[Takeover, ...]
    pauses: dict[str, dict[str, float]]
    false_losses: tuple[str, ...]
    left_over: tuple[str, ...]
    changes_written: int
    rows_applied: int
    seconds: float
    lag_seconds_max: float
    lag_seconds_quiet: tuple[float, ...]
    drain_seconds: float

    def figures(self) -> dict[str, Figure]:
        """By name, in the order in which they are shown."""
        found = {
            "rows_compared": Figure(sum(one.rows for one in self.comparisons), "rows"),
            "differences": Figure(sum(one.differences for one in self.comparisons), "rows", goal=0, must=True),
            "verify_rows": Figure(self.verified.rows, "rows"),
            "verify_differences": Figure(self.verified.differences, "rows", goal=0, must=True),
            "verify_unsettled": Figure(self.verified.unsettled, "rows", goal=0),
            "verify_seconds": Figure(round(self.verified.seconds, 2), "s"),
            "column_added_s": Figure(round(self.column_seconds, 2), "s"),
            "changes_audited": Figure(self.audited.changes, "changes"),
            "double_writes": Figure(self.audited.double_writes, "changes", goal=0, must=True),
            "false_lease_losses": Figure(len(self.false_losses), "losses", goal=0, must=True),
            "processes_left_over": Figure(len(self.left_over), "processes", goal=0, must=True),
        }
        for takeover in self.takeovers:
            name = f"failover_{takeover.fault}_s"
            found[name] = Figure(round(takeover.seconds, 2), "s", goal=takeover.goal)
        for fault, by_table in self.pauses.items():
            if by_table:
                spread = round(max(by_table.values()) - min(by_table.values()), 2)
                longest = round(max(by_table.values()), 2)
                found[f"pause_{fault}_s_max"] = Figure(longest, "s", n=len(by_table), spread=spread)
        found |= {
            "tables": Figure(len(self.comparisons), "tables"),
            "claims_and_seals_audited": Figure(self.audited.claims, "claims"),
            "changes_written": Figure(self.changes_written, "changes"),
            "rows_per_s": Figure(round(self.rows_applied / self.seconds, 1), "rows/s"),
            "lag_seconds_max": Figure(round(self.lag_seconds_max, 2), "s"),
            "drain_seconds": Figure(round(self.drain_seconds, 2), "s"),
        }
        if self.lag_seconds_quiet:
            ordered = sorted(self.lag_seconds_quiet)
            spread = round(ordered[-1] - ordered[0], 2)
            middle = round(ordered[len(ordered) // 2], 2)
            found["lag_seconds_quiet_p50"] = Figure(middle, "s", n=len(ordered), spread=spread)
        return found

    def holds(self) -> bool:
        """Whether everything is as it must be: nothing differs, nothing was doubled, every fault was made up for."""
        musts = all(figure.value == figure.goal for figure in self.figures().values() if figure.must)
        rows = all(one.rows > 0 for one in self.comparisons)
        seen = self.audited.changes > 0 and self.audited.claims > 0
        return musts and rows and seen and {takeover.fault for takeover in self.takeovers} == set(self.faults)

    def to_json(self) -> dict[str, Any]:
        """The object that ``-o json`` prints."""
        figures = figures_json(self.figures())
        return {"demo": FEED, "holds": self.holds(), "seed": self.seed, "figures": figures, "findings": self.findings()}

    def findings(self) -> list[str]:
        """What is wrong, in words; the first few of each kind."""
        found = row_findings(self.comparisons, self.audited)
        found += [f"false loss: {loss}" for loss in self.false_losses]
        return found + [f"left over: {one}" for one in self.left_over]


def show_report(console: Console, report: DemoReport) -> None:
    """The figures as a table, what is wrong, and where to look next."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in (("figure", "left"), ("value", "right"), ("unit", "left"), ("goal", "right"), ("", "left")):
        table.add_column(column, justify="right" if justify == "right" else "left", no_wrap=True)
    for name, figure in report.figures().items():
        table.add_row(name, f"{figure.value:,}", figure.unit, _goal(figure), _mark(figure))
    console.print()
    console.print(table)
    for takeover in report.takeovers:
        console.print(
            Text(f"{takeover.fault.replace('_', ' ')} ({takeover.victim}): {takeover.detail}"), soft_wrap=True
        )
    for finding in report.findings():
        console.print(Text(finding, style="red"), soft_wrap=True)
    console.print()
    if report.holds():
        verdict = "Source and target are equal, nothing was written twice, and every fault was made up for."
        console.print(Text(verdict, style="bold green"), soft_wrap=True)
    else:
        console.print(Text("Something does not hold: see above.", style="bold red"), soft_wrap=True)
    _show_next(console)


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    return f"{figure.goal:g}" if figure.must else f"≤ {figure.goal:g}"


def _mark(figure: Figure) -> Text:
    if figure.goal is None:
        return Text("")
    reached = figure.value == figure.goal if figure.must else figure.value <= figure.goal
    return Text("✓", style="green") if reached else Text("✗", style="red" if figure.must else "yellow")


NEXT: Final[Sequence[tuple[str, str]]] = (
    ("headgate up", "the same parts, left running for you to play with"),
    ("headgate topic list", "the control topics: everything Headgate knows about itself"),
    ("headgate topic tail dispatch", "what the owner decides, decoded, as it decides"),
    ("headgate why shop", "what holds a feed's checkpoint, and what to do"),
    ("headgate --help", "all commands"),
)


def _show_next(console: Console) -> None:
    console.print("Where to look next:")
    width = max(len(command) for command, _ in NEXT)
    for command, what in NEXT:
        console.print(Text(f"  {command.ljust(width)}  ", style="bold") + Text(what, style="not bold"), soft_wrap=True)
