"""Rows that differ are copied from the source, though the agent is killed inside the transaction that writes them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from headgate.app.exit_codes import ExitCode
from headgate.config.crash_points import CrashPoint
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.armed_agent import replicating
from integration.cli.conftest import Service, headgate
from integration.cli.test_created_tables import READY_SECONDS, Shop, shop
from support.waiting import eventually

__all__ = ["shop"]

pytestmark = [pytest.mark.spark, pytest.mark.integration]


def keep_in_place(shop: Shop) -> None:
    """Tables stay where they are as long as their agent lives."""
    spec = yaml.safe_load(shop.file.read_text(encoding="utf-8"))
    shop.file.write_text(yaml.safe_dump(spec | {"spread": "manual"}), encoding="utf-8")


def what(shop: Shop, number: int) -> list[str]:
    return [str(row[0]) for row in shop.sink.execute("SELECT what FROM shop.orders WHERE id = %s", (number,))]


@pytest.mark.usefixtures("one_core_spark")
def test_rows_are_repaired_though_the_agent_is_killed_while_it_writes_them(
    shop: Shop, serve: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in_place(shop)
    points, first = replicating(shop, serve, tmp_path, monkeypatch)
    second = serve("a2", "agent", "--name", "a2")
    eventually(lambda: second.get("/readyz")[0] == 200, "another agent is ready", READY_SECONDS)

    shop.sink.execute("UPDATE shop.orders SET what = 'x' WHERE id = 3")
    points.arm(CrashPoint.BEFORE_COMMIT)
    typed = ("table", "resync", "shop", "shop.orders", "--key", "3", "--yes", "--timeout", str(scaled_seconds(600.0)))
    with subprocess.Popen([sys.executable, "-m", "headgate", *typed], stderr=subprocess.PIPE, text=True) as asking:
        frozen = points.await_reached(CrashPoint.BEFORE_COMMIT, scaled_seconds(READY_SECONDS))
        assert what(shop, 3) == ["x"], "nothing is committed yet"
        first.process.kill()
        os.kill(frozen, signal.SIGKILL)
        _, said = asking.communicate()
    assert asking.returncode == 0, said
    assert what(shop, 3) == ["ä3"]

    shop.sink.execute("DELETE FROM shop.orders WHERE id = 4")
    shop.sink.execute("INSERT INTO shop.orders VALUES (999, 'surplus')")
    refused = headgate("verify", "shop", "--repair", "--settle", "0")
    assert refused.exit_code == ExitCode.NOT_CONFIRMED
    assert "no terminal can be asked" in refused.stderr
    dry = headgate("verify", "shop", "--repair", "--settle", "0", "--dry-run", "-o", "json")
    assert dry.exit_code == ExitCode.DIFFERENCE, dry.stderr
    told = json.loads(dry.stdout)
    assert (told["would_repair"], told["repaired"]) == ({"shop.orders": 2}, {})
    assert what(shop, 999) == ["surplus"]
    repaired = headgate("verify", "shop", "--repair", "--settle", "0", "--yes", "-o", "json")
    assert repaired.exit_code == 0, repaired.stderr
    assert json.loads(repaired.stdout)["repaired"] == {"shop.orders": 2}
    assert (what(shop, 4), what(shop, 999)) == (["ä4"], [])
    verified = headgate("verify", "shop", "--settle", "0")
    assert verified.exit_code == 0, verified.stderr
