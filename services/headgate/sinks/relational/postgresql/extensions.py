"""Values of extensions' types as their input functions read them: PostGIS, pgvector and hstore.

Debezium writes a geometry as an object with its bytes (PostGIS's own, or WKB of MySQL and MariaDB) and its SRID, a
vector as a list of numbers, and a sparse one as an object with pairs of place and number. Texts, as copied rows have
them, are the type's own.
"""

import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from headgate.sinks.relational.text import WKB_HEAD_BYTES, ToText, scalar, wkb_of
from headgate.sinks.relational.times import NotTextError

__all__ = ["converter_of_extension"]

_HAS_SRID: Final = 0x20000000
"""The flag in the type of a geometry that is followed by its SRID (PostGIS, doc/bnf-wkb.txt)."""

_SRID_MAX: Final = 2**31 - 1


def converter_of_extension(declared: str) -> ToText | None:
    """How values are written for a column of this type; None if it is not one of an extension known here."""
    return _CONVERTERS.get(declared.partition("(")[0].rpartition(".")[2])


def _geometry(value: object) -> str:
    """PostGIS's own bytes in hexadecimal digits."""
    if isinstance(value, str):
        return value
    wkb, srid = wkb_of(value, "geometry")
    if not 0 <= srid <= _SRID_MAX:
        raise NotTextError(f"the geometry's SRID is {srid}, which PostGIS cannot keep")
    order = "<" if wkb[0] else ">"
    (type_,) = struct.unpack_from(f"{order}I", wkb, 1)
    if srid and not type_ & _HAS_SRID:
        wkb = wkb[:1] + struct.pack(f"{order}II", type_ | _HAS_SRID, srid) + wkb[WKB_HEAD_BYTES:]
    return wkb.hex()


def _vector(value: object) -> str:
    if not isinstance(value, list):
        return scalar("vector", value)
    return f"[{','.join(scalar('vector', each) for each in value)}]"


def _sparse_vector(value: object) -> str:
    if not isinstance(value, dict):
        return scalar("sparsevec", value)
    pairs = _pairs(value.get("vector"))
    if pairs is None:
        raise NotTextError("a sparse vector is expected as an object with dimensions and vector, as Debezium writes it")
    written = ",".join(f"{scalar('sparsevec', place)}:{scalar('sparsevec', number)}" for place, number in pairs)
    return f"{{{written}}}/{scalar('sparsevec', value.get('dimensions'))}"


def _pairs(numbers: object) -> list[tuple[object, object]] | None:
    """Of place and number. Kafka Connect writes a map without texts as keys as a list: of pairs, in Avro of records."""
    if isinstance(numbers, dict):
        return list(numbers.items())
    pairs: list[tuple[object, object]] = []
    for each in numbers if isinstance(numbers, list) else [None]:
        if isinstance(each, dict) and each.keys() == {"key", "value"}:
            pairs.append((each["key"], each["value"]))
        elif isinstance(each, list) and len(each) == 2:
            pairs.append((each[0], each[1]))
        else:
            return None
    return pairs


def _hstore(value: object) -> str:
    """Pairs: a JSON object, as a text or parsed, or a text that is an hstore already."""
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        with suppress(msgspec.DecodeError):
            value = msgspec.json.decode(value)
    if not isinstance(value, dict):
        return scalar("hstore", value)
    return ", ".join(
        f"{_pair_text(name)}=>{'NULL' if item is None else _pair_text(_item(item))}" for name, item in value.items()
    )


def _item(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else scalar("hstore", value)


def _pair_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_CONVERTERS: Final[Mapping[str, ToText]] = {
    "geometry": _geometry,
    "geography": _geometry,
    "vector": _vector,
    "halfvec": _vector,
    "sparsevec": _sparse_vector,
    "hstore": _hstore,
}
"""The type's name, without its schema."""
