"""Values of extensions' types, as PostGIS, pgvector and hstore read them."""

import struct
from base64 import b64encode

import pytest

from headgate.sinks.relational.postgresql.values import column_text
from headgate.sinks.relational.times import NotTextError

PLACE = struct.pack("<BIdd", 1, 1, 1.5, -2)
"""A point in WKB."""
PLACED = struct.pack("<BIIdd", 1, 0x20000001, 4326, 1.5, -2)
"""The same with an SRID, as PostGIS writes it."""
BIG = struct.pack(">BIdd", 0, 1, 1.5, -2)


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


@pytest.mark.parametrize("declared", ["geometry", "geometry(Point,4326)", "public.geometry(PointZ)", "geography"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ({"wkb": encoded(PLACE), "srid": None}, PLACE),
        ({"wkb": encoded(PLACE), "srid": 0}, PLACE),
        ({"wkb": PLACE, "srid": 4326}, PLACED),
        ({"wkb": encoded(PLACED), "srid": 4326}, PLACED),
        ({"x": 1.5, "y": -2, "wkb": encoded(BIG), "srid": 7}, struct.pack(">BIIdd", 0, 0x20000001, 7, 1.5, -2)),
    ],
)
def test_a_geometry_is_sent_as_postgis_keeps_it(declared: str, value: object, expected: bytes | None) -> None:
    sent = column_text(declared, "io.debezium.data.geometry.Geometry").plain(value)
    assert sent == (None if expected is None else expected.hex())
    assert column_text(declared, None).plain("POINT(1 2)") == "POINT(1 2)"


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        ("vector(2)", [1.5, -2], "[1.5,-2]"),
        ("public.vector", [], "[]"),
        ("halfvec(1)", [1e-9], "[1e-09]"),
        ("vector(2)", "[1,2]", "[1,2]"),
        ("sparsevec(5)", {"dimensions": 5, "vector": {"1": 2.5, "4": -1}}, "{1:2.5,4:-1}/5"),
        ("sparsevec(5)", {"dimensions": 5, "vector": [[1, 2.5], [4, -1]]}, "{1:2.5,4:-1}/5"),
        ("sparsevec(5)", {"dimensions": 5, "vector": [{"key": 4, "value": -1.5}]}, "{4:-1.5}/5"),
        ("sparsevec(5)", {"dimensions": 5, "vector": {}}, "{}/5"),
        ("sparsevec(5)", "{1:2}/5", "{1:2}/5"),
        ("hstore", {"a": None, 'b"': True}, r'"a"=>NULL, "b\""=>"true"'),
    ],
)
def test_values_are_sent_as_their_type_writes_them(declared: str, value: object, expected: str) -> None:
    assert column_text(declared, None).plain(value) == expected


@pytest.mark.parametrize(
    ("declared", "value", "says"),
    [
        ("geometry", {"x": 1, "y": 2}, "object with wkb and srid"),
        ("geometry", [1, 2], "object with wkb and srid"),
        ("geometry", {"wkb": "AQ==", "srid": 1}, "object with wkb and srid"),
        ("geometry", {"wkb": "%%", "srid": 1}, "base64"),
        ("geometry", {"wkb": encoded(PLACE), "srid": 2**31}, "SRID is 2147483648"),
        ("vector(2)", [1, [2]], "a list cannot be written"),
        ("vector(2)", {"a": 1}, "a dict cannot be written"),
        ("sparsevec(5)", {"dimensions": 5}, "object with dimensions and vector"),
        ("sparsevec(5)", {"dimensions": 5, "vector": [1, 2]}, "object with dimensions and vector"),
        ("sparsevec(5)", [1, 2], "a list cannot be written"),
    ],
)
def test_what_is_no_value_of_the_type_is_refused(declared: str, value: object, says: str) -> None:
    with pytest.raises(NotTextError, match=says):
        column_text(declared, None).plain(value)
