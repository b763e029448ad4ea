"""Every type with values at its extremes, empty and longest, as they go through the real connectors.

Those of ``every_type.py`` are written to databases directly; there are more here, and values that connectors change.
"""

import json
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from support.every_type import AS_TEXT, ENUMS, HEX, TIME, WALL, Type, columns, in_bits

__all__ = [
    "ALTERED_MARIADB",
    "ALTERED_POSTGRESQL",
    "AS_TEXT",
    "DOMAINS",
    "ENUMS",
    "MARIADB",
    "NOT_COPIED",
    "POSTGRESQL",
    "POSTGRESQL_ONLY",
    "Type",
    "columns",
]


def in_json(element: Callable[[str], object] = str) -> dict[str, Any]:
    """An array, which is JSON at MariaDB. Digits are compared, not whether they are a number or a text."""

    def read(text: str) -> object:
        found = json.loads(text, parse_int=str, parse_float=str)
        return [None if each is None else element(each) for each in found]

    return {"out": "to_jsonb({})::text", "read": read}


def moment(text: str) -> str:
    """A timestamp in UTC without the letters of ISO 8601, and without zeros at its end."""
    found = text.replace("T", " ").removesuffix("Z").removesuffix("+00:00")
    return found.rstrip("0").rstrip(".") if "." in found else found


def double(text: str) -> str:
    """A number of double precision, which NaN is, too."""
    return repr(float(text))


def single(text: str) -> float:
    """A number of single precision, however many digits it is shown with."""
    found: float = struct.unpack("f", struct.pack("f", float(text)))[0]
    return found


SINGLE: dict[str, Any] = {"read": single, "get": "CAST(CAST({} AS DOUBLE) AS CHAR)"}


ISO_INTERVAL = (
    "CASE WHEN {0} IS NOT NULL THEN format('P%sY%sM%sDT%sH%sM%sS', "
    + ", ".join(
        f"trim_scale(extract({part} FROM {{0}}))" for part in ("year", "month", "day", "hour", "minute", "second")
    )
    + ") END"
)
"""An interval as the connector writes it."""

DOMAINS = ("CREATE DOMAIN short AS varchar(5) CHECK (VALUE <> 'x')", "CREATE DOMAIN shorts AS varchar(5)[]")
"""What a PostgreSQL needs for these types."""

