"""Whatever an event says, also in its schema, is that event's fault: a typed error, and no text without bound.

Each event is decoded and then written for every kind of sink column, so that what a schema says meets the code that
trusts it. `tests/fuzz/decoders.py` runs the same checks guided by coverage.
"""

import json
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings

from headgate.formats import canal_json, debezium_avro, debezium_json
from headgate.formats.avro_schema import parse_avro
from headgate.formats.change import ABSENT, Change, ChangeError
from headgate.formats.debezium_schema import SCHEMA_BYTES_MAX, KnownSchemas, envelope_semantics
from headgate.formats.decoding import Decoder, UndecodableError
from headgate.formats.meaning import COLUMNS_MAX
from headgate.formats.mysql_types import NotAValueError, reader_of
from headgate.formats.reducing import reduce_changes
from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn
from headgate.sinks.relational.mysql.values import column_text as mysql_text
from headgate.sinks.relational.postgresql.values import column_text as postgresql_text
from headgate.sinks.relational.text import ColumnText
from headgate.sinks.relational.times import NotTextError
from support.event_schemas import BITS, DECIMAL, SINK_TYPES, avro_events, canal_messages, debezium_events

MYSQL_TYPES = ("decimal(10,2)", "bigint", "double", "varchar(20)", "varbinary(9)", "json", "bit(8)", "date", "time(3)")
MYSQL_TYPES += ("datetime(6)", "timestamp", "year", "enum('a')", "set('a','b')", "point", "char(3)")

CHARACTERS_PER_BYTE_MAX = 8
"""Of a value's text, for each byte of its event: a letter of base64 is six bits."""

LONGER_MAX = 8_192
"""Characters that a value's text may have beyond that: zeros that a schema asks for, words of an error."""

Event = tuple[bytes, bytes]


def columns_of_all_kinds(meaning: str | None, connector: str | None, binary: str | None) -> list[ColumnText]:
    mysql = [MysqlSinkColumn(declared, declared.split("(", 1)[0], None, None) for declared in MYSQL_TYPES]
    return [
        *(postgresql_text(kind, meaning, connector, binary) for kind in SINK_TYPES),
        *(mysql_text(column, meaning, connector, binary) for column in mysql),
    ]


def write(changes: Sequence[Change], size: int) -> None:
    """Write every value for columns of all kinds; it is written, refused, or the test fails."""
    for change in changes:
        told = change.semantics or {}
        for name, value in [*change.key.items(), *(change.row or {}).items()]:
            if value is ABSENT:
                continue
            for column in columns_of_all_kinds(told.get(name), told.get(""), told.get("\x00binary")):
                assert len(written(column, value)) <= CHARACTERS_PER_BYTE_MAX * size + LONGER_MAX
    with suppress(ChangeError):
        reduce_changes([change for change in changes if "id" in change.key], ["id"])


def written(column: ColumnText, value: object) -> str:
    """The value's text, or why it has none."""
    try:
        return column.field(value)
    except NotTextError as error:
        return str(error)


def check(decoder: Decoder, event: Event) -> None:
    """Decode the event alone and twice, as a batch does it, and write what comes out."""
    key, value = event
    for count in (1, 2):
        try:
            changes = decoder.decode_batch([key] * count, [value] * count, [0] * count, range(count), [0] * count)
        except UndecodableError as error:
            changes = error.decoded
        write(changes[:1], len(key) + len(value))


BOUNDED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@BOUNDED
@given(debezium_events())
def test_a_debezium_event_with_any_schema_is_read_or_refused(event: Event) -> None:
    check(debezium_json.DebeziumJsonDecoder(), event)


@BOUNDED
@given(canal_messages())
def test_a_canal_message_with_any_types_is_read_or_refused(event: Event) -> None:
    check(canal_json.CanalDecoder(tidb=False), event)


@BOUNDED
@given(avro_events())
def test_an_avro_event_with_any_schema_is_read_or_refused(drawn: tuple[str, str, bytes, bytes]) -> None:
    key_schema, value_schema, key, value = drawn
    schemas = {1: value_schema, 2: key_schema}
    check(debezium_avro.DebeziumAvroDecoder(schemas.__getitem__), (key, value))


# --- what was found, one by one ---


def event_with(field: dict[str, object], value: object) -> Event:
    fields = [{"field": "id", "type": "int32"}, {"field": "v", "type": "bytes", **field}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    payload = {"op": "c", "after": {"id": 1, "v": value}, "source": {"ts_ms": 1}}
    return b'{"id":1}', json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "number", ["--5", "-", "", "²", "\uff15", "1_0", "+5", " 5", "9" * 5_000, "-" + "9" * 5_000, "1e3", None]
)
@pytest.mark.parametrize(("name", "parameter"), [(DECIMAL, "scale"), (BITS, "length")])
def test_a_parameter_that_is_no_number_is_the_events_fault(name: str, parameter: str, number: str | None) -> None:
    good = event_with({"name": name, "parameters": {parameter: "5"}}, "AQ==")
    bad = event_with({"name": name, "parameters": {parameter: number}}, "AQ==")
    events = [good, bad, good]
    with pytest.raises(UndecodableError, match=parameter) as refused:
        debezium_json.DebeziumJsonDecoder().decode_batch(
            [k for k, _ in events], [v for _, v in events], [0] * 3, range(3), [0] * 3
        )
    assert (refused.value.offset, len(refused.value.decoded)) == (1, 1)
    assert len(str(refused.value)) < 300
    with pytest.raises(ChangeError, match=parameter):
        parse_avro(json.dumps({"type": "bytes", "connect.name": name, "connect.parameters": {parameter: number}}))


