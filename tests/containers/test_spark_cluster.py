"""docker-compose.spark.yml: executors of a Spark cluster are lost while rows move, and come and go with the work."""

import json
import os
from collections.abc import Iterator

import pytest

from containers.busy_feed import busy_feed, create_shop, goes_on
from containers.conftest import ANSWER_SECONDS, FOR_FEEDS, Compose, brought_up, docker, eventually, left_of
from headgate.provisioning.time_scale import scaled_seconds

pytestmark = [pytest.mark.containers, pytest.mark.timeout(scaled_seconds(3600))]

AGENTS = ("agent-1", "agent-2")
AT_REST = len(AGENTS)
"""Executors: one for each agent (spark.dynamicAllocation.minExecutors)."""

ASK = (
    "import urllib.request as u; "
    f"print(u.urlopen('http://127.0.0.1:8080/json/', timeout={ANSWER_SECONDS}).read().decode())"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Compose]:
    with brought_up(Compose(f"headgate-spark-{os.getpid()}", "docker-compose.spark.yml"), FOR_FEEDS) as compose:
        yield compose


def executors(cluster: Compose) -> int:
    """Cores in use: an executor has one."""
    said = json.loads(docker("exec", cluster.container("spark-master"), "python", "-c", ASK))
    return sum(int(worker["coresused"]) for worker in said["workers"] if worker["state"] == "ALIVE")


def workers(cluster: Compose) -> int:
    said = json.loads(docker("exec", cluster.container("spark-master"), "python", "-c", ASK))
    return sum(worker["state"] == "ALIVE" for worker in said["workers"])


def test_executors_that_are_not_needed_are_given_back(cluster: Compose) -> None:
    create_shop(cluster)
    eventually(lambda: executors(cluster) == AT_REST, "each agent keeps one executor")
    goes_on("after executors were given back")


def test_executors_are_lost_while_rows_move(cluster: Compose) -> None:
    with busy_feed(cluster) as load:
        for worker in ("spark-worker-1", "spark-worker-2"):
            docker("kill", cluster.container(worker))
            goes_on(f"{worker} is killed with its executors")
            load.check()
            docker("start", cluster.container(worker))
            eventually(lambda: workers(cluster) == 2, f"{worker} is back")
            goes_on(f"{worker} is back")
            load.check()


def test_nothing_is_left_after_down(cluster: Compose) -> None:
    cluster("down", "--volumes", "--remove-orphans")
    assert left_of(cluster.project) == []
