"""What the end of a topic in Avro says: which change an event is, whose it is, and what is none."""

import io
from typing import Any

import fastavro
import msgspec
import pytest

from headgate.formats.decoding import SchemasUnavailableError
from headgate.migration.shell.topic_tail import Events, FeedsUnavailableError, Looked, registry_spec
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.online.lane import LastChange, TopicPosition
from headgate.sources.origin import Origin
from support.connections import described_registry

OPTIONAL = {"lsn": "long", "txId": "long", "gtid": "string", "schema": "string"}


def envelope(*source: str) -> dict[str, Any]:
    """Of an event whose source has these fields."""
    known = {"connector": "string", "db": "string", "table": "string", "pos": "long"}
    fields = [{"name": name, "type": ["null", OPTIONAL[name]] if name in OPTIONAL else known[name]} for name in source]
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", "string"]},
            {"name": "source", "type": {"type": "record", "name": "Source", "fields": fields}},
            {"name": "op", "type": "string"},
        ],
    }


SCHEMAS = {
    1: envelope("connector", "db", "schema", "table", "lsn", "txId"),
    2: envelope("connector", "db", "table", "gtid", "pos"),
}
POSTGRES = {"connector": "postgresql", "db": "d", "schema": "s", "table": "t"}
MARIADB = {"connector": "mariadb", "db": "d", "table": "t"}


def schema(schema_id: int) -> str:
    return msgspec.json.encode(SCHEMAS[schema_id]).decode()


def away(_schema_id: int) -> str:
    raise SchemasUnavailableError("nobody answers")


def event(schema_id: int, op: str, **source: Any) -> bytes:
    out = io.BytesIO()
    out.write(b"\x00" + schema_id.to_bytes(4, "big"))
    parsed = fastavro.parse_schema(msgspec.json.decode(schema(schema_id)))
    fastavro.schemaless_writer(out, parsed, {"before": "a", "source": source, "op": op})
    return out.getvalue()


def test_events_are_found_by_what_names_their_change_in_the_log() -> None:
    events = Events(schema)
    for offset, value in enumerate(
        (
            event(1, "u", **POSTGRES, lsn=7, txId=70),
            None,
            b"{}",
            event(2, "u", **MARIADB, gtid="0-1-5", pos=100),
            event(2, "u", **MARIADB, gtid="0-1-5", pos=200),
        )
    ):
        events.add(value, TopicPosition(0, offset))
    assert events.places(LastChange((("u",),), lsn=7)) == (TopicPosition(0, 0),)
    assert events.places(LastChange((("u",),), txid=70)) == (TopicPosition(0, 0),)
    assert events.places(LastChange((("u",),), gtid="0-1-5", places=2)) == (TopicPosition(0, 4),)
    assert events.places(LastChange((("d",),), lsn=7)) == ()


def test_a_registry_that_does_not_answer_is_tried_again() -> None:
    with pytest.raises(FeedsUnavailableError, match="nobody answers"):
        Events(away).add(event(1, "u", **POSTGRES, lsn=7, txId=70), TopicPosition(0, 0))


def test_whose_events_they_are_and_whether_they_are_in_that_form() -> None:
    looked = Looked(schema)
    assert looked(event(1, "u", **POSTGRES, lsn=7, txId=70)) == Origin("postgresql", "d", "s.t")
    assert looked(event(2, "u", **MARIADB, gtid=None, pos=1)) == Origin("mariadb", "d", "t")
    assert looked(None) is None
    assert not looked.is_other
    assert looked(b'{"source": {}}') is None
    assert looked.is_other

    looked = Looked(None)
    assert looked(b'{"source": {"connector": "mariadb", "db": "d", "table": "t"}}') == Origin("mariadb", "d", "t")
    assert not looked.is_other
    assert looked(event(2, "u", **MARIADB, gtid=None, pos=1)) is None
    assert looked.is_other


def test_a_registry_is_a_named_one() -> None:
    name = described_registry("https://registry:8081")
    assert registry_spec(name).url == "https://registry:8081"
    with pytest.raises(RefusedError, match=rf"--registry: registry 'reg9' is unknown.*{name}"):
        registry_spec("reg9")
