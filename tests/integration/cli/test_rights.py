"""Each service under a Kafka user of its own, with the rights that docs/configuration.md names and no others."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from headgate.config.settings import Settings
from headgate.embedded.broker import EmbeddedKafka
from headgate.embedded.ports import HOST, free_ports
from headgate.eventlog.kafka import KafkaLog, open_log
from integration.cli.conftest import ROWS, Service, eventually, headgate

pytestmark = [pytest.mark.integration, pytest.mark.spark]

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"
CLUSTER = "headgate"
FEEDS_TOPICS = "the feeds' topics"
RESOURCES = {"topic": ResourceType.TOPIC, "transactional id": ResourceType.TRANSACTIONAL_ID}
USERS = ("coordinator", "agent", "operator", "stranger")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedKafka, str]]:
    """A broker with an authorizer, where only those without a name may do everything; the address for named users."""
    (port,) = free_ports(1)
    users = " ".join(f'user_{name}="secret of {name}"' for name in USERS)
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
        "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
    }
    folder = tmp_path_factory.mktemp("guarded") / "kafka"
    with EmbeddedKafka(folder, settings=settings, further_listeners={"GUARDED": (port, port)}) as kafka:
        yield kafka, f"{HOST}:{port}"


@pytest.fixture
def kafka_bootstrap(guarded: tuple[EmbeddedKafka, str]) -> str:
    return guarded[0].bootstrap


@pytest.fixture
def kafka_prefix() -> str:
    return f"{CLUSTER}."


@pytest.fixture
def log(settings: Settings, guarded: tuple[EmbeddedKafka, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaLog]:
    """What shop_file asks for, with topics that the operator has made."""
    kafka, address = guarded
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for rule in admin.create_acls(documented(f"{CLUSTER}-shop.src.orders")).values():
        rule.result(20)
    become("operator", address, monkeypatch)
    created = headgate("topic", "create", "--shards", "1")
    assert created.exit_code == 0, created.stderr
    with closing(open_log(settings)) as log:
        yield log


def documented(source: str) -> list[AclBinding]:
    """The table's rows as access rules, ``source`` for the feeds' topics."""
    rows = re.findall(
        r"^\| (\w+) \| (topic|transactional id) \| (.+?) \| (.+?) \|$", DOCUMENT.read_text(), re.MULTILINE
    )
    assert {row[0] for row in rows} == set(USERS) - {"stranger"}
    return [
        AclBinding(
            RESOURCES[resource],
            name,
            ResourcePatternType.PREFIXED if name.endswith(".") else ResourcePatternType.LITERAL,
            f"User:{who}",
            "*",
            getattr(AclOperation, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()),
            AclPermissionType.ALLOW,
        )
        for who, resource, names, operations in rows
        for name in ([source] if names == FEEDS_TOPICS else re.findall("`(.+?)`", names))
        for operation in operations.split(", ")
    ]


def become(user: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_BOOTSTRAP", address)
    monkeypatch.setenv("HEADGATE_KAFKA__SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    monkeypatch.setenv("HEADGATE_KAFKA__SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("HEADGATE_KAFKA__SASL_USERNAME", user)
    monkeypatch.setenv("HEADGATE_KAFKA__SASL_PASSWORD", f"secret of {user}")


def test_the_documented_rights_suffice(
    guarded: tuple[EmbeddedKafka, str],
    *,
    settings: Settings,
    shop_file: Path,
    serve: Callable[..., Service],
    spark_jars: tuple[Path, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, address = guarded
    spec = yaml.safe_load(shop_file.read_text(encoding="utf-8"))
    shop_file.write_text(yaml.safe_dump(spec | {"on_bad_change": "quarantine"}), encoding="utf-8")
    (topic,) = spec["source"]["topics"]
    monkeypatch.setenv("HEADGATE_SPARK__JARS", ",".join(map(str, spark_jars)))
    monkeypatch.setenv("HEADGATE_SPARK__MASTER", "local[1]")
    become("coordinator", address, monkeypatch)
    serve("coordinator", "coordinator")
    become("agent", address, monkeypatch)
    agent = serve("agent", "agent", "--name", "a1")
    become("operator", address, monkeypatch)
    eventually(lambda: agent.get("/readyz")[0] == 200, "the agent is ready", seconds=120)
    fed = headgate("feed", "create", str(shop_file))
    assert fed.exit_code == 0, fed.stderr

    def applied() -> bool:
        (row,) = json.loads(headgate("table", "list", "shop", "-o", "json").stdout)
        return bool(row["state"] == "replicating" and row["rows"] == ROWS)

    eventually(applied, "all rows are applied", seconds=120)
    producer = Producer({"bootstrap.servers": settings.bootstrap})
    producer.produce(topic, key=b'{"id":7}', value=b"\xffgarbage")
    assert producer.flush(30) == 0
    rows = eventually(lambda: json.loads(headgate("deadletter", "list", "shop", "-o", "json").stdout), "set aside")
    replayed = headgate("deadletter", "replay", "shop", rows[0]["place"])
    assert replayed.exit_code == 0, replayed.stderr