@pytest.mark.parametrize(
    ("name", "parameter", "number"),
    [(DECIMAL, "scale", "16384"), (DECIMAL, "scale", "-16384"), (BITS, "length", "2147483648"), (BITS, "length", "-1")],
)
def test_a_parameter_beyond_what_databases_have_is_the_events_fault(name: str, parameter: str, number: str) -> None:
    with pytest.raises(ChangeError, match="must be an integer between"):
        debezium_json.DebeziumJsonDecoder().decode(
            *event_with({"name": name, "parameters": {parameter: number}}, "AQ=="), 0, 0, 0
        )


@pytest.mark.parametrize(("declared", "length"), [("text", 400_000_000), ("text", 2**31 - 1), ("jsonb", 400_000_000)])
def test_a_bit_string_is_not_filled_up_to_any_length(declared: str, length: int) -> None:
    change = debezium_json.DebeziumJsonDecoder().decode(
        *event_with({"name": BITS, "parameters": {"length": str(length)}}, "AQ=="), 0, 0, 0
    )
    assert change is not None
    assert change.semantics is not None
    assert change.row is not None
    assert len(written(postgresql_text(declared, change.semantics["v"]), change.row["v"])) < 300
    assert postgresql_text("bit varying", change.semantics["v"]).field(change.row["v"]) == "1"


def test_a_decimal_is_not_filled_up_to_any_scale() -> None:
    for scale in (16_383, -16_383):
        assert postgresql_text("text", f"{DECIMAL}({scale})").plain("AQ==") == f"1e{-scale}"
    assert postgresql_text("text", f"{DECIMAL}(1000)").plain("AQ==") == "0." + "0" * 999 + "1"


@pytest.mark.parametrize("name", [f"{DECIMAL}(--5)", f"{BITS}(9)", "array(int32", "x\x00", "", 7])
def test_a_name_cannot_pass_for_a_parameter(name: object) -> None:
    with pytest.raises(ChangeError):
        debezium_json.DebeziumJsonDecoder().decode(*event_with({"name": name}, "AQ=="), 0, 0, 0)
    with pytest.raises(ChangeError):
        debezium_json.DebeziumJsonDecoder().decode(*event_with({"type": name}, "AQ=="), 0, 0, 0)


@pytest.mark.parametrize("column", ["", "\x00binary", "c" * 257])
def test_a_column_cannot_pass_for_what_the_schema_says_of_all(column: str) -> None:
    after = {"field": "after", "type": "struct", "fields": [{"field": column, "type": "string"}]}
    with pytest.raises(ChangeError, match="not a valid name"):
        envelope_semantics({"type": "struct", "fields": [after]})


def test_a_schema_has_as_many_columns_as_a_table() -> None:
    def of(count: int) -> dict[str, object]:
        fields = [{"field": f"c{number}", "type": "int32"} for number in range(count)]
        return {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}

    assert len(envelope_semantics(of(COLUMNS_MAX))) == COLUMNS_MAX
    with pytest.raises(ChangeError, match="4097 columns"):
        envelope_semantics(of(COLUMNS_MAX + 1))


def test_known_schemas_have_a_bound_in_bytes() -> None:
    known = KnownSchemas(envelopes=False)
    for number in range(40):
        schema = {"type": "struct", "fields": [], "doc": f"{number}" + "x" * 1_000_000}
        data = json.dumps({"schema": schema, "payload": {"id": 1}}, separators=(",", ":")).encode()
        assert known.split(data) == (b'{"id": 1}'.replace(b" ", b""), {})
    kept = sum(map(len, known._known))
    assert 0 < kept <= SCHEMA_BYTES_MAX
    assert kept == known._known_bytes


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "array", "items": "null"}, id="array of null"),
        pytest.param({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, id="array of nothing"),
        pytest.param({"type": "array", "items": {"type": "record", "name": "R", "fields": []}}, id="empty records"),
        pytest.param({"type": "fixed", "name": "F", "size": 10**12}, id="huge fixed"),
        pytest.param({"type": "enum", "name": "E", "symbols": ["x" * 256]}, id="long symbol"),
        pytest.param({"type": "string", "doc": "x" * 2 * 1024 * 1024}, id="long text"),
    ],
)
def test_an_avro_schema_of_which_few_bytes_are_a_large_value_is_refused(schema: object) -> None:
    with pytest.raises(ChangeError):
        parse_avro(json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": schema}]}))


@pytest.mark.parametrize("levels", [40, 400, 100_000])
@pytest.mark.parametrize("wrapping", ["type", "list", "array"])
def test_an_avro_schema_nested_without_end_is_refused(levels: int, wrapping: str) -> None:
    before, after = {"type": ('{"type":', "}"), "list": ("[", "]"), "array": ('{"type":"array","items":', "}")}[
        wrapping
    ]
    with pytest.raises(ChangeError):
        parse_avro(before * levels + '"string"' + after * levels)


def test_labels_are_read_in_time_that_grows_with_their_length() -> None:
    for text in ("\\'" * 500_000, "'" * 500_001, "'a" * 300_000, "'a'," * 250_000 + "'"):
        with pytest.raises(NotAValueError):
            reader_of(f"enum({text})")  # backtracking would take hours, which the test's time-out ends
