"""Every script here does what its trace says, and together they meet every transition that does something."""

from pathlib import Path
from typing import Any

import pytest

from headgate.migration.core import draft, transitions
from headgate.migration.core.transitions import TRANSITIONS, MigrationAction, MigrationPhase, MigrationSignal, phase
from scenarios.migrations.migration_script import World
from scenarios.script import compare

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, request: pytest.FixtureRequest) -> None:
    compare(path, World().play(path), request)


def test_every_transition_that_does_something_is_in_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    met: set[tuple[MigrationPhase, MigrationSignal]] = set()

    def apply(record: Any, signal: MigrationSignal, cause: Any) -> Any:
        met.add((phase(record), signal))
        return transitions.apply(record, signal, cause)

    monkeypatch.setattr(draft, "apply", apply)
    for path in SCRIPTS:
        World().play(path)
    wanted = {
        pair for pair, action in TRANSITIONS.items() if action not in (MigrationAction.NEVER, MigrationAction.KEEP)
    }
    assert sorted(wanted - met) == []
