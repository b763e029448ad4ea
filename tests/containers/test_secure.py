"""docker-compose.secure.yml: users, rights and TLS everywhere; who has none of them is refused."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from containers.conftest import OUTCOME, ROOT, Compose, brought_up, docker, eventually, left_of, logs_of
from containers.ports import BROKER, PORTS
from headgate import __version__
from headgate.app.exit_codes import ExitCode
from headgate.provisioning.time_scale import scaled_seconds
from support.topic_changes import await_topics

pytestmark = [pytest.mark.containers, pytest.mark.timeout(scaled_seconds(3600))]

SOURCE, TARGET = PORTS["SOURCE_PORT"], PORTS["TARGET_PORT"]
IMAGE = f"headgate:{__version__}"
OVERRIDE = "docker-compose.secure.yml"
SETTINGS = yaml.safe_load((ROOT / OVERRIDE).read_text(encoding="utf-8"))["x-secured"]
ANSWER_SECONDS = scaled_seconds(120.0)
"""For what the broker answers, on a busy machine."""
REFUSED_SECONDS = 20.0
"""For what it does not answer: each such question is asked for so long."""


def postgres_image() -> str:
    """PostgreSQL 18 by local-images is built without TLS (so is its wheel); Debian's 15 has it."""
    label = '{{index .Config.Labels "headgate.local-image"}}'
    is_local = docker("image", "inspect", "--format", label, "postgres:18", check=False)
    return "postgres:15" if is_local else "postgres:18"


@pytest.fixture(scope="module")
def secure() -> Iterator[Compose]:
    compose = Compose(f"headgate-secure-{os.getpid()}", OVERRIDE, variables={"POSTGRES_IMAGE": postgres_image()})
    with brought_up(compose) as compose:
        yield compose


@pytest.fixture(scope="module")
def credentials(secure: Compose, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What each of some users has, as folders on this machine."""
    folders = {}
    for owner in ("source", "target", "agent", "operator"):
        folders[owner] = tmp_path_factory.mktemp(owner)
        copy = f"cp -r /from/. /to && chown -R {os.getuid()} /to"
        volumes = ("-v", f"{secure.project}_credentials-{owner}:/from:ro", "-v", f"{folders[owner]}:/to")
        docker("run", "--rm", "--user", "0:0", *volumes, "--entrypoint", "sh", IMAGE, "-c", copy)
    return folders


def kafka_of(folder: Path, **other: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": BROKER,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": (folder / "kafka_user").read_text(encoding="utf-8"),
        "sasl.password": (folder / "kafka_password").read_text(encoding="utf-8"),
        "ssl.ca.location": str(folder / "ca.pem"),
        "log_level": 0,
        **other,
    }


def database(port: int, folder: Path, **other: Any) -> "psycopg.Connection[Any]":
    given = {"sslmode": "verify-full", "sslrootcert": str(folder / "ca.pem")} | other
    password = (folder / "password").read_text(encoding="utf-8")
    return psycopg.connect(
        host="127.0.0.1", port=port, user="postgres", dbname="shop", password=password, autocommit=True, **given
    )


def test_a_feed_is_created_and_its_rows_arrive_all_by_tls(secure: Compose, credentials: dict[str, Path]) -> None:
    operator = AdminClient(kafka_of(credentials["operator"]))
    wanted = {"shop.public.customers", "shop.public.orders"}
    await_topics(operator, *wanted)  # Debezium makes them
    created = secure.command("feed", "create", "/feeds/shop-secure.yaml", *OUTCOME)
    assert created["status"] == "done", created
    with database(SOURCE, credentials["source"]) as source, database(TARGET, credentials["target"]) as target:
        count = "SELECT (SELECT count(*) FROM customers), (SELECT count(*) FROM orders)"
        eventually(lambda: target.execute(count).fetchone() == (100, 1000), "the snapshot has come")
        source.execute("INSERT INTO orders VALUES (1001, 1, 7, 'by TLS')")
        eventually(lambda: target.execute(count).fetchone() == (100, 1001), "a new row has come")
        for server, who in ((source, "Debezium%"), (target, "headgate%")):
            encrypted = server.execute(
                "SELECT count(*), bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
                " WHERE client_addr IS NOT NULL AND application_name ILIKE %s",
                (who,),
            ).fetchone()
            assert encrypted is not None
            assert encrypted[0] > 0, f"sessions of {who} are there"
            assert encrypted[1] is True


def test_who_has_no_right_is_refused_by_the_broker(secure: Compose, credentials: dict[str, Path]) -> None:
    refused: list[KafkaError | None] = []
    with Producer(kafka_of(credentials["agent"])) as producer:
        producer.produce("headgate.dispatch", b"x", b"k", on_delivery=lambda error, _: refused.append(error))
        producer.flush(ANSWER_SECONDS)
    assert [error is not None and error.code() for error in refused] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    with ours(secure, "views", "serve", "coordinator") as name:
        eventually(lambda: "authorization failed" in logs_of(name), "a coordinator that comes as views is told why")
    with ours(secure, "views", "feed", "pause", "shop", "--timeout", "20") as name:
        assert docker("wait", name) != "0"
        assert "Give this user the right" in logs_of(name)
    assert secure.command("feed", "list")[0]["state"] == "normal"


@contextmanager
def ours(secure: Compose, user: str, *command: str, **other: str) -> Iterator[str]:
    """A container of Headgate with a user's credentials."""
    settings = SETTINGS | {"HEADGATE_BOOTSTRAP": "kafka:9092", "HEADGATE_SHARDS": "1"} | other
    given = [argument for variable, value in settings.items() for argument in ("-e", f"{variable}={value}")]
    given += ["--network", f"{secure.project}_default"]
    given += ["-v", f"{secure.project}_credentials-{user}:/run/credentials:ro"]
    container = docker("run", "--detach", *given, IMAGE, *command)
    try:
        yield container
    finally:
        docker("rm", "--force", container)


def test_who_comes_without_tls_or_with_a_wrong_password_is_not_let_in(
    secure: Compose, credentials: dict[str, Path]
) -> None:
    operator = kafka_of(credentials["operator"])
    assert AdminClient(operator).list_topics(timeout=ANSWER_SECONDS).topics
    for change in (
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "SASL_PLAINTEXT"},
        {"security.protocol": "SSL"},
        {"sasl.password": "a guess"},
    ):
        with pytest.raises(KafkaException):
            AdminClient(operator | change).list_topics(timeout=REFUSED_SECONDS)
    for port, owner in ((SOURCE, "source"), (TARGET, "target")):
        with pytest.raises(psycopg.OperationalError, match="no encryption"):
            database(port, credentials[owner], sslmode="disable")
    with ours(secure, "operator", "feed", "list", HEADGATE_KAFKA__SECURITY_PROTOCOL="PLAINTEXT") as name:
        assert docker("wait", name) == str(ExitCode.BROKER_UNREACHABLE.value)
        assert "no answer from Kafka at kafka:9092" in logs_of(name)


def test_nothing_is_left_after_down(secure: Compose) -> None:
    secure("down", "--volumes", "--remove-orphans")
    assert left_of(secure.project) == []
