"""The short form of ``make sim``: enough seeds that a guarantee broken in a plain way is noticed, in half a minute."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import OperationKind, Positions
from headgate.runtime.levels import Readership
from headgate_lab.simulation import operator
from headgate_lab.simulation.campaign import Campaign, play, shrink
from headgate_lab.simulation.executor import SimulatedExecutor, SpanRun
from headgate_lab.simulation.profile import DRAWN_APART, FAULT_RATES, Profile, draw_profile
from headgate_lab.simulation.sink import SimulatedSink

SEEDS = range(40)
MANY_SEEDS = range(40, 440)
MINUTES = pytest.mark.timeout(scaled_seconds(3600))

GUARDING_SEEDS = {
    **dict.fromkeys((186, 191, 394, 780044, 900627, 900953, 902382, 903150, 903232), 400),
    **dict.fromkeys((1144, 1216, 1435), 800),
}
"""Seeds that once found a bug (docs/bugs.md), with the ticks they were played for."""


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(MANY_SEEDS, marks=[pytest.mark.long, MINUTES])], ids=str)
def test_every_guarantee_holds_over_some_seeds(seeds: range) -> None:
    campaign = Campaign()
    for seed in seeds:
        campaign.add(play(draw_profile(seed, ticks=300)))
    assert campaign.findings == []
    assert campaign.steps > 50_000
    common = {"none to commit", "secondary promoted", "removing to sealed", "fenced after deciding, at the commit"}
    assert common <= {name for name, count in campaign.marks.items() if count}


@pytest.mark.parametrize(("seed", "ticks"), GUARDING_SEEDS.items())
def test_a_seed_that_found_a_bug_holds(seed: int, ticks: int) -> None:
    profile = draw_profile(seed, ticks=ticks, without=DRAWN_APART)  # the history that found it
    assert play(profile).finding is None


def test_the_same_seed_is_the_same_history_in_another_process(tmp_path: Path) -> None:
    profile = draw_profile(7, ticks=200)
    here = play(profile)
    assert play(profile, trace=True).digest == here.digest
    program = (
        "from headgate_lab.simulation.campaign import play\n"
        "from headgate_lab.simulation.profile import draw_profile\n"
        "print(play(draw_profile(7, ticks=200)).digest)\n"
    )
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        ran = subprocess.run(
            [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert ran.stdout.strip() == here.digest


def test_another_seed_is_another_history() -> None:
    assert play(draw_profile(7, ticks=50)).digest != play(draw_profile(8, ticks=50)).digest


def test_seeds_differ_in_the_faults_they_have_and_some_have_none() -> None:
    rates = [draw_profile(seed, ticks=1).rates for seed in range(200)]
    assert {kind for drawn in rates for kind in drawn} == set(FAULT_RATES)
    assert not all(rates)
    assert "kill" not in draw_profile(3, ticks=1, without=frozenset({"kill"})).rates


def upgraded(seed: int) -> Profile:
    """A small world that begins with the version before, and little else to disturb it."""
    profile = draw_profile(seed, ticks=200)
    return replace(profile, is_upgraded=True, sick_table=None, tick_seconds=0.5, rates={"upgrade": 0.03, "kill": 0.002})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_versions_work_together_until_the_last_is_upgraded_and_then_the_level_rises(seed: int) -> None:
    played = play(upgraded(seed))
    assert played.finding is None
    assert played.marks["the level rose after an upgrade"] >= 1


def test_a_level_that_rises_over_those_who_read_less_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Readership, "may_rise_to", lambda _self, now: 2 if now > LATE else 1)
    findings = [played.finding for seed in range(1, 9) if (played := play(upgraded(seed))).finding]
    assert any("the level rose over it" in finding.what for finding in findings)


LATE = 1_065.0
"""By the world's clock, which begins at 1000 s: everybody has been seen by then."""


def test_retention_stops_a_span_and_never_makes_it_skip() -> None:
    marks: Counter[str] = Counter()
    for seed in range(1, 7):
        profile = replace(draw_profile(seed, ticks=200), rates={"retention": 0.05, "kill": 0.003}, sick_table=None)
        played = play(profile)
        assert played.finding is None
        marks.update(played.marks)
    assert marks["a span was stopped by retention"] >= 1


def test_a_reader_that_skips_what_was_deleted_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip(executor: Any, run: SpanRun, positions: Positions) -> bool:
        for partition, at in positions.items():
            positions[partition] = max(at, executor._world.source_begin(run.task.plan.topic, partition))
        return False

    monkeypatch.setattr(SimulatedExecutor, "_has_expired", skip)
    found = []
    for seed in range(1, 9):
        profile = replace(draw_profile(seed, ticks=200), rates={"retention": 0.05, "kill": 0.003}, sick_table=None)
        found.append(play(profile).finding)
    assert any(finding is not None for finding in found)


def test_a_sink_that_forgets_removed_feeds_is_found_out_and_the_finding_shrinks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bug that docs/bugs.md calls B1, brought back: the audit is not the fence."""
    monkeypatch.setattr(operator, "KINDS", (OperationKind.CREATE_FEED, OperationKind.REMOVE_FEED))
    monkeypatch.setattr(operator, "ABANDON_SHARE", 0.0)
    # Feeds are made and removed all the time, and many a claim is late: drawn from all that can happen, a claim that
    # comes after its feed's end is one in some hundred histories.
    rates = {"request_late": 0.3, "kill": 0.003, "hold": 0.005}
    worlds = [
        replace(draw_profile(seed, ticks=200), rates=rates, request_rate=0.1, shards=1, feeds=1, sick_table=None)
        for seed in range(1, 11)
    ]
    assert [play(world).finding for world in worlds] == [None] * len(worlds), "the sink that remembers holds"
    original = SimulatedSink.__init__
    monkeypatch.setattr(
        SimulatedSink, "__init__", lambda self, observer, **_: original(self, observer, remembers_removed=False)
    )
    found = next((world for world in worlds if play(world).finding), None)
    assert found is not None
    least = shrink(found)
    assert least is not None
    assert least.finding is not None
    assert "which was removed" in least.finding.what
    assert len(least.profile.rates) < len(found.rates)
    assert least.trace