POSTGRESQL = [
    Type("smallint", ("-32768", "32767")),
    Type("integer", ("-2147483648", "2147483647")),
    Type("bigint", ("-9223372036854775808", "9223372036854775807")),
    Type("oid", ("0", "4294967295")),
    Type("numeric(12,2)", ("-9999999999.99", "9999999999.99", "0.00")),
    Type("numeric(65,30)", ("-" + "9" * 35 + "." + "9" * 30,)),
    Type("numeric(5)", ("-99999",)),
    Type("numeric(5,-2)", ("9999900",)),
    Type("numeric(3,5)", ("-0.00999",)),
    Type("real", ("-3.4e38", "1.5", "0.1", "1.17549435e-38"), **SINGLE),
    Type("double precision", ("-1.7976931348623157e308", "5e-324", "0.1", "'-0'"), read=float),
    Type("money", ("'-92233720368547758.08'", "'92233720368547758.07'"), out="{}::numeric::text"),
    Type("boolean", ("true", "false"), put="%s = 'true'", get="ELT({} + 1, 'false', 'true')"),
    Type("char(5)", ("'ab'", "''", "'漢字漢字🚪'")),
    Type("char(300)", ("repeat('🚪', 300)",), out="rtrim({})"),
    Type("varchar(20)", ("'naïve 漢字 🚪'", "''", "'x '", "repeat('🚪', 20)")),
    Type("varchar(900)", ("repeat('🚪', 900)",)),
    Type("varchar", ("''", "'  '", r"E'\x01\x7f\u00a0\u2028\ufeff\uffff'")),
    Type("text", ("''", r"E'a\tb\\c\r\nd'", "repeat('long ', 50000)", "'__debezium'", "'null'")),
    Type("date", ("'0001-01-01'", "'9999-12-31'", "'1582-10-04'", "'1582-10-15'", "'1900-02-28'")),
    Type("time", ("'00:00:00'", "'24:00:00'", "'23:59:59.999999'", "'00:00:00.000001'"), **TIME),
    Type("time(3)", ("'23:59:59.999'",)),
    Type("time(0)", ("'24:00:00'",)),
    Type(
        "timestamp",
        ("'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'", "'1582-10-10 01:02:03'", "'1969-12-31 23:59:59.5'"),
        read=moment,
    ),
    Type("timestamp(3)", ("'0001-01-01 00:00:00.001'", "'1582-10-10 01:02:03.004'", "'9999-12-31 23:59:59.999'")),
    Type("timestamp(0)", ("'9999-12-31 23:59:59'",)),
    Type(
        "timestamptz",
        ("'0001-01-01 00:00:00+00'", "'9999-12-31 23:59:59.999999+00'", "'1582-10-10 01:02:03+00'"),
        **WALL,
    ),
    Type("interval", ("'-178000000 years'", "'1 mon -2 days 03:04:05.000006'", "'-0.5 s'", "'0'"), out=ISO_INTERVAL),
    Type(
        "bytea",
        (r"'\x'", r"'\x00ff0a09'", "decode(repeat('00ff', 50000), 'hex')"),
        put="UNHEX(SUBSTR(%s, 3))",
        get=r"CONCAT('\\x', LOWER(HEX({})))",
    ),
    Type("json", ("'{\"a\": 1}'", "'null'", "'1.10'", "' [1e400, 123456789012345678901234567890.5]'", "'\"\"'")),
    Type("jsonb", ("'{\"b\": [1, null]}'", "'\"\"'", "'null'", "'1.10'", "'[12345678901234567890.50]'")),
    Type("uuid", ("'44350cb3-8ab4-d5f9-47b0-0e004d0b65f8'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'")),
    Type(
        "inet",
        ("'10.0.0.1/8'", "'1234:1234:1234:1234:1234:1234:1234:1234/127'", "'10.0.0.1'"),
        read=lambda text: text.removesuffix("/32"),
    ),
    Type("cidr", ("'10.0.0.0/8'", "'::/0'", "'10.0.0.1'")),
    Type("macaddr", ("'08:00:2b:01:02:03'",)),
    Type("macaddr8", ("'08:00:2b:01:02:03:04:05'",)),
    Type("bit(1)", ("B'1'", "B'0'"), **in_bits(1)),
    Type("bit(10)", ("B'0000000101'", "B'0000000000'"), **in_bits(10)),
    Type("bit(64)", (f"B'{'1' * 64}'", f"B'{'0' * 64}'"), **in_bits(64)),
    Type("mood", ("'glad'", "'so, so'")),
    Type("smallint[]", ("'{-32768,NULL}'", "'{}'"), **in_json()),
    Type("integer[]", ("'{}'", "'{1,NULL,-2147483648}'"), **in_json()),
    Type("bigint[]", ("'{-9223372036854775808,9223372036854775807}'",), **in_json()),
    Type("boolean[]", ("'{t,f,NULL}'",), **in_json()),
    Type("real[]", ("'{1.5,NULL,-3.4e38}'",), **in_json(double)),
    Type("double precision[]", ("'{1.5,-1e300,NaN,-Infinity,5e-324}'",), **in_json(double)),
    Type("text[]", ('\'{"x\\"y","",NULL,"NULL","a,b","\\\\"," "}\'', "ARRAY[repeat('x', 3000)]"), **in_json()),
    Type("varchar(9)[]", ("'{a,NULL,\"\"}'",), **in_json()),
    Type("numeric(12,2)[]", ("'{1.50,NULL}'", "'{-9999999999.99}'"), **in_json(Decimal)),
    Type("numeric[]", ("'{123456789012345678901234567890.123456789,1e-20}'",), **in_json(Decimal)),
    Type("date[]", ("'{2026-02-28,NULL}'", "'{0001-01-01,9999-12-31}'"), **in_json()),
    Type("uuid[]", ("'{44350cb3-8ab4-d5f9-47b0-0e004d0b65f8,NULL}'",), **in_json()),
    Type("timestamp[]", ("'{2026-01-02 03:04:05.678901,NULL}'", "'{9999-12-31 23:59:59.999999}'"), **in_json(moment)),
    Type("timestamptz[]", ("'{2026-01-02 03:04:05.678901+00,NULL}'",), **in_json(moment)),
    Type("int4range", ("'[1,5)'", "'empty'", "'[-2147483648,2147483647)'", "'(,)'")),
    Type("int8range", ("'[-9223372036854775808,9223372036854775807)'",)),
    Type("daterange", ("'[4713-01-01 BC,5874897-12-31)'", "'[,infinity)'")),
    Type("tsrange", ("'[4713-01-01 BC,294276-12-31 23:59:59.999999]'", "'empty'")),
    Type("tstzrange", ("'[4713-01-01 BC,294276-12-31 23:59:59.999999]'",)),
    Type("numrange", ("'[1.5,1e100]'", "'(,0)'")),
    Type("short", ("'abcde'", "''")),
]

