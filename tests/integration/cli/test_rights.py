"""Each service under a Kafka user of its own, with the rights that docs/configuration.md names and no others."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from eventlog_contract import ended
from headgate.cli.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.embedded.broker import EmbeddedKafka
from headgate.embedded.ports import HOST, free_ports
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.decisions import Decision, last_decision
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.log import LogError
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
    granted(kafka, documented(f"{CLUSTER}-shop.src.orders"))
    become("operator", address, monkeypatch)
    created = headgate("topic", "create", "--shards", "1")  # or finds them
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


def granted(kafka: EmbeddedKafka, rules: list[AclBinding]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for rule in admin.create_acls(rules).values():
        rule.result(20)


def revoked(kafka: EmbeddedKafka, rule: AclBinding) -> None:
    given = (rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host, rule.operation)
    pattern = AclBindingFilter(*given, rule.permission_type)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for deleted in admin.delete_acls([pattern]).values():
        assert deleted.result(20)


def table() -> Any:
    (row,) = json.loads(headgate("table", "list", "shop", "-o", "json").stdout)
    return row


def test_whoever_is_not_let_in_is_told_why(
    guarded: tuple[EmbeddedKafka, str], log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    become("stranger", guarded[1], monkeypatch)
    unseen = headgate("feed", "list")
    assert (unseen.exit_code, "the user's right to Describe" in unseen.stderr) == (ExitCode.TOPICS_MISSING, True)
    monkeypatch.setenv("HEADGATE_KAFKA__SASL_PASSWORD", "wrong")
    refused = headgate("feed", "list")
    assert refused.exit_code == ExitCode.BROKER_UNREACHABLE
    assert "Authentication failed" in refused.stderr
    assert "wrong" not in refused.stderr
    monkeypatch.setenv("HEADGATE_BOOTSTRAP", guarded[0].bootstrap)
    monkeypatch.setenv("HEADGATE_KAFKA__SECURITY_PROTOCOL", "SSL")
    plain = headgate("feed", "list")
    assert (plain.exit_code, "SSL_HANDSHAKE" in plain.stderr) == (ExitCode.BROKER_UNREACHABLE, True)


def test_what_a_lost_end_was_to_be_may_be_read_by_coordinators_only(
    guarded: tuple[EmbeddedKafka, str], log: KafkaLog
) -> None:
    with closing(log.transactional_writer("owner")) as owner:
        owner.init()
        owner.commit([ended("s1")])
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    asked = (f"{CLUSTER}.owner", [f"{CLUSTER}.dispatch"])
    users = [login | {"sasl.username": who, "sasl.password": f"secret of {who}"} for who in ("coordinator", "agent")]
    coordinator, agent = (KafkaConnection(guarded[1], user) for user in users)
    assert last_decision(coordinator, *asked) is Decision.COMMIT
    with pytest.raises(LogError, match=r"__transaction_state.*AUTHORIZATION"):
        last_decision(agent, *asked)


@pytest.mark.usefixtures("one_core_spark")
def test_the_documented_rights_suffice(
    guarded: tuple[EmbeddedKafka, str],
    *,
    settings: Settings,
    shop_file: Path,
    serve: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka, address = guarded
    spec = yaml.safe_load(shop_file.read_text(encoding="utf-8"))
    shop_file.write_text(yaml.safe_dump(spec | {"on_bad_change": "quarantine"}), encoding="utf-8")
    (topic,) = spec["source"]["topics"]
    become("coordinator", address, monkeypatch)
    serve("coordinator", "coordinator")
    become("agent", address, monkeypatch)
    agent = serve("agent", "agent", "--name", "a1")
    become("operator", address, monkeypatch)
    eventually(lambda: agent.get("/readyz")[0] == 200, "the agent is ready", seconds=120)
    fed = headgate("feed", "create", str(shop_file))
    assert fed.exit_code == 0, fed.stderr

    eventually(lambda: (table()["state"], table()["rows"]) == ("replicating", ROWS), "all rows are applied", 120)
    (reading,) = [
        rule
        for rule in documented(topic)
        if rule.principal == "User:agent" and rule.name == topic and rule.operation is AclOperation.READ
    ]
    revoked(kafka, reading)
    producer = Producer({"bootstrap.servers": settings.bootstrap})
    producer.produce(topic, key=b'{"id":7}', value=b"\xffgarbage")
    assert producer.flush(30) == 0
    why = eventually(lambda: table()["error"], "the table says what is wrong")
    assert f"{topic}[0]" in why
    assert "authorization failed" in why
    granted(kafka, [reading])
    (set_aside,) = eventually(
        lambda: json.loads(headgate("deadletter", "list", "shop", "-o", "json").stdout), "nothing is lost"
    )
    sent = headgate("deadletter", "replay", "shop", set_aside["place"], "--send")
    assert sent.exit_code == 0, sent.stderr
