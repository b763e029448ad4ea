"""Services of two versions on one log: who may write what, and when the level rises."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headgate import SCHEMA_VERSION
from headgate.eventlog.codec import Codec
from headgate.eventlog.log import LevelTooLowError, NewerSchemaError, Partition, Placed, SchemaLevel
from headgate.eventlog.schema_files import SchemaSet, read_schemas, schema_directory, schemas
from headgate.records.base import Fact
from headgate.records.control import (
    AgentAnnounced,
    OperationKind,
    OwnerAnnounced,
    ReplicationState,
    SpanPlan,
    WantedState,
)
from headgate.records.keys import AgentKey, OwnerKey, RequestKey, SpanKey
from headgate.records.levels import FIELDS, NESTED, WITHHELD, WORDS, level_of, withheld
from headgate.runtime.levels import QUIET_LEASES, Readership
from headgate_lab.memory_log.log import MemoryBroker
from support import build

LEASE_SECONDS = 5.0
QUIET_SECONDS = QUIET_LEASES * LEASE_SECONDS

SPAN = Fact(
    SpanKey("f", "t1"),
    build.span_dispatched(owner_rev=7, state=ReplicationState.ABSENT, revision=0),
)
REVISED = Fact(SPAN.key, replace(SPAN.value, revision=3))
REQUEST = Fact(
    RequestKey("r"),
    build.operation_requested(kind=OperationKind.DRAIN_AGENT, feed="", agent="a1", requested_by="me", requested_ms=5),
)


def owner(level: int, *, reads: int = 9, lease_seconds: float = LEASE_SECONDS) -> OwnerAnnounced:
    return build.owner_announced(
        owner_rev=3, version="0", schema_version=reads, lease_seconds=lease_seconds, level=level
    )


def agent(reads: int) -> AgentAnnounced:
    return build.agent_announced(version="0", schema_version=reads, address="here")


@pytest.fixture
def known(tmp_path: Path) -> SchemaSet:
    """A Headgate of level 9 in which SpanDispatched has got ``revision``, and requests the word ``drain_agent``."""
    for file in schema_directory().iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    ids: dict[str, Any] = json.loads((tmp_path / "ids.json").read_text())
    for schema_id, entry in ids.items():
        if entry["record"] in ("SpanDispatched", "OperationRequested"):
            schema = json.loads((tmp_path / entry["schema"]).read_text())
            (tmp_path / entry["schema"]).write_text(json.dumps(without_news(schema)))
            newest = schema
        if entry["record"] == "SpanDispatched":
            span = (int(schema_id) // 100 * 100 + 9, newest)
        if entry["record"] == "OperationRequested":
            request = (int(schema_id) // 100 * 100 + 9, newest)
    for schema_id, schema in (span, request):
        name = f"{schema['name']}.v9.avsc"
        (tmp_path / name).write_text(json.dumps(schema))
        ids[str(schema_id)] = {"record": schema["name"], "version": 9, "schema": name}
    (tmp_path / "ids.json").write_text(json.dumps(ids))
    return read_schemas(tmp_path)


def without_news(schema: dict[str, Any]) -> dict[str, Any]:
    fields = [field for field in schema["fields"] if field["name"] != "revision"]
    for field in fields:
        if field["name"] == "kind":
            symbols = [word for word in field["type"]["symbols"] if word != "drain_agent"]
            fields = [{**field, "type": {**field["type"], "symbols": symbols}} if field is f else f for f in fields]
    return {**schema, "fields": fields}


def up_to(level: int, known: SchemaSet) -> SchemaSet:
    """What an installation had that knew nothing beyond ``level``."""
    by_id = {schema_id: version for schema_id, version in known.by_id.items() if version.version <= level}
    written = {each: records for each, records in known.written.items() if each <= level}
    return SchemaSet(by_id, written[level], written)


def test_this_build_says_the_level_of_its_schemas() -> None:
    assert schemas().level == SCHEMA_VERSION
    # A record without a version of that level is written in its newest older one.
    assert {v.version for v in schemas().written[SCHEMA_VERSION].values()} >= {1, 2}


def test_a_writer_drops_what_the_level_has_no_field_for_if_nothing_is_lost(known: SchemaSet) -> None:
    new, old = Codec(known, SchemaLevel(9)), Codec(up_to(2, known))
    assert old.decode("dispatch", *new.encode(SPAN)) == (SPAN.key, SPAN.value)
    with pytest.raises(LevelTooLowError, match="SpanDispatched that schema level 1 lacks waits for the upgrade"):
        new.encode(REVISED)
    with pytest.raises(LevelTooLowError, match="OperationRequested"):
        new.encode(REQUEST)
    assert new.encode(Fact(REQUEST.key, None))[1] is None
    new.level.met(9)
    for fact in (SPAN, REVISED, REQUEST):
        assert new.decode(fact.key.topic, *new.encode(fact)) == (fact.key, fact.value)
        with pytest.raises(NewerSchemaError, match="upgrade"):
            old.decode(fact.key.topic, *new.encode(fact))


def test_whoever_reads_a_record_writes_at_its_level_from_then_on(known: SchemaSet) -> None:
    writer, reader = Codec(known, SchemaLevel(9, 9)), Codec(known, SchemaLevel(9))
    reader.decode("dispatch", *writer.encode(REVISED))
    assert reader.level.writes == 9
    assert reader.encode(REVISED) == writer.encode(REVISED)
    # Never back: what is old on the log says nothing about today.
    reader.decode("dispatch", *Codec(up_to(2, known)).encode(SPAN))
    assert reader.level.writes == 9


def test_the_announcement_that_raises_the_level_is_the_first_record_of_it(known: SchemaSet) -> None:
    raising, raised, old = Codec(known, SchemaLevel(9)), Codec(known, SchemaLevel(9)), Codec(up_to(2, known))
    key, value = raising.encode(Fact(OwnerKey(0), owner(level=9)))
    assert raising.level.writes == 1, "not before it is on the log"
    assert raised.decode("announce", key, value)[1] == owner(level=9)
    assert raised.level.writes == 9
    # Its own schema did not change at level 9, but it says what is to come.
    with pytest.raises(NewerSchemaError, match="level 9, this Headgate reads no more than 2"):
        old.decode("announce", key, value)


def test_the_level_is_that_of_the_least_reader_and_only_after_a_while() -> None:
    level = SchemaLevel(reads=3)
    who = Readership(level, LEASE_SECONDS)
    assert who.may_rise_to(1e9) == 3, "a log without a past"
    who.learn(OwnerKey(0), owner(1, reads=3), 100.0)
    who.learn(AgentKey("a", "s1"), agent(3), 100.0)
    who.learn(AgentKey("b", "s1"), agent(2), 100.0)
    assert who.may_rise_to(100.0 + QUIET_SECONDS - 0.1) == 1
    assert who.may_rise_to(100.0 + QUIET_SECONDS) == 2
    # A heartbeat changes nothing, an older one that comes does, and waits anew when it has gone.
    who.learn(AgentKey("b", "s1"), agent(2), 111.0)
    assert who.may_rise_to(111.0) == 2
    who.learn(AgentKey("c", "s1"), agent(1), 112.0)
    assert who.may_rise_to(1_000.0) == 1
    who.learn(AgentKey("c", "s1"), None, 1_000.0)
    assert who.may_rise_to(1_000.0) == 1
    assert who.may_rise_to(1_000.0 + QUIET_SECONDS) == 2
    # Beyond what this process reads it does not raise.
    who.learn(AgentKey("b", "s1"), agent(7), 1_100.0)
    who.learn(OwnerKey(0), owner(1, reads=7), 1_100.0)
    assert who.may_rise_to(2_000.0) == 3


def test_an_owner_that_has_resigned_is_waited_for_by_nobody() -> None:
    who = Readership(SchemaLevel(reads=3), LEASE_SECONDS)
    who.learn(OwnerKey(0), owner(1, reads=3), 0.0)
    who.learn(OwnerKey(1), owner(1, reads=1), 0.0)
    assert who.may_rise_to(100.0) == 1
    who.learn(OwnerKey(1), owner(1, reads=1, lease_seconds=0.0), 100.0)
    assert who.may_rise_to(200.0) == 3


def test_on_the_log_in_memory_too() -> None:
    broker = MemoryBroker()
    new, old = broker.client(SchemaLevel(SCHEMA_VERSION)), broker.client(SchemaLevel(1))
    announce = Partition("announce", 0)
    placed = Placed(announce, Fact(OwnerKey(0), owner(level=1)))
    new.writer("n").write([placed], 1.0)
    reader = old.reader({announce: 0})
    assert len(reader.poll(10, 0.0)) == 1
    new.writer("n").write([Placed(announce, Fact(OwnerKey(0), owner(level=2)))], 1.0)
    with pytest.raises(NewerSchemaError, match="announce/0 offset 1: the log is written at schema level 2"):
        reader.poll(10, 0.0)
    assert new.level.writes == 1
    assert len(new.reader({announce: 0}).poll(10, 0.0)) == 2
    assert new.level.writes == 2


def test_a_log_that_never_had_an_owner_begins_at_the_level_of_those_who_are_there() -> None:
    who = Readership(SchemaLevel(reads=3), LEASE_SECONDS)
    who.learn(AgentKey("a", "s1"), agent(2), 0.0)
    assert who.may_rise_to(0.0) == 2
    who.learn(OwnerKey(1), owner(1, reads=3), 0.0)
    assert who.may_rise_to(0.0) == 1
    assert who.may_rise_to(QUIET_SECONDS) == 2


def test_the_table_of_what_came_when_is_what_the_schemas_say() -> None:
    fields: dict[type[Any], dict[str, int]] = {}
    words: dict[str, int] = {}
    by_record: dict[type[Any], list[Any]] = {}
    for version in schemas().by_id.values():
        by_record.setdefault(version.record, []).append(version)
    for record, versions in by_record.items():
        for old, new in itertools.pairwise(versions):
            known_fields = {field["name"] for field in old.parsed["fields"]}
            known_words = set(words_in(old.parsed))
            for field in new.parsed["fields"]:
                if field["name"] not in known_fields:
                    fields.setdefault(record, {})[field["name"]] = new.version
            for name in NESTED.get(record, ()):
                before, after = fields_of_items(old.parsed, name), fields_of_items(new.parsed, name)
                fields.setdefault(SpanPlan, {}).update(dict.fromkeys(after - before, new.version))
            words.update({word: new.version for word in words_in(new.parsed) if word not in known_words})
    assert fields == FIELDS
    assert words == {f"{type(word).__name__}.{word}": level for word, level in WORDS.items()}
    assert all(names <= FIELDS[record].keys() for record, names in WITHHELD.items())


def fields_of_items(schema: Any, name: str) -> set[str]:
    """The fields of what an array of a record holds."""
    (array,) = (field["type"] for field in schema["fields"] if field["name"] == name)
    return {field["name"] for field in array["items"]["fields"]}


def words_in(schema: Any) -> Iterator[str]:
    """Every word of every enum in a parsed schema, as Enum.word."""
    if isinstance(schema, list):
        for part in schema:
            yield from words_in(part)
    elif isinstance(schema, dict):
        name = schema.get("name", "").rpartition(".")[2]
        yield from (f"{name}.{symbol}" for symbol in schema.get("symbols", ()))
        for part in ("fields", "type", "items", "values"):
            yield from words_in(schema.get(part))


def test_what_is_only_told_is_left_out_below_its_level_and_the_rest_waits() -> None:
    said = build.feed_progressed(owner_rev=7, checkpoint_ts=5, resolved_ts=5)
    assert level_of(said) == 2
    assert withheld(said, 2) is said
    assert withheld(said, 1) == replace(said, resolved_ts=None)
    plan = SpanPlan("t", "db.t", "t", {0: 7})
    feed = build.feed_recorded(owner_rev=3, spans=(plan,), changed_ms=5)
    assert level_of(feed) == 1
    assert withheld(feed, 1) is feed
    aimed = replace(feed, target_ts=9, sink_id="x")
    assert level_of(withheld(aimed, 1)) == 2
    assert withheld(aimed, 1) == replace(aimed, sink_id=None)
    assert level_of(replace(feed, wanted=WantedState.FINISHED)) == 2
    found = replace(feed, spans=(replace(plan, topic_id="x"), plan))
    assert level_of(found) == 2
    assert withheld(found, 2) is found
    assert withheld(found, 1) == replace(feed, spans=(plan, plan))
