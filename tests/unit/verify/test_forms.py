"""Texts of two databases that say the same, and texts that nearly do."""

from itertools import product

import pytest

from headgate.verify.forms import Nature, forms_of, is_comparable

NUMBER, SINGLE, DOUBLE, BITS, TIME = Nature.NUMBER, Nature.SINGLE, Nature.DOUBLE, Nature.BITS, Nature.TIME
LONG = "12345678901234567890123456789012345"


def equal(one: Nature, text: str, other: Nature, another: str, *, same_kind: bool = False) -> bool:
    forms = forms_of(one, other, same_kind=same_kind)
    return text == another if forms is None else bool(forms[0](text) == forms[1](another))


@pytest.mark.parametrize("same_kind", [True, False])
@pytest.mark.parametrize(
    ("one", "text", "other", "another"),
    [
        (NUMBER, "22.0000000000000000", NUMBER, "22"),
        (NUMBER, "-0.10", NUMBER, "-.1"),
        (NUMBER, f"{LONG}.110000000000000000000000000000", NUMBER, f"{LONG}.11"),
        (NUMBER, "NaN", NUMBER, "NaN"),
        (NUMBER, "Infinity", NUMBER, "Infinity"),
        (SINGLE, "0.1", SINGLE, "0.10000000149011612"),
        (SINGLE, "3.4028235e+38", SINGLE, "3.4028234663852886e38"),
        (SINGLE, "0.1", DOUBLE, "0.10000000149011612"),
        (DOUBLE, "1.2345678901234567e+19", DOUBLE, "1.2345678901234567e19"),
        (DOUBLE, "12345678901234567000", DOUBLE, "1.2345678901234567e+19"),
        (DOUBLE, "NaN", DOUBLE, "NaN"),
        (NUMBER, "0.5", DOUBLE, "0.5"),
        (NUMBER, "0.10", DOUBLE, "0.1"),
        (NUMBER, "100000000000000000000000", DOUBLE, "1e+23"),
        (NUMBER, "16777216", SINGLE, "1.6777216e+07"),
        (SINGLE, "1.2379401e+27", SINGLE, "1.2379400392853803e27"),
        (SINGLE, "1.2621775e-29", SINGLE, "1.262177448353619e-29"),
        (DOUBLE, "-Infinity", DOUBLE, "-Infinity"),
    ],
)
def test_numbers_are_compared_by_value(one: Nature, text: str, other: Nature, another: str, *, same_kind: bool) -> None:
    assert equal(one, text, other, another, same_kind=same_kind)
    assert equal(other, another, one, text, same_kind=same_kind)


@pytest.mark.parametrize("same_kind", [True, False])
@pytest.mark.parametrize(
    ("one", "text", "other", "another"),
    [
        (NUMBER, "9007199254740993", DOUBLE, "9007199254740992"),
        (NUMBER, "0.12345678901234567890", DOUBLE, "0.12345678901234568"),
        (NUMBER, "1e-400", DOUBLE, "0"),
        (NUMBER, "16777217", SINGLE, "16777216"),
        (DOUBLE, "0.1234567891", SINGLE, "0.12345679"),
        (NUMBER, "10", Nature.TEXT, "1_0"),
        (NUMBER, "10", Nature.TEXT, "\u0661\u0660"),
        (NUMBER, "10", Nature.TEXT, " 10"),
    ],
)
def test_a_number_that_another_type_would_round_differs(
    one: Nature, text: str, other: Nature, another: str, *, same_kind: bool
) -> None:
    assert not equal(one, text, other, another, same_kind=same_kind)
    assert not equal(other, another, one, text, same_kind=same_kind)


@pytest.mark.parametrize("same_kind", [True, False])
@pytest.mark.parametrize(
    ("nature", "text", "another"),
    [
        (NUMBER, f"{LONG}.0", f"{LONG[:-4]}{int(LONG[-4:]) + 1000}.0"),
        (NUMBER, "12345678901234567890123456789012345678.11", "12345678901234567890123456789019999999.99"),
        (NUMBER, "0." + "0" * 60 + "1", "0"),
        (NUMBER, "1", "NaN"),
        (SINGLE, "0.1", "0.10000001"),
        (DOUBLE, "12345678901234567000", "12345678901234570000"),
        (DOUBLE, "0.1", "0.10000000149011612"),
    ],
)
def test_numbers_that_differ_anywhere_differ(nature: Nature, text: str, another: str, *, same_kind: bool) -> None:
    assert not equal(nature, text, nature, another, same_kind=same_kind)


