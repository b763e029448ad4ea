"""docker-compose.yml: a feed is created, rows arrive, containers are killed and frozen while rows are written."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from containers.busy_feed import SOURCE, TARGET, all_run, busy_feed, create_shop, deciding, holders, owner, view
from containers.conftest import OUTCOME, Compose, docker, eventually, left_of
from containers.ports import BROKER
from headgate import __version__
from headgate.generation import ChangeReader
from headgate.generation.shell.tail import open_generation_log
from headgate.provisioning.time_scale import scaled_seconds

pytestmark = [pytest.mark.containers, pytest.mark.timeout(scaled_seconds(3600))]

IMAGE = f"headgate:{__version__}"
FROZEN_SECONDS = 15.0
"""Three leases: its tables are somebody else's when it thaws."""


def test_the_feed_of_the_file_is_created_and_its_rows_arrive(compose: Compose) -> None:
    create_shop(compose)
    assert compose.command("table", "list", "shop")[0]["state"] == "replicating"


def test_a_topic_is_copied_into_a_change_log(compose: Compose) -> None:
    compose("--profile", "ingest", "up", "--detach", "ingest")
    eventually(lambda: compose.healthy("ingest"), "ingest is healthy")
    keys: set[bytes | None] = set()
    with (
        closing(open_generation_log(BROKER, "headgate")) as log,
        closing(ChangeReader(log, "orders", "test")) as reader,
    ):
        eventually(lambda: keys.update(each.key for each in reader.poll(0.5)) or len(keys) == 1000, "all is copied")


def test_schemas_are_changed_as_the_owner_of_the_tables(compose: Compose) -> None:
    """In both databases, as user migrator; feed shop is not disturbed by a column that it does not know."""
    for database, dsn in (("target", TARGET), ("source", SOURCE)):
        statement = ("ALTER TABLE orders ADD COLUMN more int", "--database", database, "--strategy", "direct")
        compose("run", "--rm", "-T", "cli", "migration", "submit", *statement, "--id", database, "--yes", *OUTCOME)
        eventually(
            lambda name=database: compose.command("migration", "show", name)["state"] == "complete",
            f"{database} is changed",
        )
        with psycopg.connect(dsn) as session:
            owner = session.execute(
                "SELECT pg_get_userbyid(relowner), rolsuper FROM pg_class JOIN pg_roles r ON r.oid = "
                "relowner WHERE pg_class.oid = 'public.orders'::regclass"
            ).fetchone()
            assert owner == ("migrator", False)
            session.execute("SELECT more FROM orders LIMIT 0")


def test_agents_and_owner_are_killed_and_frozen_under_load(compose: Compose) -> None:
    with busy_feed(compose) as load:
        for fault in _faults(compose):
            eventually(fault, "all tables run again")
            load.check()


def _faults(compose: Compose) -> Iterator[Any]:
    """Each does its harm, and says what must be true before the next."""
    docker("kill", compose.container("agent-1"))
    yield lambda: all_run(but="agent-1")
    docker("start", compose.container("agent-1"))
    yield lambda: compose.healthy("agent-1") and all_run()

    before, service = deciding(compose)
    docker("kill", compose.container(service))
    yield lambda: owner() != before and all_run()
    docker("start", compose.container(service))
    yield lambda: compose.healthy(service) and all_run()

    frozen = max(("agent-1", "agent-2"), key=list(holders().values()).count)
    docker("pause", compose.container(frozen))
    time.sleep(FROZEN_SECONDS)  # the fault itself: it lasts so long
    yield lambda: all_run(but=frozen)
    docker("unpause", compose.container(frozen))
    yield lambda: compose.healthy(frozen) and all_run()

    before, service = deciding(compose)
    docker("pause", compose.container(service))
    yield lambda: owner() != before and all_run()
    docker("unpause", compose.container(service))
    yield lambda: compose.healthy(service) and all_run()


def test_what_the_image_has_and_has_not(compose: Compose) -> None:
    inside = (
        "import os; from importlib.util import find_spec as f; print(os.getuid(), f('headgate_lab'), bool(f('faust')))"
    )
    assert docker("run", "--rm", "--entrypoint", "python", IMAGE, "-c", inside) == "10001 None True"
    tools = "for t in gcc cc make pip pip3 uv git curl wget; do command -v $t; done; true"
    assert docker("run", "--rm", "--entrypoint", "sh", IMAGE, "-c", tools) == ""
    for service in ("coordinator-1", "agent-1", "views"):
        host = json.loads(docker("inspect", "--format", "{{json .HostConfig}}", compose.container(service)))
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]


def test_the_views_say_what_the_command_says(compose: Compose) -> None:
    kinds = {event["kind"] for event in view("/v1/timeline")}
    assert {"session_lost", "owner_took_over", "assigned"} <= kinds
    fed = {row["feed"]: row["state"] for row in compose.command("feed", "list")}
    assert {row["feed"]: row["state"] for row in view("/v1/feeds")} == fed


def test_nothing_is_left_after_down(compose: Compose) -> None:
    compose("down", "--volumes", "--remove-orphans")
    assert left_of(compose.project) == []
