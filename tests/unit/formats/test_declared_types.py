"""Expressions over events without schemas, whose types are those of the source's catalogue."""

import base64
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Context, Decimal

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headgate.config.columns import ColumnOptions
from headgate.config.expressions import Expression, Kind
from headgate.formats.change import ABSENT, BINARY, COMPUTED, CONNECTOR, TEXT_ONLY, Change, ChangeError, Operation, Row
from headgate.formats.decoding import UndecodableError
from headgate.formats.expressions.computed import SENT_FORMS
from headgate.formats.expressions.declared import SourceColumn, SourceTypes, SourceTypesUnavailableError
from headgate.formats.expressions.evaluation import Evaluation
from headgate.formats.json_values import exact_decoder
from headgate.formats.shaping import Shaping
from headgate.formats.time_units import MICROS, other_unit
from support.expressions import COLUMNS, EPOCH, MEANINGS, ROWS, expressions, text_of

POSTGRESQL = {CONNECTOR: "postgresql"}
MARIADB = {CONNECTOR: "mariadb"}
DECLARED = {
    "i": SourceColumn(Kind.INTEGER), "j": SourceColumn(Kind.INTEGER), "n": SourceColumn(Kind.NUMERIC, scale=2),
    "m": SourceColumn(Kind.NUMERIC, scale=4), "t": SourceColumn(Kind.TEXT), "u": SourceColumn(Kind.TEXT),
    "b": SourceColumn(Kind.BOOLEAN), "c": SourceColumn(Kind.BOOLEAN), "d": SourceColumn(Kind.DATE),
    "s": SourceColumn(Kind.TIMESTAMP, is_fine=True),
}  # fmt: skip


class Catalogue:
    """Types as they are, and as they are after the first question about values that do not fit."""

    def __init__(self, types: SourceTypes, *later: SourceTypes) -> None:
        self.types, self.later = types, list(later)

    def known(self) -> SourceTypes:
        return self.types

    def again(self) -> SourceTypes:
        if self.later:
            self.types = self.later.pop(0)
        return self.types


def of(column: SourceColumn, *, is_debezium: bool = True, mode: str | None = None) -> Catalogue:
    return Catalogue(SourceTypes({"x": column}, is_debezium, mode))


def test_the_type_of_a_computed_column_is_that_of_its_values_when_the_source_is_altered() -> None:
    """Events of a decimal that is written as a text look the same before and after."""
    catalogue = of(SourceColumn(Kind.NUMERIC))
    shaping = Shaping(ColumnOptions.model_validate({"set": {"y": "x"}}), {}, None, catalogue)
    meaning = {CONNECTOR: "postgresql", "id": "int64", "x": "string"}

    def shaped() -> tuple[object, str]:
        row: Row = {"id": 1, "x": "1.50"}
        (change,) = shaping.shaped([Change(0, 0, Operation.UPSERT, {"id": 1}, row, None, 0, meaning)])
        return (change.row or {})["y"], (change.semantics or {})[COMPUTED]

    assert shaped() == (Decimal("1.50"), '{"y":"numeric"}')
    catalogue.types = SourceTypes({"x": SourceColumn(Kind.TEXT)})
    assert shaped() == ("1.50", '{"y":"text"}')


def read(catalogue: Catalogue | None, value: object, meaning: dict[str, str] | None = None) -> object:
    """The value as expressions have it."""
    evaluation = Evaluation("set.y", "x", lambda compute, _: compute, catalogue)
    return evaluation.known(POSTGRESQL if meaning is None else meaning)({"x": value})


def in_base64(number: Decimal, scale: int) -> str:
    unscaled = int(number.scaleb(scale, Context(prec=60)))
    return base64.b64encode(unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)).decode()


NUMERIC, WHOLE, ANY = (
    SourceColumn(Kind.NUMERIC, scale=2),
    SourceColumn(Kind.NUMERIC, scale=0),
    SourceColumn(Kind.NUMERIC),
)
FINE, COARSE = SourceColumn(Kind.TIMESTAMP, is_fine=True), SourceColumn(Kind.TIMESTAMP)
UNSIGNED = SourceColumn(Kind.INTEGER, is_unsigned=True)
HALF = 1_709_208_000_500_000


