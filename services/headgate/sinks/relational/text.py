r"""Converts values into the text form of COPY and LOAD DATA: tab-separated, backslash escapes, ``\N`` for NULL.

A column at a time, because a row at a time costs four times as much: strings that need no escape are found by one
search through the whole column.
"""

import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any, Final

import msgspec

from headgate.formats.change import DATA_ERRORS, TEXT_ONLY, reason_of
from headgate.formats.connectors import is_of_debezium, is_of_mysql
from headgate.formats.meaning import decimal_form
from headgate.sinks.relational.forms import DIVIDER, NULL_MARK, TextForm
from headgate.sinks.relational.times import NotTextError

NULL: Final = "\\N"
WKB_HEAD_BYTES: Final = 5
"""Of a geometry: the order of its bytes, and its type."""
_ESCAPES: Final = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal("
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Python's words → those that JSON events have, and databases read."""

DECIMAL_SCALE_MAX: Final = 16_383
"""Digits behind the point that PostgreSQL's numeric has at most; MySQL's decimal has 38."""
DECIMAL_BYTES_MAX: Final = 64 * 1024
"""Of the 131 072 + 16 383 digits that PostgreSQL's numeric has at most, as a number: 61 240."""
UTF8_BYTES_MAX: Final = 4
"""Bytes of one character in UTF-8."""
_WRITTEN_BYTES_MAX: Final = 1_024
"""2 466 digits."""

PLAIN_EXPONENT_MAX: Final = 20
"""Numbers up to 10^20, and down to 10^-20, are written without an exponent. 1e300 keeps it: an event must not make a
text much longer than itself."""

# In the words of Debezium's PostgreSQL connector.
_INFINITIES: Final = {"POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity", "NAN": "NaN"}
_JAVA_REFERENCE: Final = re.compile(r"\[L[\w.$]+;@[0-9a-f]+")

ToText = Callable[[object], str]

LosesAny = Callable[[str], bool]
"""Texts of a column, joined → whether one may have more than the column keeps."""


def escape(text: str) -> str:
    """A field's text with what would end it escaped."""
    for plain, escaped in _ESCAPES:
        if plain in text:
            text = text.replace(plain, escaped)
    return text


def unreadable(value: object, kind: str) -> NotTextError:
    """A value of a type that the column has no way to take."""
    return NotTextError(f"a {type(value).__name__} cannot be written to a column of type {kind}")


def base64_bytes(value: object, kind: str) -> bytes:
    """The bytes that a base64 text stands for."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return _base64(value)
        except ValueError as error:
            raise NotTextError(
                f"the value is not base64, as the event's schema or the column's type ({kind}) demands it. Check what "
                "wrote the event: Kafka Connect's JSON converter writes base64 there"
            ) from error
    raise unreadable(value, kind)


def bit_digits(value: object, kind: str) -> str:
    """The bits of a text whose schema declares a text, which is never base64."""
    if isinstance(value, str) and value and not value.strip("01"):
        return value
    raise NotTextError(
        f"the event's schema declares a text, and a column of type {kind} accepts only texts of 0 and 1. "
        "Give the column a text type"
    )


def scalar(kind: str, value: object) -> str:
    """A number, or a text as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("t" if value else "f") if kind == "boolean" else str(int(value))
    if isinstance(value, Decimal):
        return _plain_decimal(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = repr(value)
        return _NOT_FINITE.get(text, text)
    raise unreadable(value, kind)


def _plain_decimal(value: Decimal) -> str:
    """A decimal without an exponent, as a person would write it, unless that would add many zeros.

    With an exponent it looks like the text of a float, so that events in JSON and in Avro come to the same.
    """
    text = str(value)
    if "E" not in text or not value.is_finite():
        return text
    if abs(value.adjusted()) <= PLAIN_EXPONENT_MAX:
        return f"{value:f}"
    digits, _, exponent = text.partition("E")
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}e{exponent}"


def _unhex(text: str) -> bytes:
    return binascii.unhexlify(text)


def _base64(text: str) -> bytes:
    read = binascii.a2b_base64(text, strict_mode=True)
    # The last letter before the padding has bits that no byte takes: other texts would be the same bytes.
    if (
        text.endswith("=")
        and binascii.b2a_base64(read[len(read) - len(read) % 3 :], newline=False) != text[-4:].encode()
    ):
        raise ValueError("its last letter has bits that are not part of any byte")
    return read


def _url_safe(text: str) -> bytes:
    if "+" in text or "/" in text:
        raise ValueError("+ and / are not among its letters")
    return _base64(text.replace("-", "+").replace("_", "/"))


_WRITTEN: Final[dict[str, Callable[[str], bytes]]] = {
    "bytes": _base64,
    "base64": _base64,
    "base64-url-safe": _url_safe,
    "hex": _unhex,
}
"""How bytes become text, by the word of ``binary.handling.mode``; "bytes" are base64 in JSON."""
_BYTES_MEANINGS: Final = (DECIMAL, "io.debezium.data.Bits(")


def _refused_text(kind: str, mode: str | None, _value: str) -> bytes:
    if mode == TEXT_ONLY:
        raise NotTextError(f"the value is a text in the event, but a {kind} needs bytes. Give the column a text type")
    raise NotTextError(
        f"the value is a text by the event's schema, but a {kind} needs bytes. If the connector's "
        "binary.handling.mode is hex, base64 or base64-url-safe, set source.binary_handling_mode to the same. "
        "Otherwise give the column a text type"
    )


_HEX: Final = re.compile("(?:[0-9a-f]{4})+")
"""What is hexadecimal as Debezium writes it, and base64 as well."""


def wkb_of(value: object, kind: str) -> tuple[bytes, int]:
    """A geometry's bytes and its SRID, 0 without one, of the object that Debezium's connectors write for it."""
    parts = value if isinstance(value, dict) else {}
    wkb, srid = parts.get("wkb"), parts.get("srid")
    if isinstance(wkb, str):
        wkb = base64_bytes(wkb, kind)
    if not isinstance(wkb, bytes) or len(wkb) < WKB_HEAD_BYTES or not isinstance(srid, int | None):
        raise NotTextError("a geometry is expected as an object with wkb and srid, as Debezium's connectors write it")
    return wkb, srid or 0


def bytes_of(
    kind: str, meaning: str | None, mode: str | None, connector: str | None = None
) -> Callable[[object], bytes]:
    """The reader of a binary column's values: bytes as they are, a text as the event's schema, or the feed, defines.

    Hexadecimal digits are base64 as well, so nothing is guessed: a text whose schema declares only that it is one is
    refused, unless the feed names the ``mode`` (see changes.change.BINARY). Without a schema the connector's default
    holds, base64; of Debezium's ``connector`` a text that may be hexadecimal is refused.
    """
    is_open = meaning is None and mode is None and is_of_debezium(connector)
    if meaning is None:
        how = mode or "bytes"
    elif meaning == "bytes" or meaning.startswith(_BYTES_MEANINGS):
        how = "bytes"
    else:
        how = mode if meaning == "string" and mode not in (None, "bytes") else ""
    decode = _WRITTEN.get(how or "", partial(_refused_text, kind, mode))

    def read(value: object) -> bytes:
        if isinstance(value, bytes):
            return value
        if not isinstance(value, str):
            raise unreadable(value, kind)
        if is_open and _HEX.fullmatch(value) is not None:
            raise NotTextError(
                "the text may be base64 or hexadecimal, and the event has no schema: set source.binary_handling_mode "
                "to the connector's binary.handling.mode (bytes is its default), or let its events have a schema"
            )
        try:
            return decode(value)
        except NotTextError:
            raise
        except ValueError as error:
            raise NotTextError(
                f"the value is not {'base64' if how == 'bytes' else how}, as {kind} needs it: {error}. Check that "
                "source.binary_handling_mode (default bytes) is the connector's binary.handling.mode"
            ) from error

    return read


_json: Final = msgspec.json.Encoder(decimal_format="number")


def json_text(value: object) -> str:
    """JSON, from a text that is JSON already or from what was parsed of it. NaN and infinities become their names."""
    return value if isinstance(value, str) else json_value(_named(value))


def _named(value: object) -> object:
    if isinstance(value, list):
        for item in value:
            check_element(item)
        return [_named(item) for item in value]
    if isinstance(value, dict):
        return {name: _named(item) for name, item in value.items()}
    return _NOT_FINITE.get(repr(value), value) if isinstance(value, float) else value


def json_value(value: object) -> str:
    """JSON from what was parsed of it, a text being a JSON string, decimals with their digits."""
    return _json.encode(value).decode()


def decimal_scale(meaning: str | None) -> int | None:
    """The scale of base64 decimals, if the schema declares such values."""
    form = decimal_form(meaning)
    return None if form is None else form.scale


def numeric(scale: int | None, value: object) -> str:
    """A decimal, in any of the forms of ``decimal.handling.mode``."""
    if isinstance(value, dict) and value.keys() == {"scale", "value"}:  # io.debezium.data.VariableScaleDecimal
        return numeric(scale_in(value), value["value"])
    if scale is None or not isinstance(value, str | bytes):
        text = scalar("numeric", value)
        return _INFINITIES.get(text, text)
    digits = unscaled_digits(scale, value)
    return f"{digits}e{-scale}" if scale else digits


def scale_in(value: Mapping[str, object]) -> int:
    """The scale of an io.debezium.data.VariableScaleDecimal."""
    scale = value["scale"]
    if type(scale) is not int:  # int() of the Decimal 1e999999999 would fill the memory
        raise NotTextError(f"a {type(scale).__name__} is not the scale of a decimal")
    return scale


def unscaled_digits(scale: int, value: str | bytes) -> str:
    """The digits, and the sign, of a decimal that is sent as bytes; NotTextError for more than any database holds."""
    raw = base64_bytes(value, "a decimal")
    if len(raw) > DECIMAL_BYTES_MAX or abs(scale) > DECIMAL_SCALE_MAX:
        raise NotTextError(f"a decimal of {len(raw)} bytes and scale {scale} is larger than any database can store")
    unscaled = int.from_bytes(raw, "big", signed=True)
    # Python writes no integer of more than 4 300 digits, but any Decimal.
    return str(unscaled) if len(raw) <= _WRITTEN_BYTES_MAX else f"{Decimal(unscaled):f}"


def check_element(item: object) -> None:
    """NotTextError for what the connector makes of an array within an array: Java's name of it, and no values."""
    if isinstance(item, str) and item.startswith("[L") and _JAVA_REFERENCE.fullmatch(item):
        raise NotTextError(
            "the connector has lost the values of an array of several dimensions. Exclude the column "
            "(column.exclude.list)"
        )


def may_be_wrapped(meaning: str | None, connector: str | None) -> bool:
    """Whether a column's integers may be those of a ``bigint unsigned``: with a schema they are then "int64"."""
    return is_of_mysql(connector) and meaning in (None, "int64")


def not_wrapped(to_text: ToText) -> ToText:
    """For a column that is as wide as ``bigint unsigned``: what the connector may have wrapped around is refused.

    With ``bigint.unsigned.handling.mode=long``, its default, numbers above 2^63 - 1 arrive as negative ones, and
    nothing distinguishes them from those of a signed column.
    """

    def checked(value: object) -> str:
        if type(value) is int and value < 0:
            raise NotTextError(
                "the negative number may be a bigint unsigned above 9223372036854775807 that the connector has "
                "wrapped around. Set its bigint.unsigned.handling.mode=precise. If the source's column is signed, "
                "make the sink's column a bigint or a decimal of 19 digits"
            )
        return to_text(value)

    return checked


class Room(msgspec.Struct, frozen=True):
    """How long a text may be. A server cuts off spaces beyond it, or the end of a text, without an error."""

    characters: int | None = None
    octets: int | None = None
    """In UTF-8."""

    def check(self, text: str) -> None:
        """Raise NotTextError for a text that is too long."""
        if self.characters is not None and len(text) > self.characters:
            raise NotTextError(
                f"value too long: the text has {len(text)} characters, and the column takes {self.characters}. "
                "Widen the column to the source's length"
            )
        if self.octets is not None and len(text) * UTF8_BYTES_MAX > self.octets:
            size = len(text.encode(errors="surrogatepass"))
            if size > self.octets:
                raise NotTextError(
                    f"value too long: the text has {size} bytes, and the column takes {self.octets}. Give the column a "
                    "longer text type"
                )

    def surely_takes(self, longest: int) -> bool:
        """Whether texts of up to ``longest`` characters need no check one by one."""
        fits = self.characters is None or longest <= self.characters
        return fits and (self.octets is None or longest * UTF8_BYTES_MAX <= self.octets)


class ColumnText:
    """Writes the values of one column as fields. ``to_text`` writes one value that is not NULL, unescaped.

    ``strings_are_text``, ``integers_are_text``: what ``to_text`` would do to them is nothing, and ``str``; but strings
    outside of ``form`` are written one by one. What ``to_text`` makes of a string must be of that form and fit into
    ``room``. ``loses_any``: whether a column of texts of the form has one that ``to_text`` refuses. ``no_null``: why
    NULL is refused, where the server would put another value in its place.
    """

    def __init__(
        self,
        to_text: ToText,
        *,
        strings_are_text: bool = False,
        integers_are_text: bool = False,
        form: TextForm | None = None,
        loses_any: LosesAny | None = None,
        room: Room | None = None,
        no_null: str | None = None,
    ) -> None:
        self._to_text = to_text
        self._strings_are_text = strings_are_text
        self._integers_are_text = integers_are_text
        self._form = form
        self._loses_any = loses_any
        self._room = room
        self._no_null = no_null

    @property
    def checks_strings(self) -> bool:
        """Whether the server would take some strings for another value, so that each is checked."""
        return self._form is not None or self._room is not None

    def plain(self, value: object) -> str | None:
        """One value without escapes, None for NULL; NotTextError if the column cannot take it."""
        if value is not None:
            return self.written(value)
        if self._no_null is not None:
            raise NotTextError(self._no_null)
        return None

    def field(self, value: object) -> str:
        """One value; NotTextError if the column cannot take it."""
        text = self.plain(value)
        return NULL if text is None else escape(text)

    def written(self, value: object) -> str:
        """One value that is not NULL; NotTextError, about this value, whatever it does to the code that writes it."""
        try:
            text = self._to_text(value)
        except NotTextError:
            raise
        except DATA_ERRORS as error:
            raise NotTextError(f"it cannot be written: {reason_of(error)}") from error
        if isinstance(value, str):
            self._check(text)
        return text

    def _check(self, text: str) -> None:
        if self._form is not None and not self._form.takes(text):
            raise NotTextError(
                f"the text is invalid input for this column, which takes {self._form.expected}. The database would "
                f"refuse it or store another value. {self._form.advice}"
            )
        if self._room is not None:
            self._room.check(text)

    def fields(self, values: Sequence[object], types: set[type]) -> Sequence[str]:
        """All values of a part of the column; ``types`` are (at least) the types that occur."""
        kinds = types - {type(None)}
        nulls = len(kinds) < len(types)
        if nulls and self._no_null is not None:
            pass
        elif kinds == {str} and self._strings_are_text:
            fields = self._escape_all(values, nulls=nulls)
            if fields is not None:
                return fields
        elif kinds == {int} and self._integers_are_text:
            with suppress(ValueError):  # one has more digits than Python writes
                return [NULL if value is None else str(value) for value in values] if nulls else list(map(str, values))
        field = self.field
        return [field(value) for value in values]

    def _escape_all(self, values: Sequence[object], *, nulls: bool) -> Sequence[str] | None:
        """Strings and nulls as fields, by searching them all at once; None where they must be checked one by one."""
        strings: Any = [NULL_MARK if value is None else value for value in values] if nulls else values
        if self._room is not None and not self._room.surely_takes(max(map(len, strings), default=0)):
            return None
        column = DIVIDER.join(strings)
        if column.count(DIVIDER) != len(values) - 1 or column.count(NULL_MARK) != (values.count(None) if nulls else 0):
            return None  # the marks occur in the data
        if self._loses_any is not None and self._loses_any(column):
            return None
        if self._form is not None and not self._form.takes_all(column):
            return None
        escaped = escape(column)
        if nulls:
            escaped = escaped.replace(NULL_MARK, NULL)
        elif escaped is column:
            return values  # type: ignore[return-value]
        return escaped.split(DIVIDER)
