"""Changes as records in Avro: their schemas are registered, and no record has an id of anything else."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures.registry_server import Registering, RegistryServer
from headgate.config.columns import ColumnOptions
from headgate.config.expressions import Kind
from headgate.config.registry_spec import RegistrySpec
from headgate.formats import debezium_json, schema_registry
from headgate.formats.change import ABSENT, Change, ChangeError, Operation, Row
from headgate.formats.expressions.declared import SourceColumn, SourceTypes
from headgate.formats.shaping import Shaping
from headgate.replication.sink_failures import failure_of
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkUnavailableError
from headgate.sinks.kafka import avro
from headgate.sinks.kafka.avro import AvroRecords, Plans, RegistryUnavailableError, Subjects, UntakenSchemaError

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


def subjects(server: RegistryServer, clock: Clock | None = None, **options: Any) -> Subjects:
    return Subjects(RegistrySpec(url=server.url, **options), clock or Clock())


def records(server: RegistryServer, clock: Clock | None = None, **options: Any) -> AvroRecords:
    return AvroRecords(subjects(server, clock, **options), "copy.orders", Plans())


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
            UntakenSchemaError, match=r"subject copy\.orders-value: 409: reader type STRING.*columns\.exclude"
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
        ((429, ""), SinkUnavailableError, "answers 429"),
        ((404, "no such page"), SinkUnavailableError, "answers 404"),
        ((200, "<html>log in</html>"), SinkUnavailableError, "not a schema registry"),
        ((200, '{"id": 0}'), SinkUnavailableError, "not a schema registry"),
        ((200, f'{{"id": {2**31}}}'), SinkUnavailableError, "not a schema registry"),
        ((401, ""), SinkRefusedError, r"refuses access \(401\)\. Correct sink\.registry\.user"),
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
    clock.now += max(schema_registry.PAUSE_SECONDS, avro.REFUSED_SECONDS)
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


class Declared:
    """The source's catalogue: the texts of column ``price`` are decimals."""

    def known(self) -> SourceTypes:
        return TYPES

    def again(self) -> SourceTypes:
        return TYPES


TYPES = SourceTypes({"price": SourceColumn(Kind.NUMERIC)})


def test_masks_of_the_feed_and_computed_columns_fit_tables_that_lack_the_masked_column(
    server: RegistryServer, registry: Registering
) -> None:
    columns = ColumnOptions.model_validate(
        {"mask": {"mail": {"constant": "x"}, "phone": {"keep_last": 2}}, "set": {"twice": "price * 2"}}
    )
    meaning = MEANING | {"price": "string"}
    with_mail, without = (
        change(ROW | {"price": "1.5", "mail": "m"}, meaning | {"mail": "string"}),
        change(ROW | {"price": "1.5"}, meaning),
    )
    shaped = Shaping(columns, {}, None, Declared()).shaped([with_mail, without])
    found = [registry.read(records(server).encode(each)[0][1] or b"") for each in shaped]
    twice = {"scale": 1, "value": b"\x1e"}
    assert found == [ROW | {"price": "1.5", "mail": "x", "twice": twice}, ROW | {"price": "1.5", "twice": twice}]


