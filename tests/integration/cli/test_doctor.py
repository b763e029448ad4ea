"""``headgate doctor`` on a real broker and database: faults are planted, found, and gone once fixed as printed."""

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fixtures.shifted_clock import shifted_clock
from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import Service, headgate
from support.topic_changes import change_settings
from support.waiting import eventually

pytestmark = pytest.mark.integration


def diagnosed(*more: str) -> dict[str, dict[str, Any]]:
    """Check → the last finding of it."""
    done = headgate("doctor", *more, "-o", "json")
    assert done.exit_code in (ExitCode.DONE, ExitCode.CHECK_FAILED), done.output
    return {check["check"]: check for check in json.loads(done.stdout)["checks"]}


def type_shell(line: str) -> None:
    assert headgate(*shlex.split(line)[1:]).exit_code == 0


def test_topics_that_are_missing(settings: Settings) -> None:
    found = diagnosed()["control topics"]
    assert found["state"] == "wrong"
    (line,) = found["fix"]
    type_shell(line)
    healthy = diagnosed()
    assert healthy["control topics"]["state"] == healthy["broker"]["state"] == healthy["Kafka rights"]["state"] == "ok"
    assert "no service is running" in healthy["clock"]["says"]


def test_a_topic_that_is_not_compacted(settings: Settings, log: KafkaLog) -> None:
    name = f"{settings.prefix}dispatch"
    change_settings(log.connection.admin, name, {"cleanup.policy": "delete"})
    found = diagnosed()["control topics"]
    assert (found["state"], f"{name} has cleanup.policy=delete" in found["says"]) == ("wrong", True)
    (line,) = found["fix"]
    assert f"--bootstrap-server {settings.bootstrap}" in line
    assert line.endswith(f"--entity-name {name} --add-config cleanup.policy=compact")


def test_a_broker_that_is_not_there(settings: Settings) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    found = diagnosed("--bootstrap", address)
    assert found["broker"]["state"] == "wrong"
    assert f"{address} refuses the connection" in found["broker"]["says"]
    assert "control topics" not in found
    assert "Python" in found


@pytest.mark.parametrize("given", ["", "SELECT, UPDATE, DELETE"], ids=["no rights", "no INSERT"])
def test_a_sink_user_without_rights(
    settings: Settings, log: KafkaLog, shop_file: Path, postgres_database: str, *, tmp_path: Path, given: str
) -> None:
    user = f"u_{settings.cluster}".replace("-", "_")
    spec = yaml.safe_load(shop_file.read_text())
    password = tmp_path / "limited"
    password.write_text("secret")
    spec["sink"]["dsn"] = make_conninfo(
        "", **{name: value for name, value in conninfo_to_dict(postgres_database).items() if name != "password"}
        | {"user": user},
    )  # fmt: skip
    spec["sink"]["password_file"] = str(password)
    shop_file.write_text(yaml.safe_dump(spec))
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'")
        try:
            if given:
                database.execute(f"CREATE SCHEMA headgate AUTHORIZATION {user}")
                database.execute(f"GRANT {given} ON public.orders TO {user}".encode())
            typed: list[str] = []
            for _ in range(3):  # the database's own rights first, then the tables'
                found = diagnosed("--feed", str(shop_file))["feed"]
                if found["state"] == "ok":
                    break
                assert found["fix"], found
                for statement in found["fix"]:
                    database.execute(statement.encode())
                typed += found["fix"]
            assert found["state"] == "ok", found
            assert any("INSERT" in statement for statement in typed)
        finally:
            database.execute(f"DROP OWNED BY {user}; DROP ROLE {user}")


def source_options(dsn: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    parts = conninfo_to_dict(dsn)
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(folder))
    (folder / "source").write_text(str(parts["password"]))
    address = "postgresql://{user}@{host}:{port}/{dbname}".format(**parts)
    return ["--source", address, "--source-password-file", "source"]


@pytest.mark.parametrize(
    ("plant", "check", "says"),
    [
        ("ALTER PUBLICATION headgate DROP TABLE orders", "publication", "does not publish public.orders"),
        ("ALTER TABLE orders REPLICA IDENTITY NOTHING", "replica identity", "is NOTHING"),
        ("ALTER TABLE orders DROP CONSTRAINT orders_pkey", "primary key", "has none"),
    ],
)
def test_a_source_with_a_fault(
    settings: Settings, postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    *, plant: str, check: str, says: str,
) -> None:  # fmt: skip
    assert settings.cluster
    options = source_options(postgres_database, tmp_path, monkeypatch)
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE items (id int PRIMARY KEY)")
        database.execute("CREATE PUBLICATION headgate FOR TABLE orders, items")
        database.execute(plant.encode())
        found = wrong(*options)
        assert says in found[check]["says"], found
        for statement in found[check]["fix"]:
            database.execute(statement.encode())
    assert check not in wrong(*options)


def wrong(*more: str) -> dict[str, dict[str, Any]]:
    """Check → finding, of what is wrong at the source: the broker of these tests has no topics."""
    done = headgate("doctor", *more, "-o", "json")
    return {
        check["check"]: check
        for check in json.loads(done.stdout)["checks"]
        if check["state"] == "wrong" and check["check"] != "control topics"
    }


@pytest.mark.parametrize("shift_seconds", [0, 90, -90])
def test_a_clock_that_is_off(log: KafkaLog, serve: Callable[..., Service], tmp_path: Path, shift_seconds: int) -> None:
    owner = serve("owner", "coordinator")
    eventually(lambda: owner.get("/readyz")[0] == 200, "there is an owner")
    environment = os.environ | (shifted_clock(tmp_path, shift_seconds) if shift_seconds else {})
    command = [sys.executable, "-m", "headgate", "doctor", "-o", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    (found,) = (check for check in json.loads(done.stdout)["checks"] if check["check"] == "clock")
    if not shift_seconds:
        assert "the brokers'" in found["says"]
        return
    side = "ahead of" if shift_seconds > 0 else "behind"
    assert (found["state"], found["fix"]) == ("wrong", ["timedatectl set-ntp true"])
    assert f"s {side} the brokers'" in found["says"]


def test_what_cannot_be_asked_for(settings: Settings, tmp_path: Path) -> None:
    unknown = headgate("doctor", "--for", "agnet")
    assert (unknown.exit_code, "did you mean 'agent'?" in unknown.stderr) == (ExitCode.NOT_FOUND, True)
    missing = headgate("doctor", "--feed", str(tmp_path / "none.yaml"))
    assert (missing.exit_code, "none.yaml: No such file" in missing.stderr) == (ExitCode.FEED_SPEC, True)
    source = diagnosed("--source", "postgresql://me@127.0.0.1:1/x")["source"]
    assert (source["state"], "cannot open a session" in source["says"]) == ("wrong", True)
