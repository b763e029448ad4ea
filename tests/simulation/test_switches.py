"""Switches of a change log under every kind of crash: per key, what is read is what was written, in order, once.

The first histories draw who dies when. The others have one death each, at each step of each who takes part: so there is
none between two steps that was not tried.
"""

import pytest
from msgspec.structs import replace

from headgate_lab.simulation.switches.data_log import DataRecord
from headgate_lab.simulation.switches.world import Crash, Judge, OrderBrokenError, SwitchProfile, SwitchWorld

QUIET = SwitchProfile(
    seed=5, steps=700, writers=2, changes=25, partitions=10, crash_rate=0, freeze_rate=0, effect_failure_rate=0,
    switch_rate=0.02,
)  # fmt: skip
STORMY = SwitchProfile(seed=0, crash_rate=0.015, freeze_rate=0.015, switch_rate=0.03, changes=120)
STEPS = range(1, 200, 4)


@pytest.mark.parametrize("seed", range(40, 60))
def test_whatever_dies_each_key_keeps_its_order(seed: int) -> None:
    counts = SwitchWorld(replace(STORMY, seed=seed, strict=seed % 4 == 0)).run()
    assert counts["committed"] > 0


@pytest.mark.parametrize("who", ["owner", "effect", "writer", "reader"])
def test_a_death_at_each_step(who: str) -> None:
    killed = 0
    for at in STEPS:
        profile = SwitchProfile(
            **{**{f: getattr(QUIET, f) for f in QUIET.__struct_fields__}, "crashes": (Crash(who, at),)}
        )
        killed += SwitchWorld(profile).run()[f"{who} killed"]
    assert killed > 10, "the steps are really come to"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_histories(seed: int) -> None:
    SwitchWorld(replace(STORMY, seed=seed, strict=seed % 4 == 0)).run()


def test_the_judge_notices_what_is_lost_repeated_or_reordered() -> None:
    def record(position: int) -> DataRecord:
        return DataRecord(0, "w", 1, position, "k")

    for given in ([0, 0], [1], [0, 2], [0, 1, 2, 2]):
        judge = Judge({"w": ["k", "k", "k"]})
        for position in given[:-1]:
            judge.deliver(record(position))
        with pytest.raises(OrderBrokenError):
            judge.deliver(record(given[-1]))
    judge = Judge({"w": ["k", "k", "k"]})
    judge.deliver(record(0))
    assert judge.missing() == 2
