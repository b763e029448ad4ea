"""A shop's feed whose agents stop where a test arms them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.config.crash_points import VARIABLE, ArmedPoints
from integration.cli.conftest import DEADLINE_SECONDS, Service, headgate
from integration.cli.test_created_tables import READY_SECONDS, ROWS, Shop
from support.waiting import eventually


def replicating(
    shop: Shop, serve: Callable[..., Service], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[ArmedPoints, Service]:
    """Create the feed and wait for its rows; the points, of which none is armed, and the agent."""
    coordinator = serve("owner", "coordinator")
    eventually(lambda: coordinator.get("/readyz")[0] == 200, "the owner is ready", DEADLINE_SECONDS)
    created = headgate("feed", "create", str(shop.file))
    assert created.exit_code == 0, created.stderr
    points = ArmedPoints(folder / "points")
    agent = armed(serve, "a1", folder, monkeypatch)
    eventually(lambda: shop.rows("orders") == ROWS, "the rows are there", READY_SECONDS)
    return points, agent


def armed(serve: Callable[..., Service], name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    """Another agent that stops at the same points."""
    monkeypatch.setenv(VARIABLE, str(folder / "points"))
    agent = serve(name, "agent", "--name", name)
    monkeypatch.delenv(VARIABLE)
    return agent
