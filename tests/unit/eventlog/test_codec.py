"""Bytes and facts: what is written is what is read, and any bytes at all give a verdict, never a crash."""

import enum
import json
import struct
import types
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.eventlog import schema_files
from headgate.eventlog.codec import Codec, CodecGarbage
from headgate.eventlog.log import NewerSchemaError
from headgate.eventlog.schema_files import SchemaFilesError, read_schemas, schema_directory, schemas
from headgate.records.base import Fact
from headgate.records.control import OwnerAnnounced, SessionEnded
from headgate.records.keys import FeedKey, OwnerKey, RequestKey
from headgate.records.registry import KEY_FORMS
from support import build
from support.codec import decode, encode
from support.eventlog_contract import ended, heartbeat

LONG = st.integers(-(2**63), 2**63 - 1)
LEVELS = st.integers(0, schemas().level)
FORMS = [form for forms in KEY_FORMS.values() for form in forms]
TOPICS = sorted(KEY_FORMS)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """A strategy for every type that a record's field has."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*(values_of(arg) for arg in args))
    if origin is dict:
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=3)
    if origin is tuple:
        return st.lists(values_of(args[0]), max_size=3).map(tuple)
    if issubclass(hint, msgspec.Struct):
        fields = {field.name: values_of(field.type) for field in struct_fields(hint)}
        # A level beyond what this codec reads ends the role, whatever else the record says (test_levels.py).
        return st.builds(hint, **{**fields, **({"level": LEVELS} if hint is OwnerAnnounced else {})})
    if issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    return {
        int: LONG,
        str: st.text(max_size=20),
        bytes: st.binary(max_size=20),
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
        type(None): st.none(),
    }[hint]


def struct_fields(record: type[msgspec.Struct]) -> list[Any]:
    hints = typing.get_type_hints(record)
    return [types.SimpleNamespace(name=name, type=hints[name]) for name in record.__struct_fields__]


def facts_of(form: type[msgspec.Struct]) -> st.SearchStrategy[Fact]:
    keys = st.builds(
        form, **{f.name: st.integers(0, 99) if f.type is int else st.text(max_size=9) for f in struct_fields(form)}
    )
    return st.builds(Fact, keys, st.one_of(values_of(form.record), st.none()))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("owner_rev", 2**63),
        ("owner_rev", -(2**63) - 1),
        ("owner_rev", "1"),
        ("owner_rev", 1.5),
        ("owner_rev", None),
        ("reason", b"x"),
        ("reason", 7),
    ],
)
def test_what_a_field_cannot_hold_is_not_written(field: str, value: Any) -> None:
    fact = ended("s1").fact
    assert isinstance(fact.value, SessionEnded)
    record = msgspec.structs.replace(fact.value, **{field: value})
    with pytest.raises((ValueError, TypeError)):
        encode(Fact(fact.key, record))


def test_an_unknown_word_is_not_written() -> None:
    fact = Fact(RequestKey("r1"), build.operation_requested(kind="sing", requested_by="me"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sing"):
        encode(fact)


@given(st.sampled_from(FORMS).flatmap(facts_of))
@example(ended("s1").fact)
def test_a_fact_comes_back_as_it_was(fact: Fact) -> None:
    key, value = encode(fact)
    # A name that is reserved in one form can make another form's key: names are checked where users give them.
    if form_read(fact) is not type(fact.key):
        return
    assert decode(fact.key.topic, key, value) == (fact.key, fact.value)


def form_read(fact: Fact) -> type:
    """The form that the key's text is read as."""
    text = fact.key.text().split("/")
    for form in KEY_FORMS[fact.key.topic]:
        first = len(form.prefix)
        fixed = (*text[:first], *text[first + 1 : first + 1 + len(form.infix)])
        if len(text) == len(fixed) + len(form.__struct_fields__) and fixed == (*form.prefix, *form.infix):
            return form
    raise AssertionError(text)


# --- struct and schema say the same -----------------------------------------------------------------------------


