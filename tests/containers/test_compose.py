"""docker-compose.yml: a feed is created, rows arrive, containers are killed and frozen while rows are written."""

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import yaml

from containers.conftest import ROOT, Compose, docker, eventually
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.demo.audit import audit
from headgate_lab.demo.audit_triggers import install_source_audit, install_target_audit
from headgate_lab.demo.compare import compare
from headgate_lab.demo.load import Load, fill, write_markers
from headgate_lab.demo.schema import SCHEMA, TABLES, create_source, create_target

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]

SOURCE = "postgresql://postgres:change-me@127.0.0.1:15432/shop"
TARGET = "postgresql://postgres:change-me@127.0.0.1:25432/shop"
VIEWS = "http://127.0.0.1:8421"
IMAGE = "headgate:0.1.0"
FROZEN_SECONDS = 15.0
"""Three leases: its tables are somebody else's when it thaws."""


def view(path: str) -> Any:
    with urllib.request.urlopen(f"{VIEWS}{path}", timeout=30) as answer:  # noqa: S310
        return json.load(answer)


def rows(dsn: str, table: str) -> int:
    with psycopg.connect(dsn) as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)
        return int(count)


def holders() -> dict[str, str | None]:
    return {row["span"]: row["agent"] for row in view("/v1/tables") if row["feed"] == "busy"}


def all_run(but: str | None = None) -> bool:
    found = [row for row in view("/v1/tables") if row["feed"] == "busy"]
    return all(row["state"] == "replicating" and row["agent"] not in (None, but) for row in found) and bool(found)


def test_the_feed_of_the_file_is_created_and_its_rows_arrive(compose: Compose) -> None:
    created = compose.command("feed", "create", "/feeds/shop.yaml", "--timeout", "300")
    assert created["status"] == "done", created
    eventually(lambda: (rows(TARGET, "customers"), rows(TARGET, "orders")) == (100, 1000), "the snapshot has come")
    assert compose.command("table", "list", "shop")[0]["state"] == "replicating"


def test_agents_and_owner_are_killed_and_frozen_under_load(compose: Compose) -> None:
    with psycopg.connect(SOURCE, autocommit=True) as source, psycopg.connect(TARGET, autocommit=True) as target:
        create_target(target)
        install_target_audit(target)
        create_source(source)
        install_source_audit(source)
        keys = fill(source, 1)
        _create_busy_feed(compose)
        load = Load(SOURCE, 1, 2, 20.0, keys)
        load.start()
        try:
            for fault in _faults(compose):
                eventually(fault, "all tables run again")
                load.check()
        finally:
            load.stop()
        _await_markers(target, write_markers(source, 1))
        differences = {table.name: compare(source, target, table).differences for table in TABLES}
        assert differences == {table.name: 0 for table in TABLES}
        found = audit(source, target)
        assert found.double_writes == 0, found


def _create_busy_feed(compose: Compose) -> None:
    topics = [f"shop.{table.full_name}" for table in TABLES]
    eventually(
        lambda: {row["topic"] for row in _topics(compose)} >= set(topics), "Debezium has made a topic for each table"
    )
    feed = yaml.safe_load((ROOT / "infra/docker/feeds/shop.yaml").read_text(encoding="utf-8"))
    feed |= {"feed": "busy", "source": feed["source"] | {"topics": topics}}
    file = ROOT / "infra/docker/feeds" / f"busy-{compose.project}.yaml"
    file.write_text(yaml.safe_dump(feed), encoding="utf-8")
    try:
        created = compose.command("feed", "create", f"/feeds/{file.name}", "--timeout", "300")
    finally:
        file.unlink()
    assert created["status"] == "done", created
    eventually(all_run, "all tables run")


def _topics(compose: Compose) -> list[dict[str, str]]:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": "127.0.0.1:29092"})
    assert compose.project
    return [{"topic": name} for name in admin.list_topics(timeout=30).topics]


def _faults(compose: Compose) -> Iterator[Any]:
    """Each does its harm, and says what must be true before the next."""
    docker("kill", compose.container("agent-1"))
    yield lambda: all_run(but="agent-1")
    docker("start", compose.container("agent-1"))
    yield lambda: compose.healthy("agent-1") and all_run()

    owner = view("/v1/owners")[0]["owner"]
    (deciding,) = (
        name for name in ("coordinator-1", "coordinator-2") if owner.startswith(compose.container(name)[:12])
    )
    docker("kill", compose.container(deciding))
    yield lambda: view("/v1/owners")[0]["owner"] not in (None, owner) and all_run()
    docker("start", compose.container(deciding))
    yield lambda: compose.healthy(deciding) and all_run()

    frozen = max(("agent-1", "agent-2"), key=list(holders().values()).count)
    docker("pause", compose.container(frozen))
    time.sleep(FROZEN_SECONDS)  # the fault itself: it lasts so long
    yield lambda: all_run(but=frozen)
    docker("unpause", compose.container(frozen))
    yield lambda: compose.healthy(frozen) and all_run()

    owner = view("/v1/owners")[0]["owner"]
    (deciding,) = (
        name for name in ("coordinator-1", "coordinator-2") if owner.startswith(compose.container(name)[:12])
    )
    docker("pause", compose.container(deciding))
    yield lambda: view("/v1/owners")[0]["owner"] not in (None, owner) and all_run()
    docker("unpause", compose.container(deciding))
    yield lambda: compose.healthy(deciding) and all_run()


def _await_markers(target: "psycopg.Connection[Any]", markers: dict[str, Any]) -> None:
    def arrived() -> bool:
        for name, key in markers.items():
            where = " AND ".join(f"{column} = %s" for column in key)
            found = target.execute(f"SELECT 1 FROM {SCHEMA}.{name} WHERE {where}", list(key.values())).fetchone()
            if found is None:
                return False
        return True

    eventually(arrived, "the last row of each table has come", seconds=scaled_seconds(600))


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
    label = f"label=com.docker.compose.project={compose.project}"
    assert docker("ps", "-a", "-q", "--filter", label) == ""
    assert docker("volume", "ls", "-q", "--filter", label) == ""
    assert docker("network", "ls", "-q", "--filter", label) == ""
