"""Bad surroundings, each with its exit code and a message with what failed, where, and what to do."""

import json
import socket

import pytest
from confluent_kafka import Producer

from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import ANSWER_SECONDS, headgate
from support.topic_changes import change_settings

pytestmark = pytest.mark.integration


def test_unreachable_broker(settings: Settings) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    result = headgate("feed", "list", "--bootstrap", address)
    assert result.exit_code == ExitCode.BROKER_UNREACHABLE
    assert address in result.stderr
    assert "Traceback" not in result.stderr


def test_rights_are_not_needed_where_brokers_have_no_authorizer(settings: Settings) -> None:
    result = headgate("topic", "grant", "coordinator")
    assert result.exit_code == ExitCode.LOG, result.stderr
    assert "the brokers have no authorizer" in result.stderr
    assert "no rights are needed" in result.stderr


def test_topics_missing_then_created(settings: Settings) -> None:
    missing = headgate("feed", "list")
    assert missing.exit_code == ExitCode.TOPICS_MISSING
    assert f"{settings.prefix}announce" in missing.stderr
    assert headgate("topic", "create", "--shards", "3").exit_code == 0
    again = headgate("topic", "create", "-o", "json")
    assert (again.exit_code, json.loads(again.stdout)["shards"]) == (0, 3), again.stderr
    refused = headgate("topic", "create", "--shards", "4")
    assert refused.exit_code == ExitCode.TOPICS_WRONG, refused.stderr
    # The number of shards is the cluster's: nobody has to say it again.
    listed = headgate("topic", "list", "-o", "json")
    assert listed.exit_code == 0, listed.stderr
    assert {row["topic"]: row["partitions"] for row in json.loads(listed.stdout)} == {
        f"{settings.prefix}announce": 1,
        f"{settings.prefix}sync": 3,
        f"{settings.prefix}dispatch": 3,
        f"{settings.prefix}checkpoint": 3,
        f"{settings.prefix}changefeed": 3,
        f"{settings.prefix}deadletter": 3,
        f"{settings.prefix}generation": 3,
        f"{settings.prefix}migration": 1,
        f"{settings.prefix}migration-approval": 1,
        f"{settings.prefix}migration-request": 1,
    }


def test_other_number_of_shards_is_refused(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_SHARDS", "5")
    result = headgate("feed", "list")
    assert result.exit_code == ExitCode.TOPICS_WRONG
    assert "have 1 partition, wanted 5 for 5 shards" in result.stderr
    assert "This cluster has 1 shard: set HEADGATE_SHARDS (--shards) to 1" in result.stderr


def test_topic_that_is_not_compacted_is_refused(settings: Settings, log: KafkaLog) -> None:
    change_settings(log.connection.admin, f"{settings.prefix}dispatch", {"cleanup.policy": "delete"})
    result = headgate("agent", "list")
    assert result.exit_code == ExitCode.TOPICS_WRONG
    assert f"{settings.prefix}dispatch has cleanup.policy=delete" in result.stderr


def _produce(settings: Settings, topic: str, key: bytes, value: bytes) -> None:
    with Producer({"bootstrap.servers": settings.bootstrap}) as producer:
        producer.produce(f"{settings.prefix}{topic}", key=key, value=value, partition=0)
        assert producer.flush(ANSWER_SECONDS) == 0


def test_garbage_is_shown_and_nothing_breaks(settings: Settings, log: KafkaLog) -> None:
    _produce(settings, "sync", b"what/is/this", b"not avro")
    _produce(settings, "sync", b"agent/a/s/0", b"\x00\x00")
    result = headgate("topic", "show", "sync", "-o", "json")
    assert result.exit_code == 0
    rows = json.loads(result.stdout)
    assert [row["offset"] for row in rows] == [0, 1]
    assert all(row["garbage"] for row in rows)
    assert "GARBAGE" in headgate("topic", "show", "sync").stdout
    assert headgate("feed", "list").exit_code == 0


def test_newer_schema_is_not_misread(settings: Settings, log: KafkaLog) -> None:
    # Id 1000 + 100 * type + version: version 99 of the first type is none we know.
    _produce(settings, "announce", b"coordinator/0", b"\x00" + (1099).to_bytes(4, "big") + b"whatever")
    result = headgate("topic", "show")
    assert result.exit_code == ExitCode.NEWER_SCHEMA
    assert "announce" in result.stderr


def test_port_taken(settings: Settings, log: KafkaLog) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = headgate("serve", "coordinator", "--http-port", port)
    assert result.exit_code == ExitCode.PORT_TAKEN
    assert f"127.0.0.1:{port}" in result.stderr
    assert "--http-port" in result.stderr


def test_unknown_property_of_librdkafka(settings: Settings) -> None:
    result = headgate("feed", "list", "-X", "securty.protocol=SSL")
    assert result.exit_code == ExitCode.SETTING
    assert "securty.protocol" in result.stderr


def test_request_without_an_owner_says_so_and_is_withdrawn(log: KafkaLog) -> None:
    result = headgate("feed", "pause", "shop", "--timeout", "0.5")
    assert result.exit_code == ExitCode.REQUEST_TIMED_OUT
    assert "shard 0 has no owner" in result.stderr
    assert "headgate serve coordinator" in result.stderr
    assert json.loads(headgate("topic", "show", "changefeed", "-o", "json").stdout) == []


def test_why_without_a_name_where_there_is_nothing(log: KafkaLog) -> None:
    result = headgate("why")
    assert result.exit_code == 0
    assert "no feed and no migration exists" in result.stderr
    assert "headgate feed create" in result.stderr


@pytest.mark.parametrize("command", [("feed", "show", "nope"), ("why", "nope"), ("topic", "show", "nope")])
def test_what_is_not_there(log: KafkaLog, command: tuple[str, ...]) -> None:
    result = headgate(*command)
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "'nope'" in result.stderr
