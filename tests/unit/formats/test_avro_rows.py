"""Rows as Avro: what is written is what fastavro and Headgate's own reader find, for every type and at its ends."""

import io
import math
from base64 import b64encode
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.formats import avro_forms
from headgate.formats.avro_code import compile_reader
from headgate.formats.avro_rows import RowSchema, forms_of, row_schema
from headgate.formats.avro_schema import Record, meaning_of, parse_avro
from headgate.formats.change import COMPUTED, ChangeError, Row
from headgate.formats.meaning import DECIMAL
from support.avro_values import EXACT, INT64, VARIABLE, unscaled

HEAD = b"\x00\x00\x00\x00\x07"


def text(data: bytes) -> str:
    return b64encode(data).decode()


def schema_of(meanings: dict[str, str], key: tuple[str, ...] = ("id",), topic: str = "copy.shop.orders") -> RowSchema:
    return row_schema(topic, "Value", forms_of(meanings), frozenset(key))


def raw(schema: Any) -> Any:
    """Without logical types, so that fastavro gives what is there."""
    if isinstance(schema, dict):
        return {name: raw(value) for name, value in schema.items() if name != "logicalType"}
    return [raw(each) for each in schema] if isinstance(schema, list) else schema


def read(schema: RowSchema, data: bytes, *, logical: bool = False) -> Row:
    """The row by fastavro, once Headgate's own reader has found the same."""
    assert data[:5] == HEAD
    parsed = msgspec.json.decode(schema.text)
    source = io.BytesIO(data[5:])
    plain: Any = fastavro.schemaless_reader(source, fastavro.parse_schema(raw(parsed)), None)
    assert source.read() == b""
    node = parse_avro(schema.text)
    assert isinstance(node, Record)
    (own,) = compile_reader(node, [()])(data, 5)
    assert repr(own) == repr(plain)
    if logical:
        found: Any = fastavro.schemaless_reader(io.BytesIO(data[5:]), fastavro.parse_schema(parsed), None)
        return dict(found)
    return dict(plain)


@pytest.mark.parametrize(("meaning", "value"), EXACT, ids=lambda part: str(part)[:40])
def test_a_value_is_read_back_as_it_is_and_its_type_means_the_same(meaning: str, value: Any) -> None:
    schema = schema_of({"id": "int64", "v": meaning, "w": meaning})
    assert read(schema, schema.write(HEAD, {"id": 1, "v": value, "w": None})) == {"id": 1, "v": value, "w": None}
    as_key = schema_of({"v": meaning}, ("v",))
    assert read(as_key, as_key.write(HEAD, {"v": value})) == {"v": value}
    node = parse_avro(schema.text)
    assert isinstance(node, Record)
    assert {name: meaning_of(field) for name, field in node.fields.items()} == {
        "id": "int64",
        "v": meaning,
        "w": meaning,
    }


def test_nan_is_read_back() -> None:
    schema = schema_of({"id": "int64", "d": "double", "f": "float"})
    found = read(schema, schema.write(HEAD, {"id": 1, "d": "NaN", "f": math.nan}))
    assert math.isnan(found["d"]) and math.isnan(found["f"])  # type: ignore[arg-type]  # noqa: PT018


