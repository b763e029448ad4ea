"""The short campaign: one of each sort of fault, alone and at once, on real processes, from one seed."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.e2e

CHAOS = (sys.executable, "-m", "headgate", "chaos", "--short", "--seed", "20261121", "--output", "json")

RUN_SECONDS_MAX = 840
"""Two and a half minutes on an idle machine with two cores; a busy one may take several times that."""

SORTS = ("agent_killed", "owner_killed", "worker_killed", "jvm_killed", "agent_frozen", "agent_silenced",
         "agent_slowed", "sink_deafened", "broker_restarted", "database_restarted")  # fmt: skip


@pytest.mark.timeout(RUN_SECONDS_MAX + 60)
def test_nothing_is_lost_or_doubled_whatever_fails() -> None:
    ended = subprocess.run(CHAOS, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    report = json.loads(ended.stdout)
    assert report["findings"] == []
    assert report["holds"] is True
    assert {fault["fault"] for fault in report["faults"]} == set(SORTS)
    value = {name: figure["value"] for name, figure in report["figures"].items()}
    assert value["changes_audited"] > value["rows_compared"] > 10_000
    assert value["differences"] == value["double_writes"] == value["false_lease_losses"] == 0
    for fault in ("agent_killed", "agent_frozen", "agent_silenced", "owner_killed"):
        assert value[f"failover_{fault}_s"] > 0
