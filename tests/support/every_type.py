"""Every type that tables are created for, with extreme, empty and longest values, and how each database shows them."""

from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["AS_TEXT", "ENUMS", "MARIADB", "POSTGRESQL", "POSTGRESQL_ONLY", "Type", "columns"]

AS_TEXT = "CAST({} AS CHAR)"
"""How MariaDB gives a value as text."""


class Type(msgspec.Struct, frozen=True):
    """A type, and values of it. ``out``: a value's text at the source; ``put``, ``get``: into the sink and back."""

    declared: str
    literals: tuple[str, ...]
    out: str = "{}::text"
    put: str = "%s"
    get: str = AS_TEXT
    read: Callable[[str], object] = str


def in_bits(width: int) -> dict[str, Any]:
    return {"put": "CAST(CONV(%s, 2, 10) AS UNSIGNED)", "get": f"LPAD(BIN({{}}), {width}, '0')"}


JSON: dict[str, Any] = {"out": "to_jsonb({})::text"}
WALL: dict[str, Any] = {"out": "({} AT TIME ZONE 'UTC')::text", "read": lambda text: text.partition(".000000")[0]}
TIME: dict[str, Any] = {"read": lambda text: text.partition(".000000")[0]}

ENUMS = ("CREATE TYPE mood AS ENUM ('glad', 'so, so')",)
"""What a PostgreSQL needs for these types, with a domain ``short``."""

POSTGRESQL = [
    Type("smallint", ("-32768", "32767")),
    Type("integer", ("-2147483648", "2147483647")),
    Type("bigint", ("-9223372036854775808", "9223372036854775807")),
    Type("oid", ("0", "4294967295")),
    Type("numeric(12,2)", ("-9999999999.99", "9999999999.99")),
    Type("numeric(65,30)", ("-" + "9" * 35 + "." + "9" * 30,)),
    Type("numeric(5,-2)", ("9999900",)),
    Type("real", ("-3.4e38", "1.5"), read=float),
    Type("double precision", ("-1.7976931348623157e308", "5e-324", "0.1", "7.120236347223045e-307"), read=float),
    Type("money", ("'-92233720368547758.08'", "'92233720368547758.07'"), out="{}::numeric::text"),
    Type("boolean", ("true", "false"), put="%s = 'true'", get="IF({}, 'true', 'false')"),
    Type("char(5)", ("'ab'", "''", "'漢字漢字🚪'")),
    Type("varchar(20)", ("'naïve 漢字 🚪'", "''", "'x '", "repeat('🚪', 20)")),
    Type("varchar(900)", ("repeat('🚪', 900)",)),
    Type("text", ("''", r"E'a\tb\\c\nd'", "repeat('long ', 50000)")),
    Type("date", ("'0001-01-01'", "'9999-12-31'")),
    Type("time", ("'00:00:00'", "'24:00:00'", "'23:59:59.999999'"), **TIME),
    Type("time(3)", ("'23:59:59.999'",)),
    Type("timestamp", ("'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'"), **TIME),
    Type("timestamptz", ("'1900-01-01 00:00:00+00'", "'9999-12-31 23:59:59.999999+00'"), **WALL),
    Type("interval", ("'-178000000 years'", "'1 mon 2 days 03:04:05.000006'")),
    Type("bytea", (r"'\x'", r"'\x00ff0a09'"), put="UNHEX(SUBSTR(%s, 3))", get=r"CONCAT('\\x', LOWER(HEX({})))"),
    Type("json", ("'{\"a\": 1}'",)),
    Type("jsonb", ("'{\"b\": [1, null]}'", "'\"\"'")),
    Type("uuid", ("'44350cb3-8ab4-d5f9-47b0-0e004d0b65f8'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'")),
    Type("inet", ("'10.0.0.1/8'", "'1234:1234:1234:1234:1234:1234:1234:1234/127'")),
    Type("inet", ("'10.0.0.1'", "'::1'"), out="concat({})"),
    Type("cidr", ("'10.0.0.0/8'",)),
    Type("macaddr", ("'08:00:2b:01:02:03'",)),
    Type("macaddr8", ("'08:00:2b:01:02:03:04:05'",)),
    Type("bit(1)", ("B'1'",), **in_bits(1)),
    Type("bit(64)", (f"B'{'1' * 64}'",), **in_bits(64)),
    Type("mood", ("'glad'", "'so, so'")),
    Type("integer[]", ("'{}'", "'{1,NULL,-2147483648}'"), **JSON),
    Type("text[]", ('\'{"x\\"y","",NULL}\'',), **JSON),
    Type("numeric(12,2)[]", ("'{1.50,NULL}'",), **JSON),
    Type("date[]", ("'{2026-02-28}'",), **JSON),
    Type("int4range", ("'[1,5)'", "'empty'", "'[-2147483648,2147483647)'")),
    Type("int8range", ("'[-9223372036854775808,9223372036854775807)'",)),
    Type("daterange", ("'[4713-01-01 BC,5874897-12-31)'",)),
    Type("tsrange", ("'[4713-01-01 BC,294276-12-31 23:59:59.999999]'",)),
    Type("tstzrange", ("'[4713-01-01 BC,294276-12-31 23:59:59.999999]'",)),
    Type("numrange", ("'[1.5,1e100]'",)),
    Type("short", ("'abcde'",)),
]

