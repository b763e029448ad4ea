"""What became of every flip, as a table, and whether the list of needless guards still says the truth."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml

__all__ = ["NEEDLESS", "Verdict", "conclude"]

NEEDLESS = Path(__file__).with_name("needless.yaml")

COLUMNS = ("scenarios", "unit tests", "simulation", "exhaustive search", "time limit", "error")


@dataclass(frozen=True)
class Verdict:
    """What became of one flip: ``noticed_by`` is the kind of check and the test, None for a survivor.

    ``seconds`` by the wall's clock.
    """

    module: str
    guard: str
    line: int
    noticed_by: str | None
    seconds: float

    @property
    def key(self) -> tuple[str, str]:
        """Which flip it was."""
        return self.module, self.guard

    @property
    def kind(self) -> str:
        """The kind of check that noticed."""
        return "nothing" if self.noticed_by is None else self.noticed_by.partition(":")[0]


def table(verdicts: list[Verdict]) -> list[str]:
    """Lines of a Markdown table: per module the flips, and how many were noticed by what."""
    lines = [f"| module | flips | {' | '.join(COLUMNS)} | accepted |", "|---|" + "---:|" * (len(COLUMNS) + 2)]
    names = sorted({verdict.module for verdict in verdicts})
    for name in (*names, ""):
        counts = Counter(verdict.kind for verdict in verdicts if not name or verdict.module == name)
        cells = [counts.total(), *(counts[column] for column in COLUMNS), counts["nothing"]]
        title = f"`{name.removeprefix('headgate.')}`" if name else "all"
        lines.append(f"| {title} | {' | '.join(str(cell) if cell else '' for cell in cells)} |")
    return lines


def conclude(verdicts: list[Verdict], *, is_whole: bool) -> int:
    """Print the table and compare the survivors with the list; the exit code."""
    needless: dict[str, dict[str, str]] = yaml.safe_load(NEEDLESS.read_text()) or {}
    listed = {(module, guard) for module, guards in needless.items() for guard in guards}
    survived = {verdict.key for verdict in verdicts if verdict.noticed_by is None}
    print("\n".join(table(verdicts)))  # noqa: T201
    unknown = sorted(survived - listed)
    tried = {verdict.key for verdict in verdicts}
    stale = sorted(listed - survived if is_whole else (listed & tried) - survived)
    for module, guard in unknown:
        print(f"SURVIVED, not listed: {module}: {guard}")  # noqa: T201
    for module, guard in stale:
        print(f"LISTED in {NEEDLESS.name}, but gone or noticed: {module}: {guard}")  # noqa: T201
    print(f"{len(survived & listed)} listed survivors, {len(unknown)} unlisted, {len(stale)} stale entries")  # noqa: T201
    return 1 if unknown or stale else 0