NOT_COPIED = frozenset({"interval", "mood", "short"}) | {t.declared for t in POSTGRESQL if t.declared.endswith("[]")}
"""Of these, what is not copied into a MariaDB: events have their own texts of an interval and an array, and the type of
an enum or a domain has a name of its own."""

POSTGRESQL_ONLY = [
    Type("numeric", ("'NaN'", "'Infinity'", "'-Infinity'", "-123456789012345678901234567890.123456789", "1e-300")),
    Type("numeric(12,2)", ("'NaN'",)),
    Type("real", ("'NaN'", "'-Infinity'", "3.4028235e38", "1e-45")),
    Type("double precision", ("'NaN'", "'-Infinity'", "5e-324", "'-0'")),
    Type("date", ("'infinity'", "'-infinity'", "'5874897-12-31'")),
    Type("timestamp", ("'infinity'", "'-infinity'", "'4713-01-01 00:00:00 BC'", "'294246-12-31 23:59:59.999999'")),
    Type("timestamptz", ("'infinity'", "'-infinity'", "'4713-01-01 00:00:00+00 BC'", "'294276-12-31 23:59:59+00'")),
    Type("interval(3)", ("'1 mon -2 days 03:04:05.006'",)),
    Type("bit(70)", (f"B'{'01' * 35}'",)),
    Type("point", ("'(1.5,-2)'", "'(1e300,-1e-300)'", "'(NaN,Infinity)'")),
    Type("char(700)", ("'x'",)),
    Type("json[]", ("ARRAY['{\"a\": 1}'::json, 'null', NULL]",)),
    Type("jsonb[]", ("ARRAY['{\"a\": 1}'::jsonb, '\"x\"', NULL]",)),
    Type("bytea[]", (r"ARRAY['\x00ff'::bytea, '\x', NULL]",)),
    Type("inet[]", ("'{10.0.0.1/8,NULL}'",)),
    Type("cidr[]", ("'{10.0.0.0/8}'",)),
    Type("macaddr[]", ("'{08:00:2b:01:02:03}'",)),
    Type("macaddr8[]", ("'{08:00:2b:01:02:03:04:05}'",)),
    Type("oid[]", ("'{0,4294967295,NULL}'",)),
    Type("char(5)[]", ("'{ab,abcde,NULL}'",)),
    Type("int4range[]", ("'{\"[1,5)\",empty,NULL}'",)),
    Type("int8range[]", ("'{\"[1,5)\"}'",)),
    Type("daterange[]", ("'{\"[2026-01-01,2026-01-05)\"}'",)),
    Type("tsrange[]", ("'{\"[2026-01-01,2026-01-05)\"}'",)),
    Type("tstzrange[]", ("'{\"[2026-01-01,2026-01-05)\"}'",)),
    Type("numrange[]", ("'{\"[1,5)\"}'",)),
    Type("date[]", ("'{infinity,-infinity}'",)),
    Type("timestamp[]", ("'{infinity,-infinity}'", "'{1582-10-15 00:00:00}'")),
    Type("timestamptz[]", ("'{infinity}'", "'{0001-01-01 00:00:00+00}'")),
    Type("numeric[]", ("'{1e300}'",)),
    Type("shorts", ("'{ab,NULL}'",)),
]
"""With values that only PostgreSQL has."""

