"""Properties that are ours are refused by name; a broker that is not there is named by its address."""

import ast
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

import headgate
from headgate.eventlog.codec import Codec
from headgate.eventlog.connection import (
    FIXED_PROPERTIES,
    BrokerUnreachableError,
    KafkaConnection,
    PropertyRefusedError,
    reason_of,
)
from headgate.eventlog.kafka import KafkaLog, KafkaReader
from headgate.eventlog.schema_files import schemas
from support.eventlog_contract import DISPATCH_0, heartbeat, read_until

CONSUMERS = {"Consumer", "DeserializingConsumer", "AIOConsumer", "AIOKafkaConsumer"}


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens, kept so that nobody will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("name", sorted(FIXED_PROPERTIES))
def test_a_property_that_a_guarantee_stands_on_is_refused(name: str) -> None:
    with pytest.raises(PropertyRefusedError, match=rf"{name} cannot be set: .+") as refused:
        KafkaConnection("127.0.0.1:1", {"socket.timeout.ms": 1000, name: "secret-value"})
    assert refused.value.code == "kafka-property-refused"
    assert "secret-value" not in str(refused.value)


@pytest.mark.parametrize("name", ["error_cb", "stats_cb", "logger", "on_delivery", "default.topic.config"])
def test_a_key_that_only_python_knows_is_refused(name: str) -> None:
    with pytest.raises(PropertyRefusedError, match=f"{name} is not a property"):
        KafkaConnection("127.0.0.1:1", {name: "x"})


@pytest.mark.parametrize(
    ("properties", "message"),
    [({"acksss": "all"}, "acksss"), ({"socket.timeout.ms": "soon"}, r"socket\.timeout\.ms")],
)
def test_a_property_that_librdkafka_does_not_take_is_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(PropertyRefusedError, match=message):
        KafkaConnection("127.0.0.1:1", properties).client(Producer)


def test_an_operators_property_wins_over_our_default() -> None:
    """The proof is librdkafka's: it refuses the operator's value, so that value has reached it."""
    connection = KafkaConnection("127.0.0.1:1", {"fetch.wait.max.ms": 999_999_999})
    with pytest.raises(PropertyRefusedError, match=r"fetch\.wait\.max\.ms"):
        connection.client(Consumer, group_id="g", fetch_wait_max_ms=100)


def test_a_broker_that_is_not_there_is_named(nobody: str) -> None:
    said = f"no answer from Kafka at {nobody}.*Connection refused.*Check that"
    with pytest.raises(BrokerUnreachableError, match=said) as unreachable:
        KafkaConnection(nobody).broker_cluster_id(0.5)
    assert unreachable.value.code == "broker-unreachable"


def test_an_agent_that_gets_no_acknowledgement_says_so(nobody: str) -> None:
    log = KafkaLog(KafkaConnection(nobody), "headgate", shards=2, broker_cluster_id="x")
    with closing(log.writer("a1")) as writer, pytest.raises(BrokerUnreachableError, match=f"{nobody}: 1 of 1 records"):
        writer.write([heartbeat(1)], 0.5)


def test_a_reader_does_not_stay_blind_for_ever(nobody: str) -> None:
    """Left alone, librdkafka would give nothing, for ever, without a word."""
    reader = KafkaReader(KafkaConnection(nobody), "headgate", Codec(schemas()), {DISPATCH_0: 0}, silent_seconds_max=0.5)
    with closing(reader), pytest.raises(BrokerUnreachableError, match=nobody):
        read_until(reader, lambda _: False)


def test_a_refusal_is_the_same_whichever_broker_was_asked() -> None:
    code = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    told = {
        reason_of(
            KafkaException(KafkaError(code, f"No coordinator: sasl_ssl://127.0.0.1:9092/{broker}: Broker: refused"))
        )
        for broker in ("1", "bootstrap")
    }
    assert told == {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED: No coordinator: Broker: refused"}
    down = KafkaException(KafkaError(KafkaError._TRANSPORT, "ssl://127.0.0.1:9092/1: Connect failed"))
    assert "9092/1" in reason_of(down), "which one is down is what one wants to know"


def test_every_client_of_kafka_is_made_by_the_connection() -> None:
    """A client made by hand lacks the operator's properties, and librdkafka's log lines go straight to stderr."""
    services = Path(headgate.__file__).parents[1]
    by_hand = {
        f"{module.relative_to(services)}:{node.lineno}"
        for module in services.rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", None))
        in ("Producer", "Consumer", "AdminClient", "SerializingProducer", "DeserializingConsumer")
    }
    assert not by_hand


def test_only_the_partition_reader_and_members_of_groups_are_consumers() -> None:
    """Every other reader goes through eventlog/partition_reader.py, whose rules it would have to repeat."""
    product = Path(headgate.__file__).parent
    named = {
        str(module.relative_to(product))
        for module in product.rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if (isinstance(node, ast.Name) and node.id in CONSUMERS)
        or (isinstance(node, ast.Attribute) and node.attr in CONSUMERS)
        or (isinstance(node, ast.ImportFrom) and CONSUMERS & {alias.name for alias in node.names})
    }
    assert named == {"eventlog/partition_reader.py", "generation/changelog/shell/ingest_clients.py"}


def test_a_process_without_logs_prints_no_bare_line_of_a_client() -> None:
    """As commands are. Python writes a line to stderr where no handler takes it."""
    code = "from headgate.eventlog.connection import logger; logger.warning('GETPID [rdkafka#producer-6]: retrying')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
