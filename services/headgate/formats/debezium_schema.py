"""The schema part of a Debezium JSON event: the meaning of its columns, and where it ends.

With ``schemas.enable=true`` every event repeats a schema of about 2 kB in front of a payload of a few hundred bytes.
The converter writes it the same way each time, so it is read once and recognised byte for byte from then on: an event
that starts with known bytes up to and including ``,"payload":`` is cut there. A schema never seen before is
parsed with its event as a whole; a first ``,"payload":`` may lie inside the schema (e.g. a default value), so the cut
is only learned where everything before it is a complete JSON value.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from headgate.formats.change import ChangeError
from headgate.formats.debezium import connector_named
from headgate.formats.meaning import DEPTH_MAX, array_of, check_columns, named, parametrised

OPENING: Final = b'{"schema":'
_BORDER: Final = b',"payload":'
CLOSING: Final = b"}"
"""What follows a payload that has a head: everything before it, byte for byte."""

SCHEMAS_MAX: Final = 1024
"""Known schemas per decoder, about 2 kB each: more tables than one lane reads. The oldest is forgotten first."""

SCHEMA_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of all known schemas together. A schema can be as large as an event, and an event as large as its topic allows."""

Semantics = dict[str, str]


def with_head(head: bytes | None, payload: bytes | None) -> bytes | None:
    """The event whose ``payload`` it is; a tombstone has no head."""
    return payload if head is None or payload is None else b"%b%b%b" % (head, payload, CLOSING)


def _meaning(field: Mapping[str, Any], depth: int = 0) -> str:
    name = field.get("name")
    if name is not None:
        name = named(name)
        return parametrised(name, field.get("parameters") or {}) or name
    if field["type"] == "array":
        if depth >= DEPTH_MAX:
            raise ChangeError(f"the event's schema has arrays nested more than {DEPTH_MAX} deep")
        return array_of(_meaning(field["items"], depth + 1))
    return named(field["type"])


def _columns(fields: Sequence[Mapping[str, Any]]) -> Semantics:
    columns = {field["field"]: _meaning(field) for field in fields}
    check_columns(columns)
    return columns


def envelope_semantics(schema: Any) -> Semantics:
    """Column → meaning (see Change.semantics), from the ``after`` part of an envelope's schema; ChangeError if none."""
    try:
        parts = {field["field"]: field for field in schema["fields"]}
        connector = connector_named(parts.get("source", {}).get("name"))
        return _columns(parts["after"]["fields"]) | connector
    except (KeyError, TypeError, AttributeError) as error:
        raise ChangeError("the event's schema is not a Debezium envelope: it describes no field 'after'") from error


def key_semantics(schema: Any) -> Semantics | None:
    """Column → meaning from a key's schema; None if it describes no columns. Raises ChangeError."""
    try:
        return _columns(schema["fields"])
    except (KeyError, TypeError, AttributeError):
        return None


def columns_with_defaults(value: bytes) -> frozenset[str] | None:
    """Columns that may be NULL and have a default, by the schema of an event; None if it has no schema.

    Kafka Connect's converters write the default in the place of NULL there, unless configured not to. Raises one of
    DATA_ERRORS.
    """
    parts = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    if parts.keys() != {"schema", "payload"}:
        return None
    fields = {part["field"]: part for part in msgspec.json.decode(parts["schema"])["fields"]}
    return frozenset(
        column["field"]
        for column in fields["after"]["fields"]
        if column.get("optional") and column.get("default") is not None
    )


class KnownSchemas:
    """Schema parts seen so far. ``split`` finds an event's payload without parsing a schema twice."""

    def __init__(self, *, envelopes: bool, told: Semantics | None = None) -> None:
        """``told``: what is known beside the schemas, and becomes part of each one's semantics."""
        self._envelopes = envelopes
        self._told = told or {}
        self._known: dict[bytes, Semantics | None] = {}
        self._known_bytes = 0
        self._last: bytes = OPENING + b"\x00"  # no JSON starts like this
        self._last_semantics: Semantics | None = None

    def split(self, data: bytes) -> tuple[bytes, Semantics | None]:
        """The payload's bytes and, where there is a schema, what the columns mean. ChangeError if not JSON.

        Data that does not start as the converter writes a schema comes back as it is.
        """
        if data.startswith(self._last) and data.endswith(CLOSING):
            return data[len(self._last) : -1], self._last_semantics
        if not data.startswith(OPENING):
            return data, None
        cut = data.find(_BORDER) + len(_BORDER)
        head = data[:cut]
        if head in self._known and data.endswith(CLOSING):
            self._last, self._last_semantics = head, self._known[head]
            return data[cut:-1], self._last_semantics
        return self.split_whole(data)

    @property
    def head(self) -> bytes:
        """The head of the schema met last."""
        return self._last

    def semantics_of(self, head: bytes) -> Semantics | None:
        """What the columns of events with this head mean. Raises ChangeError if it is none."""
        if head not in self._known:
            self.split_whole(head + b"null" + CLOSING)
        return self._known[head]

    def cut_all(
        self, datas: Sequence[bytes | None], head: bytes | None = None
    ) -> tuple[Sequence[bytes], Semantics | None] | None:
        """The payloads of events that all start with the schema met last, or all with none; None if they do not.

        ``head``: it has been cut off all of them. Raises ChangeError.
        """
        if head is not None:
            return datas, self.semantics_of(head)  # type: ignore[return-value]  # the caller has looked for None
        if not datas or datas[0] is None or not datas[0].startswith(OPENING):
            return datas, None  # type: ignore[return-value]  # the caller has looked for None
        head = self._last
        width = len(head)
        payloads = [data[width:-1] for data in datas if data and data.startswith(head) and data.endswith(CLOSING)]
        return (payloads, self._last_semantics) if len(payloads) == len(datas) else None

    def split_whole(self, data: bytes) -> tuple[bytes, Semantics | None]:
        """The same by parsing everything, however it is written."""
        try:
            parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            schema = msgspec.json.decode(parts["schema"]) if parts.keys() == {"schema", "payload"} else False
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ChangeError(f"not JSON: {error}") from error
        if schema is False or not (schema is None or (isinstance(schema, dict) and schema.get("type") == "struct")):
            return data, None  # a row (or key) that happens to have a column of that name
        read = envelope_semantics if self._envelopes else key_semantics
        semantics = None if schema is None else read(schema)
        if semantics is not None:
            semantics |= self._told
        self._learn(data, bytes(parts["schema"]), semantics)
        return bytes(parts["payload"]), semantics

    def _learn(self, data: bytes, schema: bytes, semantics: Semantics | None) -> None:
        head = OPENING + schema + _BORDER
        if not data.startswith(head):
            return  # written with blanks or in another order: right, only slower
        if head not in self._known:
            self._known_bytes += len(head)
            while self._known and (len(self._known) >= SCHEMAS_MAX or self._known_bytes > SCHEMA_BYTES_MAX):
                oldest = next(iter(self._known))
                self._known_bytes -= len(oldest)
                del self._known[oldest]
        self._known[head] = self._last_semantics = semantics
        self._last = head
