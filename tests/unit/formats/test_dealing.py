"""Events of several tables in one topic: whose each is, in every format, and that nothing is lost in dealing."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.formats import canal_json, debezium_avro, debezium_json, maxwell_json
from headgate.formats.change import ChangeError
from headgate.formats.dealing import Dealer, EventColumns, Look, Whose
from headgate.records.source_tables import SourceTable
from unit.formats.test_debezium_avro import PARTS, ROW, Registry, routed


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def debezium(op: str = "c", **source: object) -> dict[str, object]:
    return {"before": None, "after": {"id": 1, "source": {"table": "no"}}, "source": source, "op": op}


SCHEMA = {
    "type": "struct",
    "fields": [{"field": "after", "type": "struct", "fields": [{"field": "id", "type": "int64"}]}],
}
POSTGRES = debezium(db="d", schema="public", table="a")
MYSQL = debezium("d", db="shop", table="a")


@pytest.mark.parametrize(
    ("event", "whose"),
    [
        (compact(POSTGRES), ("public", "a")),
        (compact(MYSQL), ("shop", "a")),
        (compact(POSTGRES | {"op": "t"}), ("public", "a")),
        (compact({"schema": SCHEMA, "payload": POSTGRES}), ("public", "a")),
        (json.dumps({"payload": POSTGRES, "schema": SCHEMA}).encode(), ("public", "a")),
        (compact({"schema": None, "payload": MYSQL}), ("shop", "a")),
        (compact(debezium("m", db="d", schema="", table="")), Whose.NOBODY),
    ],
)
def test_debezium_json(event: bytes, whose: SourceTable | Whose) -> None:
    look = debezium_json.DebeziumJsonLook()
    assert [look(event), look(event)] == [whose] * 2


def test_debezium_avro() -> None:
    registry = Registry()
    look = debezium_avro.DebeziumAvroLook(registry)
    name = {"db": "d", "schema": "public", "table": "a"}
    assert look(routed(registry, PARTS, name, schema_id=40)) == ("public", "a")
    assert look(routed(registry, PARTS, name | {"schema": None}, schema_id=41)) == ("d", "a")
    assert look(registry.write(3, {"op": "m", "message": b"x"})) is Whose.NOBODY
    with pytest.raises(ChangeError, match=r"does not name its table.* source\.tables"):
        look(registry.value("c", ROW))


@pytest.mark.parametrize(
    ("kind", "more", "whose"),
    [
        ("INSERT", {"data": [{"id": "1"}]}, ("shop", "a")),
        ("TRUNCATE", {"isDdl": True}, ("shop", "a")),
        ("ALTER", {"isDdl": True}, Whose.NOBODY),
        ("SOMETHING", {"isDdl": True}, Whose.NOBODY),
        ("QUERY", {}, Whose.NOBODY),
        ("TIDB_WATERMARK", {"database": "", "table": ""}, Whose.EVERYBODY),
    ],
)
def test_canal_json(kind: str, more: dict[str, object], whose: SourceTable | Whose) -> None:
    assert canal_json.look(compact({"type": kind, "database": "shop", "table": "a"} | more)) == whose


@pytest.mark.parametrize(
    ("kind", "whose"),
    [("insert", ("shop", "a")), ("bootstrap-insert", ("shop", "a")), ("table-alter", Whose.NOBODY)],
)
def test_maxwell(kind: str, whose: SourceTable | Whose) -> None:
    assert maxwell_json.look(compact({"type": kind, "database": "shop", "table": "a"})) == whose


LOOKS: list[Look] = [
    debezium_json.DebeziumJsonLook(),
    canal_json.look,
    maxwell_json.look,
    debezium_avro.DebeziumAvroLook(Registry()),
]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"\xff\x00",
        b"[]",
        b'{"id":1,"name":"flat"}',
        compact({"op": "c", "after": {"id": 1}, "type": "INSERT"}),
        compact({"op": "c", "source": {"db": "d", "schema": "s"}, "type": "insert", "database": "d"}),
        compact({"op": "c", "source": {"db": 1, "table": {}}, "type": "INSERT", "database": "d", "table": 5}),
        compact({"schema": {"type": "struct"}, "payload": POSTGRES}),
    ],
)
def test_what_does_not_say_its_table_is_told(look: Look, value: bytes) -> None:
    with pytest.raises(ChangeError):
        look(value)


def look(value: bytes) -> Any:
    """Of events that are words."""
    word = value.decode()
    if word == "?":
        raise ChangeError("garbage")
    return {"*": Whose.EVERYBODY, "-": Whose.NOBODY}.get(word, ("s", word))


def columns(words: Sequence[str | None]) -> EventColumns:
    values = [None if word is None else word.encode() for word in words]
    offsets = list(range(10, 10 + 2 * len(words), 2))
    return EventColumns(offsets, [offset + 1000 for offset in offsets], [b"k%d" % offset for offset in offsets], values)


@given(st.lists(st.sampled_from(["a", "b", "x", "y", "*", "-", "?", None]), max_size=20))
def test_every_event_is_somebodys_or_counted(words: list[str | None]) -> None:
    given_columns = columns(words)
    dealt = Dealer(look, ["s.a", "s.b"]).deal(given_columns)
    places = dict(zip(given_columns.offsets, words, strict=True))
    for table in ("a", "b"):
        wanted = [offset for offset, word in places.items() if word in (table, "*")]
        mine = dealt.tables[f"s.{table}"]
        assert list(mine.offsets) == wanted
        assert list(mine.keys) == [b"k%d" % offset for offset in wanted]
        assert list(mine.appended_ms) == [offset + 1000 for offset in wanted]
        assert [value.decode() for value in mine.values if value] == [places[offset] for offset in wanted]
    assert [offset for offset, _ in dealt.unreadable] == [offset for offset, word in places.items() if word == "?"]
    others = [word for word in words if word in ("x", "y")]
    assert (dealt.passed_over, dealt.passed_over_table) == (len(others), f"s.{others[-1]}" if others else None)


@given(st.lists(st.sampled_from("ab"), max_size=9), st.integers(8, 30), st.integers(8, 30))
def test_a_stretch_of_columns(words: list[str], start: int, end: int) -> None:
    given_columns = columns(words)
    within = given_columns.within(start, end)
    assert list(within.offsets) == [offset for offset in given_columns.offsets if start <= offset < end]
    assert {len(column) for column in msgspec.structs.astuple(within)} == {len(within.offsets)}
