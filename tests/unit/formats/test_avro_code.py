"""The compiled readers against fastavro: any schema, any value, any damage."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.formats.avro_code import READ_ERRORS, compile_reader
from headgate.formats.avro_schema import Record, parse_avro
from headgate.formats.change import ChangeError

INT, LONG = 2**31, 2**63
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-INT, INT - 1),
    "long": st.integers(-LONG, LONG - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=200),
    "string": st.text(max_size=200),
}


class Names:
    """Avro wants every record, enum and fixed to have a name of its own."""

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> str:
        self.count += 1
        return f"n{self.count}"


Drawn = tuple[Any, st.SearchStrategy[Any]]


@st.composite
def types(draw: st.DrawFn, names: Names, depth: int) -> Drawn:  # noqa: PLR0911 - one case per type
    """A schema, and values of it."""
    kinds = [*SCALARS, "enum", "fixed"] + (["union", "array", "map", "record"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "enum":
            symbols = ["a", "b", "c"][: draw(st.integers(1, 3))]
            return {"type": "enum", "name": names.next(), "symbols": symbols}, st.sampled_from(symbols)
        case "fixed":
            size = draw(st.integers(0, 20))
            return {"type": "fixed", "name": names.next(), "size": size}, st.binary(min_size=size, max_size=size)
        case "union":
            schema, values = draw(types(names, 0).filter(lambda drawn: drawn[0] != "null"))
            branches = draw(st.permutations(["null", schema]))
            return list(branches), st.none() | values
        case "array":
            # (Items of no bytes at all are refused; optional ones have one at least.)
            schema, values = draw(types(names, depth - 1).filter(lambda drawn: drawn[0] != "null"))
            items = schema if isinstance(schema, list) else ["null", schema]
            return {"type": "array", "items": items}, st.lists(st.none() | values, max_size=4)
        case "map":
            schema, values = draw(types(names, depth - 1))
            return {"type": "map", "values": schema}, st.dictionaries(st.text(max_size=5), values, max_size=4)
        case "record":
            return draw(records(names, depth - 1))
        case _:
            return kind, SCALARS[kind]


@st.composite
def records(draw: st.DrawFn, names: Names, depth: int) -> Drawn:
    drawn = draw(st.lists(types(names, depth), max_size=6))
    fields = [{"name": f"f{number}", "type": schema} for number, (schema, _) in enumerate(drawn)]
    values = st.fixed_dictionaries({f"f{number}": each for number, (_, each) in enumerate(drawn)})
    return {"type": "record", "name": names.next(), "fields": fields}, values


@st.composite
def written(draw: st.DrawFn) -> tuple[Any, Any, bytes]:
    """A record's schema, a value of it, and its bytes."""
    schema, values = draw(records(Names(), 3))
    value = draw(values)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return schema, fastavro.schemaless_reader(io.BytesIO(out.getvalue()), schema, None), out.getvalue()


def record(schema: Any) -> Record:
    parsed = parse_avro(json.dumps(schema))
    assert isinstance(parsed, Record)
    return parsed


@settings(max_examples=150, deadline=None)
@given(written(), st.data())
def test_reads_what_fastavro_reads_whatever_is_wanted_of_it(case: tuple[Any, Any, bytes], data: st.DataObject) -> None:
    schema, value, raw = case
    root = record(schema)
    assert compile_reader(root, [()])(raw, 0) == (value,)
    wanted = data.draw(st.lists(st.sampled_from(sorted(value)), unique=True)) if value else []
    frame = b"\x00\x00\x00\x00\x07"
    read = compile_reader(root, [(name,) for name in wanted])
    assert read(frame + raw, len(frame)) == tuple(value[name] for name in wanted)


@settings(max_examples=80, deadline=None)
@given(written())
def test_a_record_that_ends_early_or_late_is_never_read(case: tuple[Any, Any, bytes]) -> None:
    schema, _, raw = case
    for wanted in ([()], []):
        read = compile_reader(record(schema), wanted)
        for end in range(len(raw)):
            with pytest.raises(READ_ERRORS):
                read(raw[:end], 0)
        with pytest.raises(READ_ERRORS):
            read(raw + b"\x00", 0)


def test_a_value_of_no_bytes_does_not_hide_that_the_one_before_it_ends_early() -> None:
    schema = {"type": "record", "name": "r", "fields": [
        {"name": "text", "type": "string"},
        {"name": "nothing", "type": {"type": "fixed", "name": "f", "size": 0}},
    ]}  # fmt: skip
    for wanted in ([()], []):
        read = compile_reader(record(schema), wanted)
        read(b"\x020", 0)
        with pytest.raises(READ_ERRORS):
            read(b"\x02", 0)


