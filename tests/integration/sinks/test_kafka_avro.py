"""Kafka topics in Avro: the contract of their sink, and a registry that refuses, does not respond, and comes back."""

from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import urllib3

from fixtures.registry_server import Registering, RegistryServer
from headgate.formats import schema_registry
from headgate.formats.change import Change, Operation, Row
from headgate.formats.schema_registry import SchemaRegistry
from headgate.sinks.contract import (
    ChangeBatch,
    ChangeRefusedError,
    FeedIdentity,
    OffsetRange,
    Quarantine,
    SinkRefusedError,
    SinkUnavailableError,
    SinkWriter,
    ValueRefusedError,
)
from headgate.sinks.kafka import avro
from headgate.sinks.kafka.avro import SchemaRefusedError
from headgate_lab.embedded.ports import free_ports
from headgate_lab.embedded.registry import EmbeddedRegistry
from integration.sinks import contract, on_driver_contract
from integration.sinks.contract import claim_of
from integration.sinks.kafka_bench import KafkaBench, too_large
from integration.sinks.on_driver_contract import OnDriverContract

pytestmark = pytest.mark.integration

MEANING = {"id": "int64", "value": "string"}


def described(*fields: Any, **named: Any) -> Change:
    """A change as the contract has it, of an event with a schema."""
    change = Change(*fields, **named)
    return change if change.semantics is not None else Change(*fields, **named, semantics=MEANING)


class AvroBench(KafkaBench):
    def __init__(self, bootstrap: str, prefix: str, points: Path, registry: RegistryServer) -> None:
        registry.answer = self.registering = Registering()
        options = {"format": "avro", "registry": {"url": registry.url}}
        super().__init__(bootstrap, prefix, points, options=options)

    def read(self, data: bytes) -> dict[str, Any]:
        return self.registering.read(data)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as started:
        yield started