@pytest.mark.parametrize(
    ("column", "value", "found"),
    [
        (NUMERIC, "10.50", Decimal("10.5")),
        (NUMERIC, "-0.01", Decimal("-0.01")),
        (NUMERIC, Decimal("10.50"), Decimal("10.5")),
        (NUMERIC, 10, Decimal(10)),
        (SourceColumn(Kind.NUMERIC, scale=7), "1E-7", Decimal("0.0000001")),
        (WHOLE, "123", Decimal(123)),
        (WHOLE, "-1234", Decimal(-1234)),
        (ANY, "12345", Decimal(12345)),
        (ANY, {"scale": 3, "value": "AfQ="}, Decimal("0.5")),
        (FINE, HALF, HALF),
        (FINE, "2024-02-29T12:00:00.5Z", HALF),
        (COARSE, HALF // 1000, HALF),
        (COARSE, "2024-02-29T12:00:00.500", HALF),
        (SourceColumn(Kind.DATE), 19782, 19782),
        (SourceColumn(Kind.DATE), "2024-02-29Z", 19782),
        (SourceColumn(Kind.TIMESTAMPTZ), "2024-02-29T14:00:00.5+02:00", HALF),
        (SourceColumn(Kind.BOOLEAN), True, True),
        (SourceColumn(Kind.TEXT), "10.50", "10.50"),
        (SourceColumn(Kind.INTEGER), -5, -5),
        (SourceColumn(Kind.UNKNOWN), True, True),
        (SourceColumn(Kind.UNKNOWN), 1, 1),
        (UNSIGNED, 5, 5),
        (UNSIGNED, Decimal(18446744073709551615), 18446744073709551615),
        (FINE, 0, 0),
        # Times near 1970, as columns with the connector's defaults have them: no option could tell them apart.
        (FINE, -1_000_000, -1_000_000),
        (FINE, -631_152_000_000, -631_152_000_000),
        (COARSE, 1_000, 1_000_000),
        (COARSE, -63_072_000_000, -63_072_000_000_000),
        (COARSE, 253_402_300_799_999, 253_402_300_799_999_000),
    ],
)  # fmt: skip
def test_a_value_without_schema_is_of_its_columns_type(column: SourceColumn, value: object, found: object) -> None:
    got = read(of(column), value)
    assert (got, type(got)) == (found, type(found))
    assert read(of(column), None) is None


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        (NUMERIC, "ten", "cannot read as the type of its column"),
        (NUMERIC, "NaN", "cannot read"),
        (NUMERIC, "1_0.5", "cannot read"),
        *((column, "1234", "set source.decimal_handling_mode") for column in (NUMERIC, WHOLE, ANY)),
        *((column, "AfQ=", "does not show their scale, .* decimal.handling.mode=string") for column in (NUMERIC, ANY)),
        (UNSIGNED, "AfQ=", "bigint.unsigned.handling.mode=long"),
        (WHOLE, True, "cannot read"),
        (FINE, HALF // 1000, "seems to count milliseconds"),
        (FINE, HALF * 1000, "seems to count nanoseconds"),
        (COARSE, HALF, "seems to count microseconds"),
        (SourceColumn(Kind.DATE), HALF // 1000, "cannot read"),
        (FINE, "noon", "cannot read"),
        (SourceColumn(Kind.DATE), "20240229", "cannot read"),
        (SourceColumn(Kind.DATE), -622_191_234_000, "cannot read"),
        (SourceColumn(Kind.TIMESTAMPTZ), "2024-02-29T14:00:00", "cannot read"),
        (SourceColumn(Kind.BOOLEAN), 1, "cannot read"),
        (SourceColumn(Kind.INTEGER), "5", "cannot read"),
        (SourceColumn(Kind.INTEGER), True, "cannot read"),
        (SourceColumn(Kind.TEXT), 5, "cannot read"),
        (UNSIGNED, Decimal("1e999999999"), "cannot read"),
        (UNSIGNED, 5.5, "cannot read"),
        (UNSIGNED, -1, "bigint.unsigned.handling.mode=precise"),
        (NUMERIC, ABSENT, "REPLICA IDENTITY FULL"),
        (FINE, ABSENT, "REPLICA IDENTITY FULL"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_without_it(column: SourceColumn, value: object, why: str) -> None:
    with pytest.raises(ChangeError, match=why) as refused:
        read(of(column), value)
    assert str(refused.value).startswith("set.y: column x ")
    assert value is ABSENT or repr(value) not in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "text", "found"),
    [("string", "1234", Decimal(1234)), ("precise", {"scale": 3, "value": "AfQ="}, Decimal("0.5"))],
)
def test_the_feed_says_what_a_decimals_text_is(mode: str, text: object, found: Decimal) -> None:
    for column in (NUMERIC, WHOLE, ANY):
        assert read(of(column, mode=mode), text) == found


def test_bytes_are_never_read_by_the_scale_that_the_column_has_now() -> None:
    for scale in (0, 2, None):
        for mode in (None, "precise", "string"):
            with pytest.raises(ChangeError):
                read(of(SourceColumn(Kind.NUMERIC, scale=scale), mode=mode), in_base64(Decimal("10.50"), 2))
            if mode != "string":
                with pytest.raises(ChangeError):
                    read(of(SourceColumn(Kind.NUMERIC, scale=scale), mode=mode), "1234")


def test_digits_are_refused_where_the_connector_writes_bytes() -> None:
    with pytest.raises(ChangeError, match="cannot read"):
        read(of(WHOLE, mode="string"), "AfQ=")
    with pytest.raises(ChangeError, match="does not show their scale"):
        read(of(NUMERIC, mode="precise"), "10.50")


@pytest.mark.parametrize(
    ("column", "value", "found"),
    [
        (SourceColumn(Kind.INTEGER), "5", 5),
        (SourceColumn(Kind.INTEGER), 5, 5),
        (UNSIGNED, "18446744073709551615", 18446744073709551615),
        (NUMERIC, "10.50", Decimal("10.5")),
        (WHOLE, "1234", Decimal(1234)),
        (NUMERIC, Decimal("10.50"), Decimal("10.5")),
        (NUMERIC, 10, Decimal(10)),
        (SourceColumn(Kind.DATE), "2024-02-29", 19782),
        (COARSE, "2024-02-29 12:00:00.5", HALF),
        (SourceColumn(Kind.TIMESTAMPTZ), "2024-02-29 12:00:00.5", HALF),
        (SourceColumn(Kind.TEXT), "5", "5"),
    ],
)
def test_other_formats_have_the_databases_texts(column: SourceColumn, value: object, found: object) -> None:
    got = read(of(column, is_debezium=False), value, {BINARY: TEXT_ONLY})
    assert (got, type(got)) == (found, type(found))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (SourceColumn(Kind.INTEGER), Decimal("5.5")),
        (UNSIGNED, Decimal("1e999999999")),
        (SourceColumn(Kind.INTEGER), "x"),
        (NUMERIC, True),
        (COARSE, 5),
    ],
)
def test_other_texts_are_refused(column: SourceColumn, value: object) -> None:
    with pytest.raises(ChangeError, match="cannot read"):
        read(of(column, is_debezium=False), value, {BINARY: TEXT_ONLY})