@settings(max_examples=80, deadline=None)
@given(written(), st.data())
def test_damaged_bytes_are_refused_or_read_as_fastavro_reads_them(
    case: tuple[Any, Any, bytes], data: st.DataObject
) -> None:
    schema, _, raw = case
    if not raw:
        return
    place = data.draw(st.integers(0, len(raw) - 1))
    damaged = raw[:place] + data.draw(st.binary(min_size=1, max_size=3)) + raw[place + 1 :]
    try:
        (value,) = compile_reader(record(schema), [()])(damaged, 0)
    except READ_ERRORS:
        return
    source = io.BytesIO(damaged)
    # (As text, because a NaN is not equal to itself.)
    assert repr(value) == repr(fastavro.schemaless_reader(source, schema, None))
    assert source.read() == b""


def one_field(kind: Any) -> Record:
    return record({"type": "record", "name": "r", "fields": [{"name": "f", "type": kind}]})


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        pytest.param("string", b"\x01", id="a length of -1"),
        pytest.param("bytes", b"\xff" * 9 + b"\x01", id="a length of -2^63"),
        pytest.param("long", b"\xff" * 10 + b"\x01", id="a number of 71 bits"),
        pytest.param("long", b"\x80" * 9 + b"\x02", id="a number of 65 bits"),
        pytest.param("long", b"\xff" * 1_000_000, id="a number of a megabyte"),
        pytest.param("boolean", b"\x02", id="2 as a boolean"),
        pytest.param("string", b"\x02\xff", id="no UTF-8"),
        pytest.param(["null", "int"], b"\x04\x02", id="a third branch of two"),
        pytest.param(["null", "int"], b"\x01\x02", id="branch -1"),
        pytest.param({"type": "enum", "name": "e", "symbols": ["a"]}, b"\x02", id="a second symbol of one"),
        pytest.param({"type": "enum", "name": "e", "symbols": ["a"]}, b"\x01", id="symbol -1"),
        pytest.param({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f\x00", id="2^31 items in a byte"),
        pytest.param({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00", id="2^31 times nothing"),
        pytest.param({"type": "array", "items": "int"}, b"\x01\x01\x02\x00", id="a block of -1 bytes"),
        pytest.param("float", b"\x00\x00\x00", id="three quarters of a float"),
    ],
)
def test_what_cannot_be_is_refused_at_once(kind: Any, raw: bytes) -> None:
    for wanted in ([()], [("f",)]):
        with pytest.raises(READ_ERRORS):
            compile_reader(one_field(kind), wanted)(raw, 0)


def test_array_blocks_may_say_their_size() -> None:
    raw = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"  # -2 items in 2 bytes: 1, 2; then one: 3
    assert compile_reader(one_field({"type": "array", "items": "int"}), [("f",)])(raw, 0) == ([1, 2, 3],)


def test_a_field_within_a_record_that_is_null_is_none() -> None:
    inner = {"type": "record", "name": "s", "fields": [{"name": "x", "type": "int"}]}
    read = compile_reader(one_field(["null", inner]), [("f", "x")])
    assert read(b"\x00", 0) == (None,)
    assert read(b"\x02\x0a", 0) == (5,)


def test_no_text_of_a_schema_gets_into_the_code() -> None:
    # Avro's rules for names would forbid this one; the compiler does not rely on anybody having checked them.
    hostile = '"]); raise SystemExit(1) #'
    root = Record("r", {hostile: one_field("int").fields["f"]})
    assert compile_reader(root, [()])(b"\x02", 0) == ({hostile: 1},)


@pytest.mark.parametrize(
    "text",
    [
        "not JSON",
        "[]]",
        '"no.such.type"',
        '{"type": "record", "fields": []}',
        '{"type": "record", "name": "r", "fields": [{"name": "f", "type": "unheard-of"}]}',
        '{"type": "record", "name": "r", "fields": [{"name": "next", "type": ["null", "r"]}]}',
        '{"type": "bytes", "connect.name": "io.debezium.data.Bits", "connect.parameters": {"length": "x"}}',
    ],
)
def test_what_is_no_schema_of_a_table_is_refused(text: str) -> None:
    with pytest.raises(ChangeError, match="schema"):
        parse_avro(text)


def test_nesting_has_an_end() -> None:
    kind: Any = "int"
    for _ in range(8):
        kind = {"type": "array", "items": kind}
    assert compile_reader(one_field(kind), [("f",)])(b"\x00", 0) == ([],)
    for _ in range(20):
        kind = {"type": "array", "items": kind}
    with pytest.raises(ChangeError, match="nested"):
        one_field(kind)
