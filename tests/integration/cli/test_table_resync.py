"""A whole table is copied to its end though the agent is killed in the middle and the command is typed again."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.app.exit_codes import ExitCode
from headgate.config.crash_points import CrashPoint
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.armed_agent import replicating
from integration.cli.conftest import Service, headgate
from integration.cli.test_created_tables import READY_SECONDS, ROWS, Shop, shop
from integration.cli.test_repair import keep_in_place, what

__all__ = ["shop"]

pytestmark = [pytest.mark.spark, pytest.mark.integration]

RANGE = 5
"""A range of a limited copy has the rows of one second."""

RESYNC = ("table", "resync", "shop", "shop.orders")


def wrong(shop: Shop) -> int:
    """How many rows are not yet as at the source."""
    ((count,),) = shop.sink.execute("SELECT count(*) FROM shop.orders WHERE what = 'x'").fetchall()
    return int(count)


@pytest.mark.usefixtures("one_core_spark")
def test_a_copy_whose_agent_is_killed_continues_and_is_not_begun_twice(
    shop: Shop, serve: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_in_place(shop)
    points, first = replicating(shop, serve, tmp_path, monkeypatch)
    shop.sink.execute("UPDATE shop.orders SET what = 'x'")
    shop.sink.execute("INSERT INTO shop.orders VALUES (999, 'x')")

    dry = headgate(*RESYNC, "--delete", "--dry-run")
    assert dry.exit_code == 0, dry.stderr
    points.arm(CrashPoint.COMMITTED)
    limited = ("--delete", "--yes", "--max-rows-per-second", str(RANGE), "--timeout", str(scaled_seconds(600.0)))
    with subprocess.Popen(
        [sys.executable, "-m", "headgate", *RESYNC, *limited], stderr=subprocess.PIPE, text=True
    ) as asking:
        frozen = points.await_reached(CrashPoint.COMMITTED, scaled_seconds(READY_SECONDS))
        assert wrong(shop) == ROWS, "rows that only the sink has come first, and the dry run has copied nothing"
        points.arm(CrashPoint.COMMITTED)
        os.kill(frozen, signal.SIGCONT)
        frozen = points.await_reached(CrashPoint.COMMITTED, scaled_seconds(READY_SECONDS))
        assert wrong(shop) == ROWS - RANGE, "one range is copied"
        first.process.kill()
        os.kill(frozen, signal.SIGKILL)
        again = headgate(*RESYNC, "--yes")
        assert again.exit_code == ExitCode.REQUEST_REFUSED, again.output
        assert "rows of table 'shop.orders' are being copied already" in " ".join(again.stderr.split())
        shop.sink.execute("UPDATE shop.orders SET what = 'y' WHERE id = 1")
        serve("a2", "agent", "--name", "a2")
        _, said = asking.communicate()
    assert asking.returncode == 0, said
    assert (wrong(shop), shop.rows("orders")) == (0, ROWS)
    assert what(shop, 1) == ["y"], "what was copied before was not copied again"

    over = headgate(*RESYNC, "--cancel")
    assert over.exit_code == ExitCode.NOT_FOUND, over.output
    later = headgate(*RESYNC, "--yes")
    assert later.exit_code == 0, later.stderr
    assert what(shop, 1) == ["ä1"]
