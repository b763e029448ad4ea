"""The migration owner under crashes: the real machine and role loop, a log and a database in memory, random faults.

A failing seed is in the name of the test; `headgate sim --world migrations --seeds 1 --start SEED` plays it as well.
"""

import pytest

from headgate_lab.simulation.migrations.database import MigrationBrokenError, SimulatedTable
from headgate_lab.simulation.migrations.world import MigrationWorld


@pytest.mark.parametrize("seed", range(60))
def test_terminal_states_are_facts_whatever_crashes(seed: int) -> None:
    MigrationWorld(seed).run()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 2_000))
def test_terminal_states_are_facts_in_a_thousand_histories(seed: int) -> None:
    MigrationWorld(seed).run()


class Unfenced(SimulatedTable):
    """Whoever comes late still gets its way."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, -1 if name == "fence" else value)


def test_a_fence_that_is_missing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the histories could hold because nothing happens in them."""
    monkeypatch.setattr("headgate_lab.simulation.migrations.database.SimulatedTable", Unfenced)

    def play_many() -> None:
        for seed in range(60):
            MigrationWorld(seed).run()

    with pytest.raises(MigrationBrokenError):
        play_many()