NAMED_ON_THE_WIRE = {"Assignment": "Role", "ReplicationState": "SetState"}
"""Classes that were renamed after their schema was released: what stands in a released file never changes."""


def shape_of_hint(hint: Any) -> Any:
    """A struct's type in the words of Avro."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return sorted((shape_of_hint(arg) for arg in args), key=str)
    if origin is dict:
        return {"map of": shape_of_hint(args[1])}
    if origin is tuple:
        return {"array of": shape_of_hint(args[0])}
    if issubclass(hint, msgspec.Struct):
        return {
            "record": NAMED_ON_THE_WIRE.get(hint.__name__, hint.__name__),
            "fields": [(f.name, shape_of_hint(f.type)) for f in struct_fields(hint)],
        }
    if issubclass(hint, enum.Enum):
        return {
            "enum": NAMED_ON_THE_WIRE.get(hint.__name__, hint.__name__),
            "symbols": [member.value for member in hint],
        }
    return {int: "long", str: "string", bytes: "bytes", bool: "boolean", float: "double", type(None): "null"}[hint]


def shape_of_schema(schema: Any, named: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return sorted((shape_of_schema(branch, named) for branch in schema), key=str)
    if isinstance(schema, str):
        return named.get(schema, schema)
    match schema["type"]:
        case "map":
            return {"map of": shape_of_schema(schema["values"], named)}
        case "array":
            return {"array of": shape_of_schema(schema["items"], named)}
        case "enum":
            named[schema["name"]] = {"enum": schema["name"], "symbols": schema["symbols"]}
            return named[schema["name"]]
        case "record":
            fields = [(field["name"], shape_of_schema(field["type"], named)) for field in schema["fields"]]
            named[schema["name"]] = {"record": schema["name"], "fields": fields}
            return named[schema["name"]]
        case other:
            raise AssertionError(other)


def newest_file(record: type) -> dict[str, Any]:
    ids = json.loads((schema_directory() / "ids.json").read_text())
    entry = max((e for e in ids.values() if e["record"] == record.__name__), key=lambda e: e["version"])
    return json.loads((schema_directory() / entry["schema"]).read_text())


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_struct_and_schema_agree_field_by_field(form: Any) -> None:
    assert shape_of_schema(newest_file(form.record), {}) == shape_of_hint(form.record)


def docs_missing(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for branch in schema for name in docs_missing(branch)]
    if not isinstance(schema, dict):
        return []
    missing = [name for name in [schema.get("name", "")] if name and not schema.get("doc")]
    for inner in (*schema.get("fields", ()), schema.get("type"), schema.get("items"), schema.get("values")):
        missing += docs_missing(inner)
    return missing


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_every_record_and_field_says_what_it_is(form: Any) -> None:
    schema = newest_file(form.record)
    assert docs_missing(schema) == []
    # A record that several keys have says the first of them.
    first = next(each for each in FORMS if each.record is form.record)
    assert schema["doc"].startswith(f"{first.topic}, key {'/'.join(first.prefix) or '<'}")


RELEASED = {
    1101: "OwnerAnnounced",
    1201: "AgentAnnounced",
    1301: "SyncAnswered",
    1401: "TaskReported",
    1501: "SpanDispatched",
    1601: "SessionEnded",
    1701: "SpanProgressed",
    1801: "FeedProgressed",
    1901: "OperationRequested",
    2001: "RequestSettled",
    2101: "FeedRecorded",
}


def test_released_ids_keep_their_meaning() -> None:
    """They are on topics by now: adding is fine, changing one of these loses a cluster's state."""
    known = {schema_id: version.record.__name__ for schema_id, version in schemas().by_id.items()}
    assert {schema_id: known.get(schema_id) for schema_id in RELEASED} == RELEASED


# --- framing ----------------------------------------------------------------------------------------------------


def test_the_wire_is_what_a_topic_tool_expects() -> None:
    key, value = encode(ended("s/1").fact)
    assert key == b"session/a1/s%2F1"
    assert value is not None
    assert value[:5] == b"\x00" + (1601).to_bytes(4, "big")
    assert encode(Fact(ended("s1").fact.key, None)) == (b"session/a1/s1", None)


