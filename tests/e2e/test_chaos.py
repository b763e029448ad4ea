"""The short campaign: one of each main sort of fault, alone and at once, on real processes, from one seed."""

import json
import subprocess
import sys

import pytest

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.chaos.rounds import SHORT_ROUNDS

pytestmark = [pytest.mark.e2e, pytest.mark.long]

LEASE_SECONDS = "8"
"""Longer than the default: this runs on machines of all sorts, and a lease lost to what else they do is a finding."""

CHAOS = (
    *(sys.executable, "-m", "headgate", "chaos", "--short", "--seed", "20261121"),
    *("--lease-seconds", LEASE_SECONDS, "--output", "json"),
)

RUN_SECONDS_MAX = scaled_seconds(2400)
"""Two minutes on an idle machine with two cores; one with fifteen times its work has taken eight and a half."""

SORTS = {str(kind) for kinds in SHORT_ROUNDS for kind in kinds}


@pytest.mark.timeout(RUN_SECONDS_MAX + 60)
@pytest.mark.parametrize("sink", ["postgresql", "mysql"])
def test_nothing_is_lost_or_doubled_whatever_fails(sink: str) -> None:
    command = [*CHAOS, "--sink", sink]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    report = json.loads(ended.stdout)
    assert report["findings"] == []
    assert report["holds"] is True
    assert {fault["fault"] for fault in report["faults"]} == SORTS
    value = {name: figure["value"] for name, figure in report["figures"].items()}
    assert value["changes_audited"] > value["rows_compared"] > 10_000
    assert value["differences"] == value["double_writes"] == value["false_lease_losses"] == 0
    # Whether an agent had tables when it was struck is the operator's doing too; an owner always has a successor.
    assert value["failover_owner_killed_s"] > 0


@pytest.mark.timeout(RUN_SECONDS_MAX + 60)
def test_a_frozen_sink_stops_its_own_tables_only() -> None:
    command = [sys.executable, "-m", "headgate", "chaos", "--frozen-sink", "--output", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    report = json.loads(ended.stdout)
    assert report["holds"] is True
    value = {name: figure["value"] for name, figure in report["figures"].items()}
    assert value["changes_missing"] == value["processes_left_over"] == 0
    assert report["figures"]["healthy_frozen_max_ms"]["n"] > 0