AS_JSON: list[tuple[str, Any, Any]] = [
    ("bytes", text(b"\x00\xff"), b"\x00\xff"),
    ("io.debezium.data.Bits(10)", text(b"\x05\x02"), b"\x05\x02"),
    (f"{DECIMAL}(2)", text(b"\x04\xe2"), b"\x04\xe2"),
    (f"{DECIMAL}(2)", Decimal("12.50"), unscaled(1250)),
    (f"{DECIMAL}(2)", Decimal("1E+3"), unscaled(100_000)),
    (f"{DECIMAL}(2)", Decimal("0.000"), b"\x00"),
    (f"{DECIMAL}(2)", Decimal("0E-9"), b"\x00"),
    (f"{DECIMAL}(2,12)", -7, unscaled(-700)),
    (f"{DECIMAL}(0)", 18446744073709551615, unscaled(18446744073709551615)),
    (f"{DECIMAL}(-2,5)", Decimal(9999900), unscaled(99999)),
    (f"{DECIMAL}(5,3)", Decimal("0.00123"), unscaled(123)),
    ("double", Decimal("0.1"), 0.1),
    ("double", Decimal("1E+10"), 1e10),
    ("double", "-Infinity", -math.inf),
    ("double", 3, 3.0),
    ("float", Decimal("3.4028235E+38"), 3.4028234663852886e38),
    ("float", 2**24, 16777216.0),
    ("float", Decimal("0.1"), 0.10000000149011612),
    ("float", Decimal("16777217.0"), 16777216.0),
    ("double", Decimal("9007199254740993.5"), 9007199254740994.0),
    ("double", Decimal("-0.0"), 0.0),
    (VARIABLE, {"scale": 2, "value": text(b"\x04\xe2")}, {"scale": 2, "value": b"\x04\xe2"}),
    ("io.debezium.data.geometry.Point", {"x": Decimal("1.5"), "y": Decimal("-2.0"), "wkb": text(b"\x01"), "srid": 7},
     {"x": 1.5, "y": -2.0, "wkb": b"\x01", "srid": 7}),
    ("io.debezium.data.geometry.Point", {"x": Decimal("1.5"), "y": Decimal(2)},
     {"x": 1.5, "y": 2.0, "wkb": None, "srid": None}),
    ("io.debezium.data.SparseVector", {"dimensions": 5, "vector": [[1, Decimal("0.5")]]},
     {"dimensions": 5, "vector": [{"key": 1, "value": 0.5}]}),
    ("array(bytes)", [text(b"\x01"), None], [b"\x01", None]),
]  # fmt: skip
"""Meaning, a value as an event in JSON has it, and what is read back."""


@pytest.mark.parametrize(("meaning", "sent", "found"), AS_JSON, ids=lambda part: str(part)[:40])
def test_values_of_json_become_those_of_avro(meaning: str, sent: Any, found: Any) -> None:
    schema = schema_of({"id": "int64", "v": meaning})
    assert read(schema, schema.write(HEAD, {"id": 1, "v": sent}))["v"] == found


@pytest.mark.parametrize(
    ("meaning", "value"),
    [
        (f"{DECIMAL}(2,12)", "-9999999999.99"),
        (f"{DECIMAL}(30,65)", f"{'9' * 35}.{'9' * 30}"),
        (f"{DECIMAL}(20)", f"-{'9' * 44}.{'9' * 20}"),
        (f"{DECIMAL}(0,1000)", "9" * 1000),
    ],
)
def test_libraries_that_know_decimals_read_every_digit(meaning: str, value: str) -> None:
    """With another precision than the column's they would round it."""
    schema = schema_of({"id": "int64", "v": meaning})
    assert read(schema, schema.write(HEAD, {"id": 1, "v": Decimal(value)}), logical=True)["v"] == Decimal(value)


def field(meaning: str) -> Any:
    return msgspec.json.decode(schema_of({"id": "int64", "v": meaning}).text)["fields"][1]


def test_types_are_those_that_confluents_converter_writes() -> None:
    """AvroData.java refuses a logical type beside another type's name ("Mismatched names")."""
    assert field("int16") == {"name": "v", "type": ["null", {"type": "int", "connect.type": "int16"}], "default": None}
    assert field(f"{DECIMAL}(2,12)")["type"][1] == {
        "type": "bytes", "scale": 2, "precision": 12, "logicalType": "decimal", "connect.version": 1,
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "12"}, "connect.name": DECIMAL,
    }  # fmt: skip
    assert field(f"{DECIMAL}(2)")["type"][1]["precision"] == 64
    assert field(f"{DECIMAL}(-2,5)")["type"][1] == {
        "type": "bytes", "connect.version": 1, "connect.name": DECIMAL,
        "connect.parameters": {"scale": "-2", "connect.decimal.precision": "5"},
    }  # fmt: skip
    assert field("org.apache.kafka.connect.data.Date")["type"][1]["logicalType"] == "date"
    assert field("io.debezium.time.Date")["type"][1] == {
        "type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"
    }  # fmt: skip
    assert field("io.debezium.data.Bits(10)")["type"][1]["connect.parameters"] == {"length": "10"}