@pytest.mark.parametrize(
    ("column", "meaning", "value", "found"),
    [
        (NUMERIC, "string", "10.50", Decimal("10.5")),
        (WHOLE, "string", "1234", Decimal(1234)),
        (SourceColumn(Kind.TEXT), "string", "1234", "1234"),
        (SourceColumn(Kind.UNKNOWN), "string", "1234", "1234"),
        (SourceColumn(Kind.DATE), "io.debezium.time.IsoDate", "2024-02-29Z", 19782),
        (FINE, "io.debezium.time.IsoTimestamp", "2024-02-29T12:00:00.5Z", HALF),
        (UNSIGNED, "org.apache.kafka.connect.data.Decimal(0)", in_base64(Decimal(1 << 63), 0), 1 << 63),
        (WHOLE, "org.apache.kafka.connect.data.Decimal(0)", "AfQ=", Decimal(500)),
        (UNSIGNED, "int64", 5, 5),
        (SourceColumn(Kind.INTEGER), "int64", -5, -5),
    ],
)  # fmt: skip
def test_schemas_that_leave_the_type_open(column: SourceColumn, meaning: str, value: object, found: object) -> None:
    got = read(of(column), value, {**MARIADB, "x": meaning})
    assert (got, type(got)) == (found, type(found))


def test_a_number_that_was_wrapped_around_is_refused_with_a_schema_too() -> None:
    with pytest.raises(ChangeError, match=r"bigint\.unsigned\.handling\.mode=precise"):
        read(of(UNSIGNED), -1, {**MARIADB, "x": "int64"})
    assert read(None, -1, {**MARIADB, "x": "int64"}) == -1


def test_types_are_read_again_where_a_value_does_not_fit() -> None:
    catalogue = Catalogue(SourceTypes({"x": SourceColumn(Kind.INTEGER)}), SourceTypes({"x": SourceColumn(Kind.TEXT)}))
    evaluation = Evaluation("set.y", "x", lambda compute, _: compute, catalogue)
    first = evaluation.known(POSTGRESQL)
    assert first({"x": 5}) == 5
    assert first({"x": "five"}) == "five"
    with pytest.raises(ChangeError, match="cannot read"):
        evaluation.known(POSTGRESQL)({"x": 5})


