"""Clocks of coordinators and agents that are minutes apart: nothing is lost for it, and others take over."""

import os
import time
from collections.abc import Iterator

import pytest

from containers.busy_feed import create_shop, deciding, goes_on, owner, view
from containers.conftest import FOR_FEEDS, Compose, brought_up, build_images, docker, eventually, left_of
from headgate.provisioning.time_scale import scaled_seconds

pytestmark = [pytest.mark.containers, pytest.mark.timeout(scaled_seconds(3600))]

IMAGE = "headgate-clocks:test"
APART_SECONDS = 600
"""Of the two coordinators at least."""


@pytest.fixture(scope="module")
def clocks() -> Iterator[Compose]:
    compose = Compose(f"headgate-clocks-{os.getpid()}", "tests/containers/clocks.yml")
    build_images()
    docker("build", "--tag", IMAGE, "--file", "tests/containers/clocks.Dockerfile", "tests/containers")
    with brought_up(compose, FOR_FEEDS) as compose:
        yield compose
    docker("rmi", IMAGE)


def clock(clocks: Compose, service: str) -> float:
    return float(docker("exec", clocks.container(service), "python", "-c", "import time; print(time.time())"))


def test_rows_arrive_and_nobody_is_taken_for_lost(clocks: Compose) -> None:
    assert abs(clock(clocks, "coordinator-1") - clock(clocks, "coordinator-2")) > APART_SECONDS
    assert abs(clock(clocks, "agent-1") - time.time()) > APART_SECONDS / 4
    create_shop(clocks)
    goes_on("clocks are apart")
    (feed,) = clocks.command("feed", "list")
    assert feed["state"] == "normal"
    assert feed["lag_ms"] is None or feed["lag_ms"] >= 0, "a clock that is behind makes no lag below nothing"
    assert "session_lost" not in {event["kind"] for event in view("/v1/timeline")}


def test_others_take_over_whatever_their_clocks_say(clocks: Compose) -> None:
    before, service = deciding(clocks)
    docker("kill", clocks.container(service))
    eventually(lambda: owner() != before, "the other coordinator decides")
    agent = view("/v1/tables")[0]["agent"]
    docker("kill", clocks.container(agent))
    eventually(lambda: all(row["agent"] not in (None, agent) for row in view("/v1/tables")), "the other agent has all")
    goes_on("owner and agent were killed")


def test_nothing_is_left_after_down(clocks: Compose) -> None:
    clocks("down", "--volumes", "--remove-orphans")
    assert left_of(clocks.project) == []