def test_schemas_are_remembered_up_to_a_bound(
    server: RegistryServer, registry: Registering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all topics of a feed together, and those that are used stay."""
    monkeypatch.setattr(avro, "SCHEMAS_MAX", 6)
    plans, registered = Plans(), subjects(server)

    def encode(topic: str, number: int) -> None:
        meaning = MEANING | {f"c{number}": "int32"}
        AvroRecords(registered, topic, plans).encode(change(ROW | {f"c{number}": 1}, meaning))

    encode("copy.orders", 0)
    first = {content: plan.schema for content, plan in plans._plans.items()}
    for number in range(10):
        encode("copy.orders", 0)
        encode(f"copy.other{number}", number)
    assert all(plans._plans[content].schema is schema for content, schema in first.items()), "none was made again"
    kept = list(plans._plans)
    assert [topic for topic, *_ in kept] == [
        "copy.other8", "copy.other8", "copy.orders", "copy.orders", "copy.other9", "copy.other9",
    ]  # fmt: skip
    assert plans._characters == sum(len(plan.schema.text) for plan in plans._plans.values())
    monkeypatch.setattr(avro, "SCHEMA_CHARACTERS_MAX", 1)
    encode("copy.orders", 1)
    assert len(plans._plans) == 1
    assert plans._characters == len(next(iter(plans._plans.values())).schema.text)


def test_registered_ids_are_remembered_up_to_a_bound(
    server: RegistryServer, registry: Registering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro, "IDS_MAX", 3)
    encoder = records(server)
    for number in range(5):
        encoder.encode(change(ROW | {f"c{number}": 1}, MEANING | {f"c{number}": "int32"}))
    assert len(avro._ids) == 3


@pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 422])
def test_an_answer_about_one_subject_says_nothing_of_others(
    server: RegistryServer, registry: Registering, status: int
) -> None:
    """The other tables continue, and the refused one is named, and is not asked for at each attempt."""
    clock = Clock()
    registered, plans = subjects(server, clock), Plans()
    registry.refused["copy.orders-key"] = status, "not this one"
    kind: type[Exception] = SinkRefusedError if status == 403 else UntakenSchemaError
    for _ in range(2):
        with pytest.raises(kind, match=rf"{status}.*not this one") as refused:
            AvroRecords(registered, "copy.orders", plans).encode(change(ROW))
        assert "subject copy.orders-key" in str(refused.value)
        AvroRecords(registered, "copy.items", plans).encode(change(ROW))
    assert len(server.asked) == 3
    registry.refused.clear()
    clock.now += avro.REFUSED_SECONDS
    AvroRecords(registered, "copy.orders", plans).encode(change(ROW))


@pytest.mark.parametrize(
    ("status", "subject", "says", "not_"),
    [
        (409, "copy.orders-key", "write to a new topic.*compaction keeps both", "exclude"),
        (409, "copy.orders-value", "columns.exclude.*NONE allows", "READONLY"),
        (422, "copy.orders-key", "READONLY.*a rule", "exclude"),
        (422, "copy.orders-value", "READONLY.*a rule", "exclude"),
    ],
)
def test_a_rejected_schema_has_the_advice_that_helps(  # noqa: PLR0917 - a table
    server: RegistryServer, registry: Registering, status: int, subject: str, says: str, not_: str
) -> None:
    registry.refused[subject] = status, f"{'{schema}' * 100} the reason"
    with pytest.raises(UntakenSchemaError, match=says) as refused:
        records(server).encode(change(ROW))
    assert "the reason" in str(refused.value)
    assert not_ not in str(refused.value)


def test_an_id_in_use_is_asked_for_again_and_another_one_is_refused(
    server: RegistryServer, registry: Registering
) -> None:
    """A registry that was emptied gives ids to other schemas, and readers would decode wrong values."""
    clock = Clock()
    registered, plans = subjects(server, clock), Plans()

    def encode() -> bytes:
        ((_, value, _),) = AvroRecords(registered, "copy.orders", plans).encode(change(ROW))
        return value or b""

    before = encode()
    assert (encode(), len(server.asked)) == (before, 2)
    clock.now += avro.IDS_SECONDS
    assert (encode(), encode(), len(server.asked)) == (before, before, 4)
    server.answer = emptied = Registering(first_id=700)
    assert encode() == before
    clock.now += avro.IDS_SECONDS
    for _ in range(2):
        with pytest.raises(UntakenSchemaError, match=r"copy\.orders-key, and records .* id 1 .*restored or replaced"):
            encode()
    assert len(server.asked) == 5
    assert list(emptied.subjects) == ["copy.orders-key"]
    server.answer = registry
    clock.now += avro.REFUSED_SECONDS
    assert encode() == before


@pytest.mark.parametrize("answer", [(503, ""), (403, ""), (422, '{"error_code": 42205, "message": "read-only"}')])
def test_an_id_stays_in_use_while_the_registry_does_not_give_one(
    server: RegistryServer, registry: Registering, answer: tuple[int, str]
) -> None:
    clock = Clock()
    registered, plans = subjects(server, clock), Plans()

    def encode() -> None:
        AvroRecords(registered, "copy.orders", plans).encode(change(None))

    encode()
    server.answer = answer
    clock.now += avro.IDS_SECONDS
    encode()
    encode()
    assert len(server.asked) == 2
    clock.now += avro.AGAIN_SECONDS
    encode()
    assert len(server.asked) == 3


def test_a_registry_that_does_not_answer_does_not_hold_up_tables_whose_schemas_are_known(
    server: RegistryServer, registry: Registering, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    registered, plans = subjects(server, clock), Plans()
    topics = [f"copy.t{number}" for number in range(20)]
    for topic in topics:
        AvroRecords(registered, topic, plans).encode(change(ROW))
    monkeypatch.setattr(schema_registry, "ANSWER_SECONDS_MAX", 0.1)
    asked, over = len(server.asked), threading.Event()
    server.answer = lambda _: over.wait(30)
    try:
        clock.now += avro.IDS_SECONDS
        for _ in range(2):
            for topic in topics:
                AvroRecords(registered, topic, plans).encode(change(ROW))
            with pytest.raises(RegistryUnavailableError, match="timed out"):
                AvroRecords(registered, "copy.new", plans).encode(change(ROW))
            clock.now += schema_registry.PAUSE_SECONDS
    finally:
        over.set()
    assert len(server.asked) == asked + 1


def test_threads_that_need_one_schema_ask_for_it_once(server: RegistryServer, registry: Registering) -> None:
    registered, found = subjects(server), list[int]()
    threads = [
        threading.Thread(target=lambda: found.append(registered.id_of("copy.orders-key", '"string"').id))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (found, len(server.asked)) == ([1] * 8, 1)


def test_a_registry_that_is_down_leaves_the_sinks_session_as_it_is() -> None:
    away = failure_of(RegistryUnavailableError("x"), "orders", alters_tables=False)
    assert (away.code, away.retryable, away.spoils_session) == ("sink_unavailable", True, False)
    assert failure_of(SinkUnavailableError("x"), "orders", alters_tables=False).spoils_session


def as_key(meaning: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"field": name, **type_} for name, type_ in meaning.items()]}


def test_a_row_its_delete_and_its_tombstone_have_the_same_key(server: RegistryServer, registry: Registering) -> None:
    """By Debezium's own schemas: the key's has the key's columns in its order, and never an optional one."""
    id_ = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
           "parameters": {"scale": "0", "connect.decimal.precision": "12"}}  # fmt: skip
    row_schema = as_key({"name": {"type": "string", "optional": True}, "part": {"type": "int16"}, "id": id_})
    fields = [
        *({"field": side, "optional": True, **row_schema} for side in ("before", "after")),
        {"field": "op", "type": "string"},
    ]
    key = msgspec.json.encode(
        {"schema": as_key({"part": {"type": "int16"}, "id": id_}), "payload": {"part": 3, "id": "BQ=="}}
    )
    row = {"name": "ann", "part": 3, "id": "BQ=="}

    def value(op: str, before: object, after: object) -> bytes:
        schema = {"type": "struct", "name": "shop.public.orders.Envelope", "fields": fields}
        return msgspec.json.encode({"schema": schema, "payload": {"op": op, "before": before, "after": after}})

    values = [value("c", None, row), value("d", row, None)]
    changes = debezium_json.DebeziumJsonDecoder().decode_batch([key] * 2, values, [0] * 2, [0, 1], [0] * 2)
    changes += debezium_json.DebeziumJsonDecoder().decode_batch([key], [None], [0], [7], [0])
    columns = ColumnOptions.model_validate({"rename": {"id": "number"}, "set": {"n": "part * 2"}})
    encoder = records(server)
    keys = [encoder.encode(each)[0][0] for each in Shaping(columns, {}).shaped(changes)]
    assert len(keys) == 3
    assert keys[0] == keys[1] == keys[2]
    assert registry.read(keys[0] or b"") == {"part": 3, "number": 5}