ALTERED_POSTGRESQL = [
    Type("date", ("'4713-01-01 BC'",)),
    Type("date", ("'1582-10-10'",)),
    Type("date[]", ("'{4713-01-01 BC}'",)),
    Type("date[]", ("'{1582-10-10}'",)),
    Type("timestamp[]", ("'{0001-01-01}'",)),
    Type("timestamp[]", ("'{1582-10-10}'",)),
    Type("timestamptz[]", ("'{4713-01-01 BC}'",)),
    Type("timestamptz[]", ("'{1582-10-10}'",)),
    Type("integer[]", ("'{{1,2},{3,4}}'",)),
    Type("text[]", ("'[2:3]={1,2}'",)),
    Type("numeric[]", ("'{NaN}'",)),
    Type("numeric(5,2)[]", ("'{NaN}'",)),
    Type("point[]", ("'{\"(1,2)\"}'",)),
    Type("bit(3)[]", ("'{101}'",)),
    Type("interval[]", ("'{1 day}'",)),
    Type("short[]", ("'{abcde}'",)),
    Type("mood[]", ("'{glad,NULL}'",)),
    Type("bit varying(10)", ("B'0101'",)),
    Type("timetz", ("'24:00:00+02'",)),
    Type("time[]", ("'{23:59:59.999999}'",)),
    Type("timetz[]", ("'{23:59:59.999999+02}'",)),
]
"""With values that the connector changes."""