def test_columns_of_the_key_are_never_null_and_others_have_null_as_their_default() -> None:
    schema = msgspec.json.decode(schema_of({"id": "int64", "name": "string"}).text)
    assert schema == {
        "type": "record", "name": "Value", "namespace": "copy.shop.orders",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "namespace"), [("my-topic.2a.ä", "my_topic._2a._"), ("..", "headgate"), ("a..b", "a.b"), ("__x", "__x")]
)
def test_a_topics_name_becomes_one_of_avro(topic: str, namespace: str) -> None:
    schema = schema_of({"id": "int64"}, topic=topic)
    assert msgspec.json.decode(schema.text)["namespace"] == namespace
    fastavro.parse_schema(msgspec.json.decode(schema.text))


@pytest.mark.parametrize(
    ("meaning", "value", "why"),
    [
        ("int8", 128, "between -128 and 127"),
        ("int64", 2**63, "between"),
        ("int32", True, "type bool"),
        ("int32", "1", "type str"),
        ("boolean", 1, "type int"),
        ("string", b"x", "type bytes"),
        ("string", "\ud800", "surrogate"),
        ("bytes", "no base64!", "not base64"),
        ("bytes", 7, "type int"),
        ("float", Decimal("1e39"), "larger than a float"),
        ("double", Decimal("1e309"), "larger than a double"),
        ("double", 2**53 + 1, "more digits than a double"),
        ("double", 10**400, "larger than a double"),
        ("float", 2**24 + 1, "more digits than a float"),
        ("double", Decimal("1e-20000"), "smaller than a double"),
        ("float", Decimal("-1e-60"), "smaller than a float"),
        ("double", "wide", "type str"),
        (f"{DECIMAL}(2)", Decimal("1.005"), "behind the point"),
        (f"{DECIMAL}(2)", Decimal("NaN"), "NaN"),
        (f"{DECIMAL}(2)", Decimal("1e999999"), "than any database holds"),
        (f"{DECIMAL}(2)", Decimal("1e-999999"), "than any database holds"),
        (f"{DECIMAL}(2)", "", "no bytes"),
        (f"{DECIMAL}(2,3)", Decimal("10.00"), "3 digits"),
        (f"{DECIMAL}(2,3)", unscaled(-1000), "3 digits"),
        (f"{DECIMAL}(2)", True, "type bool"),
        ("io.debezium.data.VariableScaleDecimal", {"scale": 2**31, "value": "AQ=="}, "between"),
        ("io.debezium.data.VariableScaleDecimal", {"scale": 1, "value": ""}, "no bytes"),
        ("io.debezium.data.VariableScaleDecimal", "AQ==", "type str"),
        ("io.debezium.data.geometry.Point", {"x": 1.5, "y": 2.0, "z": 1.0}, "other fields"),
        ("io.debezium.data.geometry.Geometry", {"srid": 1}, "type NoneType"),
        ("io.debezium.data.SparseVector", {"dimensions": 5, "vector": [[1]]}, "a pair"),
        ("array(int8)", [1, 200], "between -128 and 127"),
        ("array(int8)", {"a": 1}, "type dict"),
        ("map", {"a": 1}, "type int"),
        ("map", [], "type list"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_its_column_and_never_written(meaning: str, value: Any, why: str) -> None:
    schema = schema_of({"id": "int64", "v": meaning})
    with pytest.raises(ChangeError, match=rf"^column v: .*{why}"):
        schema.write(HEAD, {"id": 1, "v": value})


def test_a_row_that_is_not_of_its_schema_is_refused() -> None:
    schema = schema_of({"id": "int64", "v": "string"})
    for row, why in (
        ({"id": 1}, "does not have column v"),
        ({"id": 1, "v": "x", "more": 1}, "has column more"),
        ({"id": None, "v": "x"}, "column id is NULL"),
    ):
        with pytest.raises(ChangeError, match=why):
            schema.write(HEAD, row)


@pytest.mark.parametrize("column", ["naïve", "2nd", "my col", "a-b", "a.b", "", "x\n"])
def test_a_name_that_avro_does_not_allow_is_refused_with_another_one(column: str) -> None:
    meanings = {"id": "int64", column: "string"} if column else {"id": "int64", "-": "string"}
    with pytest.raises(ChangeError, match=r"a name that Avro does not allow.*columns\.rename: \{"):
        forms_of(meanings)


def test_another_name_is_one_that_no_column_has() -> None:
    with pytest.raises(ChangeError, match=r'\{"a-b": a_b__\}'):
        forms_of({"id": "int64", "a-b": "string", "a_b": "string", COMPUTED: '{"a_b_":"text"}'}, ("a-b",))


GOLDEN = Path(__file__).with_name("avro_schemas.json")
PARAMETRISED = [
    f"{DECIMAL}(0)", f"{DECIMAL}(2)", f"{DECIMAL}(2,12)", f"{DECIMAL}(-2,5)", f"{DECIMAL}(5,3)",
    "io.debezium.data.Bits(10)", "array(int32)", "array(string)", f"array({DECIMAL}(2,12))",
    "array(array(io.debezium.data.geometry.Geometry))",
]  # fmt: skip


def schema_texts() -> dict[str, str]:
    """The text of the schema of a key of each type, which decides its id, and of values."""
    told = [*avro_forms._OF_CONNECT, *avro_forms._OF_NAMES, *PARAMETRISED]
    texts = {meaning: schema_of({"v": meaning}, ("v",), "t").text for meaning in told}
    texts |= {
        f"computed {kind}": schema_of({"id": "int64", COMPUTED: f'{{"c":"{kind}"}}'}, (), "t").text
        for kind in avro_forms._OF_KINDS
    }
    pair = {"a": "io.debezium.data.geometry.Geometry", "b": "io.debezium.data.geometry.Geometry", "id": "int64"}
    return texts | {"a key of two columns": schema_of({"id": "int64", "part": "int16"}, ("id", "part"), "my-t.2").text,
                    "one type twice": schema_of(pair, (), "t").text}  # fmt: skip


def test_the_text_of_a_schema_is_the_same_in_every_release() -> None:
    """Another text has another id, and the id is part of the key: every row would get a second key in its topic.

    Add lines for new types. A line that exists must not change, not even in the order of its parts.
    """
    assert schema_texts() == msgspec.json.decode(GOLDEN.read_bytes())


@pytest.mark.parametrize("meaning", ["struct", "com.example.Own", "array(struct)", f"{'array(' * 20}int8{')' * 20}"])
def test_a_type_that_is_not_known_is_refused(meaning: str) -> None:
    with pytest.raises(ChangeError, match=r"^column v: .*columns\.exclude"):
        forms_of({"id": "int64", "v": meaning})


@pytest.mark.parametrize("told", [None, {}, {"": "postgresql"}])
def test_an_event_without_schema_is_refused(told: dict[str, str] | None) -> None:
    with pytest.raises(ChangeError, match=r"schemas\.enable=true"):
        forms_of(told)


@pytest.mark.parametrize(
    ("kind", "sent", "found"),
    [
        ("text", "x", "x"),
        ("boolean", True, True),
        ("integer", INT64[0], INT64[0]),
        ("numeric", Decimal("-12.340"), {"scale": 3, "value": unscaled(-12340)}),
        ("numeric", Decimal("1E+2"), {"scale": -2, "value": b"\x01"}),
        ("date", "2026-01-02", 20455),
        ("timestamp", "2026-01-02 03:04:05.678901", 1767323045678901),
        ("timestamptz", "2026-01-02 03:04:05.6+00", "2026-01-02T03:04:05.6Z"),
    ],
)
def test_computed_columns_have_types_of_their_own(kind: str, sent: Any, found: Any) -> None:
    schema = schema_of({"id": "int64", COMPUTED: f'{{"c":"{kind}"}}'})
    assert read(schema, schema.write(HEAD, {"id": 1, "c": sent})) == {"id": 1, "c": found}


def test_no_text_of_a_schema_gets_into_the_code() -> None:
    """Names of Avro are harmless, but nothing should rely on that."""
    schema = schema_of({"id": "int64", "import_os": "string"})
    code = schema.write._write.__code__  # type: ignore[attr-defined]
    assert code.co_names + code.co_varnames, "it is the code that was made"
    assert "import_os" not in code.co_names + code.co_varnames
    assert not any("import_os" in constant for constant in code.co_consts if isinstance(constant, str))


FIELDS = st.sampled_from(["x", "y", "wkb", "srid", "scale", "value"])
MEANINGS = st.sampled_from(sorted({meaning for meaning, _ in EXACT}))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=6,
)


@given(MEANINGS, VALUES)
def test_any_value_is_refused_or_written_so_that_it_can_be_read(meaning: str, value: Any) -> None:
    schema = schema_of({"id": "int64", "v": meaning})
    try:
        data = schema.write(HEAD, {"id": 1, "v": value})
    except ChangeError:
        return
    read(schema, data)