def test_a_record_under_a_key_of_another_type_is_not_written() -> None:
    with pytest.raises(ValueError, match="takes FeedRecorded, not SessionEnded"):
        encode(Fact(FeedKey(feed="shop"), ended("s1").fact.value))


GOOD_KEY, GOOD_VALUE = encode(ended("s1").fact)
HEARTBEAT = encode(heartbeat(1).fact)[1]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, GOOD_VALUE, "no key"),
        (b"\xff\xfe", GOOD_VALUE, "not UTF-8"),
        (b"a/b/c/d/e", GOOD_VALUE, "has no form"),
        (b"a/b/c/d/e", None, "has no form"),
        (GOOD_KEY, b"", "too short"),
        (GOOD_KEY, b"{}{}{}", "framing"),
        (GOOD_KEY, b"\x00\x00\x00\x00\x07rest", "not one of Headgate's"),
        (GOOD_KEY, b"\x00\xff\xff\xff\xffrest", "not one of Headgate's"),
        (GOOD_KEY, GOOD_VALUE[:-1] if GOOD_VALUE else None, "not a SessionEnded v1"),
        (GOOD_KEY, (GOOD_VALUE or b"") + b"x", "1 bytes too many"),
        (GOOD_KEY, HEARTBEAT, "takes SessionEnded, its value is a AgentAnnounced"),
    ],
)
def test_garbage_says_why(key: bytes | None, value: bytes | None, reason: str) -> None:
    with pytest.raises(CodecGarbage, match=reason) as garbage:
        decode("dispatch", key, value)
    assert garbage.value.reason == str(garbage.value)


@pytest.mark.parametrize("schema_id", [1602, 1000, 1100, 9999, 5001])
@pytest.mark.parametrize("key", [GOOD_KEY, b"a/key/form/of/the/future", None])
def test_an_unknown_id_of_ours_is_a_newer_headgate_whatever_its_key(schema_id: int, key: bytes | None) -> None:
    with pytest.raises(NewerSchemaError, match=f"{schema_id}.*upgrade"):
        decode("dispatch", key, struct.pack(">bI", 0, schema_id) + b"?")


# --- any bytes at all -------------------------------------------------------------------------------------------

BODIES = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda start, n, tail: start[:n] + tail, st.just(GOOD_VALUE), st.integers(0, 20), st.binary(max_size=20)),
)


@given(topic=st.sampled_from(TOPICS), key=st.none() | st.binary(max_size=30), value=st.none() | BODIES)
def test_any_bytes_give_a_verdict(topic: str, key: bytes | None, value: bytes | None) -> None:
    try:
        read, record = decode(topic, key, value)
    except (CodecGarbage, NewerSchemaError):
        return
    assert record is None or type(record) is read.record


@given(st.sampled_from(FORMS), st.binary(max_size=80))
def test_any_body_under_a_good_id_gives_a_verdict(form: Any, body: bytes) -> None:
    value = struct.pack(">bI", 0, schemas().newest[form.record].id) + body
    key = msgspec.convert(dict.fromkeys(form.__struct_fields__, "1"), form, strict=False).text().encode()
    try:
        _, record = decode(form.topic, key, value)
    except CodecGarbage:
        return
    assert type(record) is form.record


@given(st.sampled_from(FORMS).flatmap(facts_of), st.data())
def test_a_flipped_byte_gives_a_verdict(fact: Fact, data: st.DataObject) -> None:
    key, value = encode(fact)
    if value is None:
        return
    at = data.draw(st.integers(0, len(value) - 1))
    broken = value[:at] + bytes([data.draw(st.integers(0, 255))]) + value[at + 1 :]
    try:
        decode(fact.key.topic, key, broken)
    except (CodecGarbage, NewerSchemaError):
        return


# --- versions ---------------------------------------------------------------------------------------------------


def copy_schemas(directory: Path) -> dict[str, Any]:
    for file in schema_directory().iterdir():
        (directory / file.name).write_bytes(file.read_bytes())
    ids: dict[str, Any] = json.loads((directory / "ids.json").read_text())
    return ids


