"""Digits in events without schemas may be a decimal's bytes in base64. They are taken only where that is known.

``1234`` is a number with decimal.handling.mode=string, and three bytes with precise, which is Debezium's default.
"""

import re
from itertools import product

import pyarrow as pa
import pytest

from headgate.formats import debezium_json
from headgate.formats.change import CONNECTOR, DECIMALS
from headgate.formats.decimal_bytes import is_base64
from headgate.sinks.lake.values import reader_of
from headgate.sinks.relational.forms import NUMBERS as NUMBERS_FORM
from headgate.sinks.relational.forms import without_base64
from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn
from headgate.sinks.relational.mysql.values import column_text as mysql_text
from headgate.sinks.relational.postgresql.values import column_text as postgresql_text
from headgate.sinks.relational.text import ColumnText
from headgate.sinks.relational.times import NotTextError

POSTGRESQL = ("numeric", "numeric(20,0)", "numeric(10,2)", "integer", "bigint", "double precision", "money")
MYSQL = ("decimal(20,0)", "decimal(10,2)", "bigint(20) unsigned", "int(11)", "double")
BYTES = ("1234", "12345678", "+123", "12e4", "1E+5")
NUMBERS = ("123", "12345", "12.34", "-123", "-1234", "0.00")


def columns(meaning: str | None, connector: str | None, mode: str | None, *, in_key: bool = False) -> list[ColumnText]:
    of_mysql = [MysqlSinkColumn(declared, re.split(r"[( ]", declared)[0], None, None) for declared in MYSQL]
    return [
        *(postgresql_text(declared, meaning, connector, None, mode, in_key=in_key) for declared in POSTGRESQL),
        *(mysql_text(column, meaning, connector, None, mode, in_key=in_key) for column in of_mysql),
    ]


@pytest.mark.parametrize("mode", [None, "precise"])
def test_digits_that_may_be_bytes_are_refused(mode: str | None) -> None:
    for column in [*columns(None, "postgresql", mode), *columns(None, "mariadb", mode, in_key=True)]:
        for text in BYTES:
            with pytest.raises(NotTextError, match="takes"):
                column.plain(text)
        with pytest.raises(NotTextError, match=r"source\.decimal_handling_mode"):
            column.fields(["123", "1234"], {str})
    read = reader_of(pa.decimal128(20, 2), None, None, "postgresql", mode)
    for text in BYTES:
        with pytest.raises(NotTextError, match=r"source\.decimal_handling_mode"):
            read(text)


def test_other_numbers_are_what_they_are() -> None:
    for column in columns(None, "postgresql", None)[::2][:2]:
        for text in NUMBERS:
            assert column.plain(text) == text
        assert column.fields([*NUMBERS, None], {str, type(None)}) == [*NUMBERS, "\\N"]
        assert column.plain(1234) == "1234"
    assert postgresql_text("numeric", None, "postgresql").plain("Infinity") == "Infinity"
    assert reader_of(pa.decimal128(20, 2), None, None, "postgresql")(1234) == 1234


@pytest.mark.parametrize(
    ("meaning", "connector", "mode"),
    [
        (None, "postgresql", "string"),
        ("string", "postgresql", None),
        (None, None, None),  # of Canal, and of change logs
        (None, "maxwell", None),
    ],
)
def test_digits_are_taken_where_no_bytes_can_be_meant(meaning: str | None, connector: str | None, mode: str) -> None:
    for column in columns(meaning, connector, mode):
        assert column.plain("1234") == "1234"
        assert column.fields(["1234", "5"], {str}) == ["1234", "5"]
    assert reader_of(pa.decimal128(20, 2), meaning, None, connector, mode)("1234") == 1234


def test_arrays_have_the_same_elements() -> None:
    with pytest.raises(NotTextError, match=r"source\.decimal_handling_mode"):
        postgresql_text("numeric(10,2)[]", None, "postgresql").plain(["1.25", "1234"])
    assert postgresql_text("numeric(10,2)[]", None, "postgresql", None, "string").plain(["1234"]) == '{"1234"}'


def test_what_the_feed_says_of_decimals_goes_along_with_events_without_schemas() -> None:
    payload = b'{"op":"c","after":{"id":1},"source":{"connector":"mysql"}}'
    change = debezium_json.DebeziumJsonDecoder(decimals="string").decode(b'{"id":1}', payload, 0, 1, 2)
    assert change is not None
    assert change.semantics == {CONNECTOR: "mysql", DECIMALS: "string"}


def test_sinks_and_expressions_agree_on_what_may_be_bytes() -> None:
    texts = [
        "".join(letters)
        for length in range(1, 9)
        for letters in product("1e+.-"[: 5 if length < 6 else 3], repeat=length)
    ]
    numbers = [text for text in texts if NUMBERS_FORM.takes(text)]
    assert {text for text in numbers if is_base64(text)} == {
        text for text in numbers if not without_base64(NUMBERS_FORM).takes(text)
    }
    assert "1e+1" in numbers