def test_altered_columns_have_their_new_types_in_the_next_batch() -> None:
    catalogue = Catalogue(SourceTypes({"x": SourceColumn(Kind.TEXT)}))
    evaluation = Evaluation("set.y", "x || '!'", lambda compute, _: compute, catalogue)
    assert evaluation.known(POSTGRESQL)({"x": "a"}) == "a!"
    catalogue.types = SourceTypes({"x": SourceColumn(Kind.INTEGER)})
    with pytest.raises(ChangeError, match="needs text"):
        evaluation.known(POSTGRESQL)
    catalogue.types = SourceTypes({"z": SourceColumn(Kind.INTEGER)})
    with pytest.raises(ChangeError, match="the source's table does not have the columns x"):
        evaluation.known(POSTGRESQL)


class Silent:
    def known(self) -> SourceTypes:
        raise SourceTypesUnavailableError("no answer")

    again = known


def test_only_what_needs_the_catalogue_waits_for_it() -> None:
    shaping = Shaping(ColumnOptions(), {}, "x > 5", Silent())
    with_schema = {**POSTGRESQL, "x": "int64"}
    change = Change(0, 0, Operation.UPSERT, {"x": 7}, {"x": 7}, None, 0, with_schema)
    assert shaping.shaped([change]) == [change]
    gone = Change(0, 0, Operation.DELETE, {"x": 7}, None, None, 0, POSTGRESQL)
    assert shaping.shaped([gone]) == [gone]
    with pytest.raises(SourceTypesUnavailableError):
        shaping.shaped([Change(0, 0, Operation.UPSERT, {"x": 7}, {"x": 7}, None, 0, POSTGRESQL)])
    assert Shaping(ColumnOptions(), {}, "TRUE", Silent()).shaped([change]) == [change]


def test_a_bad_change_does_not_hold_back_those_before_it() -> None:
    shaping = Shaping(ColumnOptions(), {}, "x > 5", of(NUMERIC))
    changes = [
        Change(0, offset, Operation.UPSERT, {"id": offset}, {"x": value}, None, 0, POSTGRESQL)
        for offset, value in enumerate(("7.00", "3.00", "seven"))
    ]
    with pytest.raises(UndecodableError) as refused:
        shaping.shaped(changes)
    assert [(change.offset, change.operation) for change in refused.value.decoded] == [
        (0, Operation.UPSERT), (1, Operation.DELETE),
    ]  # fmt: skip
    assert "seven" not in str(refused.value)


JSON = exact_decoder(dict[str, object])
DECIMALS = ("string", "number")


def as_event(row: Row, decimals: str, *, iso: bool) -> Row:
    """The row as a connector writes it, and as it is decoded."""
    written = dict(row)
    for name, scale in (("n", 2), ("m", 4)):
        number = row[name]
        if isinstance(number, Decimal):
            digits = f"{number:.{scale}f}"
            written[name] = {
                "string": digits,
                "precise": in_base64(number, scale),
                "number": msgspec.Raw(digits.encode()),
            }[decimals]
    if iso and row["d"] is not None:
        written["d"] = f"{EPOCH + timedelta(days=row['d'])}Z"  # type: ignore[arg-type]
    if iso and row["s"] is not None:
        written["s"] = f"{(datetime(1970, 1, 1) + timedelta(microseconds=row['s'])).isoformat()}Z"  # type: ignore[arg-type]
    return JSON.decode(msgspec.json.encode(written))


def outcome(compute: Callable[[Row], object], row: Row) -> object:
    try:
        return compute(row)
    except ChangeError as error:
        return str(error)


FORMS = st.tuples(st.sampled_from(DECIMALS), st.booleans())
DRAWN = st.sampled_from(sorted(set(COLUMNS.values()))).flatmap(lambda kind: expressions(kind, 2))


@settings(max_examples=600, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(expression=DRAWN, row=ROWS, form=FORMS)
def test_an_expression_has_the_same_value_with_and_without_schemas(
    expression: Expression, row: Row, form: tuple[str, bool]
) -> None:
    text = text_of(expression)
    evaluation = Evaluation(
        "x",
        text,
        lambda compute, kind: lambda row: (compute(row), kind, SENT_FORMS.get(kind)),
        Catalogue(SourceTypes(DECLARED)),
    )
    with_schema, without = evaluation.of({**POSTGRESQL, **MEANINGS}), evaluation.of(POSTGRESQL)
    if isinstance(row["s"], int) and other_unit(row["s"], MICROS):
        form = form[0], True  # what it counts is doubtful, so the number would be refused
    assert outcome(without, as_event(row, form[0], iso=form[1])) == outcome(
        with_schema, as_event(row, "precise", iso=False)
    )


def test_a_long_decimal_keeps_every_digit() -> None:
    number = Decimal("-19444881198173346643.9960154291")
    text = in_base64(number, 10)
    assert read(of(SourceColumn(Kind.NUMERIC, scale=10)), f"{number:f}") == number
    assert read(None, text, {**POSTGRESQL, "x": "org.apache.kafka.connect.data.Decimal(10)"}) == number
