"""Rows that differ are copied from the source, named ones and a whole table's, though agents are killed meanwhile."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from headgate.app.exit_codes import ExitCode
from headgate.config.crash_points import CrashPoint
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.armed_agent import armed, replicating
from integration.cli.conftest import Service, headgate
from integration.cli.test_created_tables import READY_SECONDS, ROWS, Shop, shop
from support.waiting import eventually

__all__ = ["shop"]

pytestmark = [pytest.mark.spark, pytest.mark.integration]


RANGE = 5
"""A range of a limited copy has the rows of one second."""

RESYNC = ("table", "resync", "shop", "shop.orders")


def keep_in_place(shop: Shop) -> None:
    """Tables stay where they are as long as their agent lives."""
    spec = yaml.safe_load(shop.file.read_text(encoding="utf-8"))
    shop.file.write_text(yaml.safe_dump(spec | {"spread": "manual"}), encoding="utf-8")


def what(shop: Shop, number: int) -> list[str]:
    return [str(row[0]) for row in shop.sink.execute("SELECT what FROM shop.orders WHERE id = %s", (number,))]


def wrong(shop: Shop) -> int:
    """How many rows are not yet as at the source."""
    ((count,),) = shop.sink.execute("SELECT count(*) FROM shop.orders WHERE what = 'x'").fetchall()
    return int(count)


@contextmanager
def asking(*typed: str) -> Iterator["subprocess.Popen[str]"]:
    """A copy that was confirmed, and is waited for, by another process."""
    command = [sys.executable, "-m", "headgate", *RESYNC, *typed, "--yes", "--timeout", str(scaled_seconds(600.0))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        yield process
        _, said = process.communicate()
    assert process.returncode == 0, said


@pytest.mark.usefixtures("one_core_spark")
def test_rows_and_a_table_are_repaired_though_the_agents_are_killed_while_they_write_them(
    shop: Shop, serve: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second part is of a whole table: its copy goes on where it was, and is not begun twice."""
    keep_in_place(shop)
    points, first = replicating(shop, serve, tmp_path, monkeypatch)
    second = armed(serve, "a2", tmp_path, monkeypatch)
    eventually(lambda: second.get("/readyz")[0] == 200, "another agent is ready", READY_SECONDS)

    shop.sink.execute("UPDATE shop.orders SET what = 'x' WHERE id = 3")
    points.arm(CrashPoint.BEFORE_COMMIT)
    with asking("--key", "3"):
        frozen = points.await_reached(CrashPoint.BEFORE_COMMIT, scaled_seconds(READY_SECONDS))
        assert what(shop, 3) == ["x"], "nothing is committed yet"
        first.process.kill()
        os.kill(frozen, signal.SIGKILL)
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

    shop.sink.execute("UPDATE shop.orders SET what = 'x'")
    shop.sink.execute("INSERT INTO shop.orders VALUES (999, 'x')")
    dry = headgate(*RESYNC, "--delete", "--dry-run")
    assert dry.exit_code == 0, dry.stderr
    points.arm(CrashPoint.COMMITTED)
    with asking("--delete", "--max-rows-per-second", str(RANGE)):
        frozen = points.await_reached(CrashPoint.COMMITTED, scaled_seconds(READY_SECONDS))
        assert wrong(shop) == ROWS, "rows that only the sink has come first, and the dry run has copied nothing"
        points.arm(CrashPoint.COMMITTED)
        os.kill(frozen, signal.SIGCONT)
        frozen = points.await_reached(CrashPoint.COMMITTED, scaled_seconds(READY_SECONDS))
        assert wrong(shop) == ROWS - RANGE, "one range is copied"
        second.process.kill()
        os.kill(frozen, signal.SIGKILL)
        again = headgate(*RESYNC, "--yes")
        assert again.exit_code == ExitCode.REQUEST_REFUSED, again.output
        assert "rows of table 'shop.orders' are being copied already" in " ".join(again.stderr.split())
        shop.sink.execute("UPDATE shop.orders SET what = 'y' WHERE id = 1")
        serve("a3", "agent", "--name", "a3")
    assert (wrong(shop), shop.rows("orders")) == (0, ROWS)
    assert what(shop, 1) == ["y"], "what was copied before was not copied again"

    over = headgate(*RESYNC, "--cancel")
    assert over.exit_code == ExitCode.NOT_FOUND, over.output
    later = headgate(*RESYNC, "--yes")
    assert later.exit_code == 0, later.stderr
    assert what(shop, 1) == ["ä1"]