MEANING_OF_ROWS = {"id": "int64", "value": "string"}


def test_a_schema_that_a_subject_would_not_take_is_known_before(server: RegistryServer, registry: Registering) -> None:
    asked = subjects(server)
    assert list(asked.schema_warnings("copy.orders", MEANING_OF_ROWS, ("id",))) == []
    assert registry.compared == ["copy.orders-key", "copy.orders-value"]
    assert registry.subjects == {}, "nothing is registered"
    registry.subjects |= {"copy.orders-key": [1], "copy.orders-value": [2]}
    assert list(asked.schema_warnings("copy.orders", MEANING_OF_ROWS, ("id",))) == []
    registry.refused["copy.orders-key"] = 409, "reader field 'id' has type long"
    registry.refused["copy.orders-value"] = 409, "reader type STRING"
    of_key, of_value = asked.schema_warnings("copy.orders", MEANING_OF_ROWS, ("id",))
    assert "would reject the schema of the newest event, subject copy.orders-key: reader field 'id'" in of_key
    assert "write to a new topic" in of_key
    assert "subject copy.orders-value: reader type STRING. Undo the change at the source" in of_value


@pytest.mark.parametrize(("status", "asked"), [(403, 2), (500, 1), (405, 1), (401, 1)])
def test_a_registry_that_does_not_compare_is_a_warning(
    server: RegistryServer, registry: Registering, status: int, asked: int
) -> None:
    registry.subjects |= {"copy.orders-key": [1], "copy.orders-value": [2]}
    registry.refused |= dict.fromkeys(registry.subjects, (status, "not here"))
    found = list(subjects(server).schema_warnings("copy.orders", MEANING_OF_ROWS, ("id",)))
    assert len(found) == len(registry.compared) == asked
    assert all("whether subject copy.orders-" in text and str(status) in text for text in found)
