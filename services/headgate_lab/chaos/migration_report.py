"""What ``headgate chaos --migrations`` has found: each round, and whether it holds."""

from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

__all__ = ["MigrationsReport", "Round", "show_migrations"]


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One migration. ``faults`` are what was killed, and in which stage; ``findings`` are what does not hold."""

    database: str
    strategy: str
    statement: str
    state: str
    faults: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


class MigrationsReport(msgspec.Struct, frozen=True, kw_only=True):
    """All rounds of one seed."""

    seed: int
    rounds: tuple[Round, ...]
    left_over: tuple[str, ...] = ()

    def holds(self) -> bool:
        """Whether every round ended as the server's own statement does, and no process is left over."""
        return bool(self.rounds) and not self.left_over and not any(found.findings for found in self.rounds)

    def to_json(self) -> dict[str, Any]:
        """The object that ``-o json`` prints."""
        findings = [f"{each.database}, {each.statement}: {found}" for each in self.rounds for found in each.findings]
        return {
            "chaos": "migrations",
            "seed": self.seed,
            "holds": self.holds(),
            "rounds": msgspec.to_builtins(self.rounds),
            "findings": [*findings, *self.left_over],
        }


def show_migrations(console: Console, report: MigrationsReport) -> None:
    """The rounds as a table, and the verdict."""
    rounds = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("database", "strategy", "state", "faults", "statement"):
        rounds.add_column(column)
    for found in report.rounds:
        statement = " ".join(found.statement.split())
        rounds.add_row(found.database, found.strategy, found.state, "; ".join(found.faults) or "-", statement)
    console.print(rounds)
    for line in report.to_json()["findings"]:
        console.print(f"finding: {line}", markup=False)
    console.print("It holds." if report.holds() else f"It does NOT hold (seed {report.seed}).")