@pytest.mark.parametrize(
    ("one", "text", "other", "another"),
    [
        (BITS, "101", BITS, "00000101"),
        (BITS, "0", BITS, "00000000"),
        (BITS, "1", NUMBER, "1"),
        (BITS, "00000101", NUMBER, "5"),
        (BITS, "1" * 64, NUMBER, "18446744073709551615"),
        (TIME, "-01:00:00.000", TIME, "-01:00:00"),
        (TIME, "-838:59:59", TIME, "-838:59:59"),
        (TIME, "838:59:59.500", TIME, "34 days 22:59:59.5"),
        (TIME, "-25:00:00", TIME, "-1 days -01:00:00"),
        (TIME, "24:00:00.000000", TIME, "1 day"),
        (Nature.INSTANT, "2026-01-02 03:04:05.500000", Nature.INSTANT, "2026-01-02 03:04:05.5"),
        (Nature.JSON, '{"b": 1, "a": [null]}', Nature.JSON, '{"a":[null],"b":1}'),
        (Nature.JSON, "[1e2, 1.50, -0.0, 1.0]", Nature.JSON_VALUE, "[100, 1.50, 0.0, 1]"),
        (Nature.JSON, '{"a": 1e400}', Nature.JSON_VALUE, '{"a": 1' + "0" * 400 + "}"),
    ],
)
def test_what_databases_of_two_kinds_write_differently_is_equal(
    one: Nature, text: str, other: Nature, another: str
) -> None:
    assert equal(one, text, other, another)
    assert equal(other, another, one, text)


@pytest.mark.parametrize(
    ("nature", "text", "another"),
    [
        (BITS, "101", "1010"),
        (TIME, "-01:00:00", "01:00:00"),
        (TIME, "01:00:00", "01:00:00.000001"),
        (TIME, "1 mon", "30 days"),
        (Nature.JSON, "{}", "[]"),
        (Nature.JSON, "[0.1234567890123456789]", "[0.12345678901234568]"),
        (Nature.JSON, "[9007199254740993.0]", "[9007199254740992.0]"),
        (Nature.JSON, "[12345678901234567891234]", "[12345678901234567891235]"),
        (Nature.JSON, "[1e-400]", "[0.0]"),
        (Nature.JSON, "[1]", '["1"]'),
    ],
)
def test_what_differs_between_two_kinds_is_found(nature: Nature, text: str, another: str) -> None:
    assert not equal(nature, text, nature, another)


def test_bits_are_not_the_digits_of_a_number() -> None:
    assert not equal(BITS, "10", NUMBER, "10")
    assert not equal(NUMBER, "101", BITS, "101")


def test_any_text_of_any_nature_has_a_form() -> None:
    numbers = ("NaN", "-", ".", "1e999999", "1e400", "--5", "1e99999999999999999999")
    texts = (*numbers, "", "x", "1 day x", "\x00", "∞", "[" * 9_999)
    for one, other, same_kind in product(Nature, Nature, (True, False)):
        for form in forms_of(one, other, same_kind=same_kind) or ():
            for text in texts:
                assert form(text) == form(text)


@pytest.mark.parametrize(
    ("other", "text", "another", "is_equal"),
    [
        (Nature.NUMBER, "1.50", "1.5", True),
        (Nature.BITS, "0101", "101", True),
        (Nature.TIME, "01:02:03.500000", "01:02:03.5", True),
        (Nature.JSON, '{"a": 1}', '{"a":1}', True),
        (Nature.PADDED, "ab   ", "ab", True),
        (Nature.PADDED, " ab", "ab", False),
        (Nature.OTHER, "ab ", "ab", False),
    ],
)
def test_a_column_of_texts_is_compared_as_what_the_other_side_has(
    other: Nature, text: str, another: str, is_equal: bool
) -> None:
    assert equal(Nature.ANY, text, other, another) is is_equal
    assert equal(other, another, Nature.ANY, text) is is_equal


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Nature.MAP, Nature.JSON),
        (Nature.ARRAY, Nature.JSON),
        (Nature.ARRAY, Nature.TEXT),
        (Nature.ARRAY, Nature.ANY),
        (Nature.MAP, Nature.TEXT),
        (Nature.INTERVAL, Nature.ANY),
        (Nature.ZONED, Nature.TIME),
        (Nature.ZONED, Nature.TEXT),
        (Nature.BYTES, Nature.TEXT),
        (BITS, Nature.TEXT),
        (NUMBER, Nature.INSTANT),
    ],
)
def test_values_that_a_connector_writes_otherwise_are_not_compared(one: Nature, other: Nature) -> None:
    assert not is_comparable(one, other)
    assert not is_comparable(other, one)


@pytest.mark.parametrize("nature", Nature)
def test_every_nature_is_compared_with_itself(nature: Nature) -> None:
    assert is_comparable(nature, nature)


@pytest.mark.parametrize("same_kind", [True, False])
@pytest.mark.parametrize(
    ("one", "text", "another"),
    [
        (NUMBER, "22.5", "22.50"),
        (NUMBER, "1", "true"),
        (Nature.INSTANT, "2026-01-02 03:04:05.5", "2026-01-02 03:04:05.500"),
        (TIME, "26:03:04", "26:03:04.000"),
        (Nature.JSON, '{"a": 1}', '{"a":1}'),
        (Nature.PADDED, "a", "a  "),
        (Nature.OTHER, "3f6d", "3f6d"),
    ],
)
def test_a_column_of_texts_has_values_as_their_own_type_writes_them(
    one: Nature, text: str, another: str, *, same_kind: bool
) -> None:
    assert is_comparable(one, Nature.TEXT)
    assert equal(one, text, Nature.TEXT, another, same_kind=same_kind)
    assert equal(Nature.TEXT, another, one, text, same_kind=same_kind)