MARIADB = [
    Type("tinyint", ("-128", "127")),
    Type("tinyint unsigned", ("255",)),
    Type("boolean", ("true", "false", "-128", "127")),
    Type("smallint", ("-32768",)),
    Type("smallint unsigned", ("65535",)),
    Type("mediumint", ("-8388608",)),
    Type("mediumint unsigned", ("16777215",)),
    Type("int", ("-2147483648",)),
    Type("int unsigned", ("4294967295",)),
    Type("int(5) zerofill", ("42", "4294967295"), read=int),
    Type("bigint", ("-9223372036854775808",)),
    Type("bigint unsigned", ("18446744073709551615",)),
    Type("decimal(12,2)", ("-9999999999.99",)),
    Type("decimal(65,30)", ("-" + "9" * 35 + "." + "9" * 30,)),
    Type("decimal(65,0) unsigned", ("9" * 65,)),
    Type("decimal(38,38)", ("-0." + "9" * 38,)),
    Type("float", ("1.5", "-3.40282e38", "1.17549e-38", "0.1"), read=float),
    Type("float(7,2)", ("-12345.67",), read=float),
    Type("double", ("-1.7976931348623157e308", "0.1", "2.2250738585072014e-308"), read=float),
    Type("double unsigned", ("1.7976931348623157e308",), read=float),
    Type("bit(1)", ("b'1'", "b'0'"), out="LPAD(BIN({}), 1, '0')"),
    Type("bit(10)", ("b'0000000101'",), out="LPAD(BIN({}), 10, '0')"),
    Type("bit(64)", (f"b'{'1' * 64}'", "0"), out="LPAD(BIN({}), 64, '0')"),
    Type("char(5)", ("'ab'", "''", "'漢字漢字🚪'")),
    Type("char(0)", ("''",)),
    Type("varchar(20)", ("'naïve 漢字 🚪'", "'x '", "repeat('🚪', 20)", "''")),
    Type("varchar(9) CHARACTER SET latin1", ("'naïve €'",)),
    Type("varchar(9) CHARACTER SET ucs2", ("'漢字'",)),
    Type("varchar(9) CHARACTER SET utf8mb3", ("'漢字'",)),
    Type("varchar(9) CHARACTER SET cp1251", ("'Привет'",)),
    Type("varchar(9) COLLATE utf8mb4_bin", ("'x '",)),
    Type("tinytext", ("repeat('x', 255)",)),
    Type("text", (r"'a\tb\\c\r\nd'", "repeat('x', 65535)")),
    Type("text CHARACTER SET latin1", ("'naïve'",)),
    Type("mediumtext", ("repeat('x', 100000)",)),
    Type("longtext", ("''",)),
    Type("binary(4)", ("x'00ff'", "x'ff000000'"), **HEX),
    Type("varbinary(9)", ("x'00ff0a09'", "''", "x'0000'"), **HEX),
    Type("tinyblob", ("repeat(x'ff', 255)",), **HEX),
    Type("blob", ("repeat(x'00', 65535)",), **HEX),
    Type("mediumblob", ("''",), **HEX),
    Type("longblob", ("x'00ff'",), **HEX),
    Type("date", ("'1000-01-01'", "'9999-12-31'", "'0001-01-01'", "'1582-10-15'", "'1582-10-10'")),
    Type("time", ("'838:59:59'", "'00:00:00'"), read=lambda text: text.lstrip("0")),
    Type("time(3)", ("'-00:00:00.001'",)),
    Type("time(6)", ("'-838:59:59.000001'", "'-00:00:00.000001'", "'00:00:00'"), **TIME),
    Type("datetime", ("'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'1582-10-15 00:00:00'")),
    Type("datetime(3)", ("'0001-01-01 00:00:00.001'", "'9999-12-31 23:59:59.999'")),
    Type("datetime(6)", ("'9999-12-31 23:59:59.999999'", "'1582-10-04 01:02:03.000004'")),
    Type("timestamp NULL", ("'1970-01-01 00:00:01'",), get="({} AT TIME ZONE 'UTC')::text"),
    Type("timestamp(6) NULL", ("'2038-01-19 03:14:07.999999'",), get="({} AT TIME ZONE 'UTC')::text"),
    Type("year", ("1901", "2155")),
    Type("enum('glad','so so','漢字')", ("'so so'", "'glad'", "'漢字'")),
    Type("set('a','b','c')", ("'a,c'", "''")),
    Type(f"set({', '.join(repr(f's{number}') for number in range(64))})", ("18446744073709551615",)),
    Type("enum('','a')", ("1", "2")),
    Type("json", ("'{\"a\": [1, null]}'", "'null'", "'\"\"'", "'1.10'", "' [1e400]'")),
    Type("uuid", ("'5e045c13-0000-4000-8000-000000000001'",)),
]

ALTERED_MARIADB = [
    Type("date", ("'0000-01-01'",)),
    Type("date", ("'0000-00-00'",)),
    Type("date", ("'2020-00-01'",)),
    Type("datetime", ("'0000-00-00 00:00:00'",)),
    Type("datetime", ("'0000-01-01 00:00:00'",)),
    Type("datetime", ("'1582-10-10 01:02:03'",)),
    Type("datetime(6)", ("'2020-00-01 01:02:03'",)),
    Type("timestamp NULL", ("'0000-00-00 00:00:00'",)),
]
"""With values that the connector changes. They need a session without ``sql_mode``."""