def write_ids(directory: Path, ids: dict[str, Any]) -> None:
    (directory / "ids.json").write_text(json.dumps(ids))


ANNOUNCED = Fact(OwnerKey(shard=0), build.owner_announced(owner_id="o1", version="0.1.0", announced_ms=17))


def test_an_old_version_is_read_as_the_newest(tmp_path: Path) -> None:
    """Yesterday's Headgate knew no lease; today's gives it a default. And yesterday's must not read today's."""
    yesterday, today = tmp_path / "yesterday", tmp_path / "today"
    yesterday.mkdir()
    today.mkdir()
    ids = copy_schemas(today)
    write_ids(yesterday, {key: entry for key, entry in copy_schemas(yesterday).items() if key != "1102"})
    schema = json.loads((today / "owner_announced.v1.avsc").read_text())
    without = {**schema, "fields": [f for f in schema["fields"] if f["name"] != "lease_seconds"]}
    added = {
        **schema,
        "fields": [{**f, "default": 5.0} if f["name"] == "lease_seconds" else f for f in schema["fields"]],
    }
    for directory in (yesterday, today):
        (directory / "owner_announced.v1.avsc").write_text(json.dumps(without))
    (today / "owner_announced.v2.avsc").write_text(json.dumps(added))
    write_ids(today, {**ids, "1102": {"record": "OwnerAnnounced", "version": 2, "schema": "owner_announced.v2.avsc"}})

    old, new = Codec(read_schemas(yesterday)), Codec(read_schemas(today))
    assert new.decode("announce", *old.encode(ANNOUNCED)) == (ANNOUNCED.key, ANNOUNCED.value)
    assert new.decode("announce", *new.encode(ANNOUNCED)) == (ANNOUNCED.key, ANNOUNCED.value)
    with pytest.raises(NewerSchemaError, match="1102"):
        old.decode("announce", *new.encode(ANNOUNCED))


def test_broken_installations_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(SchemaFilesError, match=r"ids\.json"):
        read_schemas(tmp_path)
    ids = copy_schemas(tmp_path)
    cases: list[tuple[dict[str, Any], str]] = [
        ({k: v for k, v in ids.items() if k != "1601"}, "no schema for SessionEnded"),
        ({**ids, "1602": {**ids["1601"], "version": 3}}, "does not fit"),
        ({**ids, "999": ids["1601"]}, "does not fit"),
        ({**ids, "2201": ids["1601"]}, "two types"),
        ({**ids, "2201": {**ids["1601"], "record": "Nonsense"}}, "no record 'Nonsense'"),
        ({**ids, "1102": {**ids["1601"], "record": "OwnerAnnounced", "version": 2}}, "not of OwnerAnnounced"),
        ({**ids, "1602": {"record": "SessionEnded", "version": 2, "schema": "gone.avsc"}}, r"gone\.avsc"),
        ({**ids, "1602": {"record": "SessionEnded"}}, "missing required field"),
    ]
    for broken, message in cases:
        write_ids(tmp_path, broken)
        with pytest.raises(SchemaFilesError, match=message):
            read_schemas(tmp_path)
    write_ids(tmp_path, ids)
    (tmp_path / "session_ended.v1.avsc").write_text("{")
    with pytest.raises(SchemaFilesError, match="session_ended"):
        read_schemas(tmp_path)
    assert read_schemas(schema_directory()).newest[type(ended("s").fact.value)].id == 1601


def test_schemas_are_found_in_the_wheel_then_in_the_checkout_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "services" / "headgate" / "eventlog" / "schema_files.py"
    monkeypatch.setattr(schema_files, "__file__", str(module))
    with pytest.raises(SchemaFilesError, match=f"no ids.json in {module.parent / 'schemas'}.* nor in {tmp_path}"):
        schema_directory()
    for directory in (tmp_path / "schemas", module.parent / "schemas"):
        directory.mkdir(parents=True)
        (directory / "ids.json").write_text("{}")
        assert schema_directory() == directory
