"""Changes as records in Avro: their schemas are registered, and no record has an id of anything else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.registry_server import Registering, RegistryServer
from headgate.config.columns import ColumnOptions
from headgate.config.registry_spec import RegistrySpec
from headgate.formats import schema_registry
from headgate.formats.change import ABSENT, Change, ChangeError, Operation, Row
from headgate.formats.shaping import Shaping
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkUnavailableError
from headgate.sinks.kafka import avro
from headgate.sinks.kafka.avro import AvroRecords, Subjects, UntakenSchemaError

MEANING = {"": "postgresql", "id": "int64", "name": "string"}
KEY_MEANING = {"id": "int64"}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as started:
        yield started


@pytest.fixture
def registry(server: RegistryServer) -> Registering:
    server.answer = made = Registering()
    return made


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def records(server: RegistryServer, clock: Clock | None = None, **options: Any) -> AvroRecords:
    return AvroRecords(Subjects(RegistrySpec(url=server.url, **options), clock or Clock()), "copy.orders")


def change(row: Row | None, meaning: dict[str, str] | None = None, key: Row | None = None) -> Change:
    operation = Operation.DELETE if row is None else Operation.UPSERT
    return Change(0, 9, operation, {"id": 1} if key is None else key, row, 5, 6, meaning or MEANING)


ROW: Row = {"id": 1, "name": "ann"}


def test_a_row_and_a_tombstone_with_schemas_of_the_topics_subjects(
    server: RegistryServer, registry: Registering
) -> None:
    encoder = records(server)
    ((key, value, head),) = encoder.encode(change(ROW))
    assert (head, registry.read(key or b""), registry.read(value or b"")) == (None, {"id": 1}, ROW)
    assert encoder.encode(change(None)) == [(key, None, None)]
    assert {subject: len(ids) for subject, ids in registry.subjects.items()} == {
        "copy.orders-key": 1,
        "copy.orders-value": 1,
    }


def test_a_schema_is_registered_once_in_a_process_whoever_needs_it(
    server: RegistryServer, registry: Registering
) -> None:
    first = records(server).encode(change(ROW))
    equal = dict(MEANING)
    encoder = records(server)
    assert [encoder.encode(change(ROW, equal)) for _ in range(3)] == [first] * 3
    assert len(server.asked) == 2


def test_a_tombstone_of_the_source_registers_no_schema_of_values(server: RegistryServer, registry: Registering) -> None:
    """It only describes its key."""
    records(server).encode(change(None, KEY_MEANING))
    assert list(registry.subjects) == ["copy.orders-key"]


def test_ids_of_one_registry_are_never_those_of_another(server: RegistryServer, registry: Registering) -> None:
    ((_, here, _),) = records(server).encode(change(ROW))
    with RegistryServer() as other:
        other.answer = elsewhere = Registering(first_id=500)
        ((_, there, _),) = records(other).encode(change(ROW))
    assert (here or b"")[1:5] != (there or b"")[1:5]
    assert elsewhere.read(there or b"") == registry.read(here or b"") == ROW


def test_a_schema_that_changes_is_registered_and_earlier_rows_keep_theirs(
    server: RegistryServer, registry: Registering
) -> None:
    encoder = records(server)
    wider = MEANING | {"total": "org.apache.kafka.connect.data.Decimal(2,12)"}
    before, after, again = (
        encoder.encode(each)[0] for each in (change(ROW), change(ROW | {"total": b"\x04\xe2"}, wider), change(ROW))
    )
    assert before == again
    assert str(registry.read(after[1] or b"")["total"]) == "12.50"
    assert len(registry.subjects["copy.orders-value"]) == 2


def test_a_schema_that_is_not_taken_names_subject_reason_and_what_to_do_and_is_tried_again(
    server: RegistryServer, registry: Registering
) -> None:
    clock = Clock()
    encoder = records(server, clock)
    registry.refused["copy.orders-value"] = 409, "reader type STRING not compatible at /fields/1/type"
    for _ in range(3):
        with pytest.raises(
            UntakenSchemaError, match=r"subject copy\.orders-value: 409: reader type STRING.*\(409\).*columns\.exclude"
        ):
            encoder.encode(change(ROW))
    assert len(server.asked) == 2  # of the key, and of the value once
    registry.refused.clear()
    clock.now += avro.REFUSED_SECONDS
    assert registry.read(encoder.encode(change(ROW))[0][1] or b"") == ROW


@pytest.mark.parametrize(
    ("answer", "kind", "why"),
    [
        ((503, ""), SinkUnavailableError, "answers 503"),
        ((404, "no such page"), SinkUnavailableError, "answers 404"),
        ((200, "<html>log in</html>"), SinkUnavailableError, "not a schema registry"),
        ((200, '{"id": 0}'), SinkUnavailableError, "not a schema registry"),
        ((200, f'{{"id": {2**31}}}'), SinkUnavailableError, "not a schema registry"),
        ((401, ""), SinkRefusedError, r"subject copy\.orders-key: .*sink\.registry\.user"),
        (
            (403, '{"error_code": 40301, "message": "write denied"}'),
            SinkRefusedError,
            r"write denied \(40301\).*the right",
        ),
    ],
)
def test_a_registry_that_is_away_and_one_that_refuses(
    server: RegistryServer, answer: tuple[int, str], kind: type[SinkError], why: str
) -> None:
    server.answer = answer
    clock = Clock()
    encoder = records(server, clock)
    for _ in range(2):  # the second time nobody is asked
        with pytest.raises(kind, match=rf"^sink\.registry: .*{why}"):
            encoder.encode(change(ROW))
    assert len(server.asked) == 1
    server.answer = Registering()
    clock.now += schema_registry.PAUSE_SECONDS
    encoder.encode(change(ROW))


def test_a_password_file_outside_the_folder_of_secrets_is_refused_before_anybody_is_asked(
    server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(tmp_path / "secrets"))
    encoder = records(server, user="ann", password_file=Path("/etc/hostname"), allow_plain_http=True)
    with pytest.raises(SinkRefusedError, match=r"sink\.registry\.password_file /etc/hostname is not in"):
        encoder.encode(change(ROW))
    monkeypatch.setenv("HEADGATE_ALLOWED_HOSTS", "registry.example")
    with pytest.raises(SinkRefusedError, match=r"sink\.registry\.url names host 127\.0\.0\.1, which is not in"):
        records(server).encode(change(ROW))
    assert server.asked == []


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (change(ROW, {"": "postgresql"}), "has no schema"),
        (change(ROW | {"name": ABSENT}), "leaves out column name"),
        (change(ROW, key={}), "has no key"),
        (change(ROW, key={"other": 1}), "does not describe column other"),
        (change(ROW, MEANING | {"name": "com.example.Own"}), "column name: values of type"),
        (change(ROW | {"name": 7}), "column name: the value is of type int"),
        (Change(0, 9, Operation.TRUNCATE, {}, None, None, 0, MEANING), "TRUNCATE"),
    ],
)
def test_what_no_record_can_express_is_the_events_fault(
    server: RegistryServer, registry: Registering, refused: Change, why: str
) -> None:
    with pytest.raises(ChangeError, match=why):
        records(server).encode(refused)


def test_rows_are_written_as_the_feed_shapes_them(server: RegistryServer, registry: Registering) -> None:
    columns = ColumnOptions.model_validate(
        {
            "exclude": ["qty"],
            "rename": {"name": "title"},
            "mask": {"note": "null", "kind": {"constant": "x"}},
            "set": {"double": "qty * 2", "day": "CAST('2026-01-02' AS DATE)", "part": "CAST(qty AS DECIMAL) / 4"},
        }
    )
    meaning = MEANING | {"qty": "int32", "note": "int16", "kind": "int8"}
    row = ROW | {"qty": 7, "note": 1, "kind": 2}
    (shaped,) = Shaping(columns, {}).shaped([change(row, meaning)])
    ((_, value, _),) = records(server).encode(shaped)
    found = registry.read(value or b"")
    part = found.pop("part")
    assert found == {"id": 1, "title": "ann", "note": None, "kind": "x", "double": 14, "day": 20455}
    assert isinstance(part, dict)
    assert int.from_bytes(part["value"], "big") == 175 * 10 ** (part["scale"] - 2)


def test_schemas_are_remembered_up_to_a_bound(
    server: RegistryServer, registry: Registering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro, "SCHEMAS_MAX", 3)
    encoder = records(server)
    for number in range(10):
        encoder.encode(change(ROW | {f"c{number}": 1}, MEANING | {f"c{number}": "int32"}))
    assert (len(encoder._keys._plans), len(encoder._values._plans)) == (3, 3)
    monkeypatch.setattr(avro, "SCHEMA_CHARACTERS_MAX", 1)
    encoder.encode(change(ROW))
    assert len(encoder._values._plans) == 1
    assert encoder._values._characters == len(next(iter(encoder._values._plans.values())).schema.text)


def test_registered_ids_are_remembered_up_to_a_bound(
    server: RegistryServer, registry: Registering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro, "IDS_MAX", 3)
    monkeypatch.setattr(avro, "_ids", {})
    encoder = records(server)
    for number in range(5):
        encoder.encode(change(ROW | {f"c{number}": 1}, MEANING | {f"c{number}": "int32"}))
    assert len(avro._ids) == 3