@pytest.fixture
def bench(
    kafka_bootstrap: str,
    kafka_prefix: str,
    tmp_path: Path,
    registry: RegistryServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[AvroBench]:
    for module in (contract, on_driver_contract):
        monkeypatch.setattr(module, "Change", described)
    monkeypatch.setattr(contract, "unfit", too_large)
    monkeypatch.setattr(schema_registry, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(avro, "REFUSED_SECONDS", 0.0)
    with closing(AvroBench(kafka_bootstrap, kafka_prefix, tmp_path, registry)) as made:
        yield made


@pytest.fixture
def writer(bench: AvroBench) -> Iterator[SinkWriter]:
    with closing(bench.sink.writer()) as made:
        yield made


class TestKafkaInAvro(OnDriverContract):
    TRUNCATE_REFUSED = "TRUNCATE cannot be written to a topic"

    @staticmethod
    def completes_rows(bench: contract.Bench) -> bool:  # noqa: ARG004
        return False

    @pytest.fixture
    def bench(self, bench: AvroBench) -> AvroBench:
        return bench

    @pytest.mark.skip(reason="formats whose writers leave NULLs out have no schemas")
    def test_a_column_that_its_writer_leaves_out_where_it_is_null_becomes_null(self) -> None: ...  # type: ignore[override]

    @pytest.mark.skip(reason="formats whose writers leave NULLs out have no schemas")
    def test_a_column_that_may_be_null_or_unknown_to_the_source_is_refused_where_that_is_a_difference(self) -> None: ...  # type: ignore[override]


def upsert(offset: int, row: Row, meaning: dict[str, str] | None = None) -> Change:
    return Change(0, offset, Operation.UPSERT, {"id": row["id"]}, row, None, 0, meaning or MEANING)


def batch_of(bench: KafkaBench, *changes: Change, quarantine: Quarantine | None = None) -> ChangeBatch:
    ranges = {0: OffsetRange(changes[0].offset, changes[-1].offset + 1)}
    return ChangeBatch(claim_of(bench, 1), ranges, changes, quarantine)


ALTERED = {"id": "int64", "value": "int32"}
BEFORE, AFTER = {"id": 1, "value": "a"}, {"id": 2, "value": 7}


def test_a_batch_goes_as_far_as_its_schemas_are_taken_and_on_once_the_next_one_is(
    bench: AvroBench, writer: SinkWriter
) -> None:
    """Nothing is set aside: the change has a right to be written."""
    kept: list[ChangeRefusedError] = []
    aside = Quarantine(kept.extend, 10, patient=True)
    bench.sink.claim(claim_of(bench, 1))
    writer.apply(batch_of(bench, upsert(5, BEFORE)))
    bench.registering.refused[f"{bench.table}-value"] = 409, "int is not string"
    altered = batch_of(bench, upsert(6, BEFORE), upsert(7, AFTER, ALTERED), upsert(8, BEFORE), quarantine=aside)
    assert writer.apply(altered).positions == {0: 7}
    rest = batch_of(bench, upsert(7, AFTER, ALTERED), upsert(8, BEFORE), quarantine=aside)
    with pytest.raises(SchemaRefusedError, match=rf"{bench.table}-value: 409: int is not string.*offset 7") as refused:
        writer.apply(rest)
    assert (refused.value.code, refused.value.retryable, kept) == ("schema_refused", True, [])
    bench.registering.refused.clear()
    writer.apply(rest)
    assert [bench.read(value or b"") for _, _, value in bench.records()] == [BEFORE, BEFORE, AFTER, BEFORE]


def test_only_a_value_that_does_not_fit_its_type_is_set_aside(bench: AvroBench, writer: SinkWriter) -> None:
    kept: list[ChangeRefusedError] = []
    bench.sink.claim(claim_of(bench, 1))
    changes = [upsert(5, BEFORE), upsert(6, {"id": 2, "value": 7}), upsert(7, {"id": 3, "value": "c"})]
    writer.apply(batch_of(bench, *changes, quarantine=Quarantine(kept.extend, 10, patient=True)))
    assert bench.rows() == {1: "a", 3: "c"}
    (refused,) = kept
    assert (type(refused), refused.offset) == (ValueRefusedError, 6)
    assert "column value: the value is of type int, and its schema describes a text" in str(refused)


def test_a_table_waits_for_a_registry_that_is_away_and_nothing_is_written_until_it_is_back(
    bench: AvroBench, writer: SinkWriter, registry: RegistryServer
) -> None:
    bench.sink.claim(claim_of(bench, 1))
    writer.apply(batch_of(bench, upsert(5, BEFORE)))
    registry.answer = (503, "")
    writer.apply(batch_of(bench, upsert(6, {"id": 3, "value": "known"})))  # its schema is
    with pytest.raises(SinkUnavailableError, match=rf"sink\.registry: .*{registry.url}.*answers 503") as away:
        writer.apply(batch_of(bench, upsert(7, BEFORE), upsert(8, AFTER, ALTERED)))
    assert away.value.code == "sink_unavailable"
    assert bench.rows() == {1: "a", 3: "known"}
    registry.answer = bench.registering
    writer.apply(batch_of(bench, upsert(7, BEFORE), upsert(8, AFTER, ALTERED)))
    assert bench.rows() == {1: "a", 3: "known", 2: 7}


def test_a_check_asks_the_registry(bench: AvroBench, registry: RegistryServer) -> None:
    identity = FeedIdentity("x/headgate.", "", "shop")
    bench.sink.check([bench.table], identity)
    registry.answer = (401, "")
    with pytest.raises(
        SinkRefusedError, match=r"sink\.registry: .*refuses access \(401\)\. Correct sink\.registry\.user"
    ):
        bench.sink.check([bench.table], identity)
    registry.answer = (200, '["JSON"]')
    with pytest.raises(SinkUnavailableError, match="does not support Avro"):
        bench.sink.check([bench.table], identity)
    assert list(bench.sink.check([bench.table])) == [bench.table]  # by an agent, which needs it for new schemas only
    (port,) = free_ports(1)
    away = bench.another(registry={"url": f"http://127.0.0.1:{port}"})
    with pytest.raises(SinkUnavailableError, match="cannot be used"):
        away.check([bench.table], identity)


@pytest.fixture
def real(
    kafka_bootstrap: str, kafka_prefix: str, tmp_path: Path, schema_registry: EmbeddedRegistry
) -> Iterator[KafkaBench]:
    options = {"format": "avro", "registry": {"url": schema_registry.url}}
    with closing(KafkaBench(kafka_bootstrap, kafka_prefix, tmp_path, options=options)) as made:
        yield made


def asked(method: str, url: str, body: object = None) -> Any:
    answer = urllib3.request(method, url, json=body, timeout=30)
    assert answer.status == 200, answer.data
    return answer.json()


def test_a_real_registry_has_the_schemas_and_takes_columns_that_are_added_and_no_other_type(
    real: KafkaBench, schema_registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro, "REFUSED_SECONDS", 0.0)
    monkeypatch.setattr(f"{SchemaRegistry.__module__}.ANSWER_SECONDS_MAX", 60.0)  # a busy machine is not a finding
    subject = f"{schema_registry.url}/subjects/{real.table}-value"
    claim = claim_of(real, 1)
    real.sink.claim(claim)
    with closing(real.sink.writer()) as writer:
        writer.apply(batch_of(real, upsert(5, BEFORE)))
        asked("PUT", f"{schema_registry.url}/config/{real.table}-value", {"compatibility": "FULL"})
        wider = MEANING | {
            "total": "org.apache.kafka.connect.data.Decimal(2,12)",
            "at": "io.debezium.time.MicroTimestamp",
        }
        more = {"id": 3, "value": None, "total": b"\x04\xe2", "at": 2**63 - 1}
        writer.apply(batch_of(real, upsert(6, more, wider)))
        with pytest.raises(SchemaRefusedError, match=rf"subject {real.table}-value: 409: .*columns\.exclude"):
            writer.apply(batch_of(real, upsert(7, AFTER, ALTERED)))
        asked("PUT", f"{schema_registry.url}/config/{real.table}-value", {"compatibility": "NONE"})
        writer.apply(batch_of(real, upsert(7, AFTER, ALTERED)))
    versions = asked("GET", f"{subject}/versions")
    schemas = [asked("GET", f"{subject}/versions/{version}") for version in versions]
    found = [value or b"" for _, _, value in real.records()]
    assert [int.from_bytes(value[1:5], "big") for value in found] == [schema["id"] for schema in schemas]
    texts = {schema["id"]: schema["schema"] for schema in schemas}
    reader = Registering()
    reader.by_id = texts
    rows = [reader.read(value) for value in found]
    assert rows[0] == BEFORE
    assert rows[1] == more | {"total": Decimal("12.50")}
    assert rows[2] == AFTER