POSTGRESQL_ONLY = [
    Type("numeric", ("'NaN'", "'Infinity'", "'-Infinity'", "-123456789012345678901234567890.123456789", "1e-300")),
    Type("numeric(12,2)", ("'NaN'",)),
    Type("real", ("'NaN'", "'-Infinity'", "3.4028235e38")),
    Type("double precision", ("'NaN'", "'-Infinity'", "5e-324")),
    Type("date", ("'infinity'", "'-infinity'", "'4713-01-01 BC'", "'5874897-12-31'")),
    Type("timestamp", ("'infinity'", "'-infinity'", "'4713-01-01 00:00:00 BC'", "'294246-12-31 23:59:59.999999'")),
    Type("timestamptz", ("'infinity'", "'-infinity'", "'4713-01-01 00:00:00+00 BC'", "'294276-12-31 23:59:59+00'")),
    Type("interval(3)", ("'1 mon -2 days 03:04:05.006'",)),
    Type("bit(70)", (f"B'{'01' * 35}'",)),
    Type("point", ("'(1.5,-2)'",)),
    Type("char(700)", ("'x'",)),
    Type("smallint[]", ("'{-32768,NULL}'", "'{}'")),
    Type("bigint[]", ("'{-9223372036854775808}'",)),
    Type("boolean[]", ("'{t,f,NULL}'",)),
    Type("real[]", ("'{1.5,NULL}'",)),
    Type("double precision[]", ("'{1.5,-1e300}'",)),
    Type("uuid[]", ("'{44350cb3-8ab4-d5f9-47b0-0e004d0b65f8}'",)),
    Type("varchar(9)[]", ("'{a,NULL}'",)),
    Type("timestamp[]", ("'{2026-01-02 03:04:05.678901}'",)),
    Type("timestamptz[]", ("'{2026-01-02 03:04:05.678901+00}'",)),
]
"""With values that only PostgreSQL has."""

DIGITS: dict[str, Any] = {"out": "CAST({} AS CHAR)", "get": "{}::text"}
HEX: dict[str, Any] = {"out": "HEX({})", "put": "decode(%s, 'hex')", "get": "upper(encode({}, 'hex'))"}

MARIADB = [
    Type("tinyint", ("-128", "127")),
    Type("tinyint unsigned", ("255",)),
    Type("boolean", ("true",)),
    Type("smallint", ("-32768",)),
    Type("smallint unsigned", ("65535",)),
    Type("mediumint", ("-8388608",)),
    Type("mediumint unsigned", ("16777215",)),
    Type("int", ("-2147483648",)),
    Type("int unsigned", ("4294967295",)),
    Type("bigint", ("-9223372036854775808",)),
    Type("bigint unsigned", ("18446744073709551615",)),
    Type("decimal(12,2)", ("-9999999999.99",)),
    Type("decimal(65,30)", ("-" + "9" * 35 + "." + "9" * 30,)),
    Type("float", ("1.5",), read=float),
    Type("double", ("-1.7976931348623157e308", "0.1"), read=float),
    Type("bit(1)", ("b'1'",), out="LPAD(BIN({}), 1, '0')"),
    Type("bit(64)", (f"b'{'1' * 64}'",), out="LPAD(BIN({}), 64, '0')"),
    Type("char(5)", ("'ab'", "''")),
    Type("char(0)", ("''",)),
    Type("varchar(20)", ("'naïve 漢字 🚪'", "'x '", "repeat('🚪', 20)")),
    Type("tinytext", ("repeat('x', 255)",)),
    Type("text", (r"'a\tb\\c\nd'", "repeat('x', 65535)")),
    Type("mediumtext", ("repeat('x', 100000)",)),
    Type("longtext", ("''",)),
    Type("binary(4)", ("x'00ff'",), **HEX),
    Type("varbinary(9)", ("x'00ff0a09'", "''"), **HEX),
    Type("longblob", ("x'00ff'",), **HEX),
    Type("date", ("'1000-01-01'", "'9999-12-31'")),
    Type("time", ("'838:59:59'",), read=lambda text: text.lstrip("0")),
    Type("time(6)", ("'-838:59:59.000001'",)),
    Type("datetime", ("'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'")),
    Type("datetime(6)", ("'9999-12-31 23:59:59.999999'",)),
    Type("timestamp(6) NULL", ("'2038-01-19 03:14:07.999999'",), get="({} AT TIME ZONE 'UTC')::text"),
    Type("year", ("1901", "2155")),
    Type("enum('glad','so so')", ("'so so'", "'glad'")),
    Type("set('a','b','c')", ("'a,c'", "''")),
    Type("json", ("'{\"a\": [1, null]}'",)),
    Type("uuid", ("'5e045c13-0000-4000-8000-000000000001'",)),
]

GEOMETRIES = [
    Type("point", ("ST_GeomFromText('POINT(1.5 -2.25)', 4326)", "ST_GeomFromText('POINT(1e300 -1e-300)')")),
    Type("geometry", ("ST_GeomFromText('LINESTRING(0 0, 1 1)', 7)", "ST_GeomFromText('POINT(0 0)')")),
    Type("polygon", ("ST_GeomFromText('POLYGON((0 0, 4 0, 4 4, 0 0), (1 1, 2 1, 2 2, 1 1))')",)),
    Type("multipoint", ("ST_GeomFromText('MULTIPOINT(0 0, 1 1)')",)),
    Type("geometrycollection", ("ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1), LINESTRING(0 0, 1 1))')",)),
]
"""Of MySQL and MariaDB, which no sink of another kind has."""


def columns(types: list[Type]) -> str:
    return ", ".join(f"c{number} {type_.declared}" for number, type_ in enumerate(types))
