"""Expressions drawn with their types, as text, and computed slowly: what compiled ones are compared with."""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import cache
from typing import Any, Final

from hypothesis import strategies as st

from headgate.config.expressions import EXTRACTED, TRUNCATED, Call, ColumnReference, Expression, Kind, Literal
from headgate.formats.change import ChangeError
from headgate.formats.expressions.functions import DATE_FIELDS
from headgate.formats.expressions.operators import divide_decimals

COLUMNS: Final[Mapping[str, Kind]] = {
    "i": Kind.INTEGER, "j": Kind.INTEGER, "n": Kind.NUMERIC, "m": Kind.NUMERIC, "t": Kind.TEXT, "u": Kind.TEXT,
    "b": Kind.BOOLEAN, "c": Kind.BOOLEAN, "d": Kind.DATE, "s": Kind.TIMESTAMP,
}  # fmt: skip
MEANINGS: Final = {
    "i": "int64", "j": "int64", "n": "org.apache.kafka.connect.data.Decimal(2)",
    "m": "org.apache.kafka.connect.data.Decimal(4)", "t": "string", "u": "string", "b": "boolean", "c": "boolean",
    "d": "io.debezium.time.Date", "s": "io.debezium.time.MicroTimestamp",
}  # fmt: skip
EPOCH: Final = date(1970, 1, 1)
TEXTS: Final = st.text("aAbZ%_\\1 -", max_size=4)

VALUES: Final[Mapping[Kind, st.SearchStrategy[Any]]] = {
    Kind.INTEGER: st.one_of(st.integers(-9, 9), st.integers(-(1 << 63), (1 << 63) - 1)),
    Kind.NUMERIC: st.decimals(-1000, 1000, places=2),
    Kind.TEXT: TEXTS,
    Kind.BOOLEAN: st.booleans(),
    Kind.DATE: st.integers(-1000, 40_000),
    Kind.TIMESTAMP: st.integers(-(10**15), 4 * 10**15),
}

ROWS: Final = st.fixed_dictionaries(
    {
        name: st.none() | (st.decimals(-10, 10, places=4) if name == "m" else VALUES[kind])
        for name, kind in COLUMNS.items()
    }
)


def literals(kind: Kind) -> st.SearchStrategy[Expression]:
    match kind:
        case Kind.INTEGER:
            return st.integers(0, 9).map(lambda n: Literal(kind, str(n)))
        case Kind.NUMERIC:
            return st.decimals(0, 100, places=1).map(lambda n: Literal(kind, f"{n:f}"))
        case Kind.TEXT:
            return TEXTS.map(lambda text: Literal(kind, text))
        case Kind.BOOLEAN:
            return st.sampled_from(["true", "false"]).map(lambda text: Literal(kind, text))
        case Kind.DATE:
            return st.integers(0, 30_000).map(lambda n: Literal(kind, (EPOCH + timedelta(days=n)).isoformat()))
        case _:
            return st.integers(0, 30_000).map(lambda n: Literal(kind, f"{EPOCH + timedelta(days=n)} 12:30:00.5"))


def _columns(kind: Kind) -> st.SearchStrategy[Expression]:
    return st.sampled_from([ColumnReference(name) for name, other in COLUMNS.items() if other is kind])


def _call(of: str, *operands: st.SearchStrategy[Expression], **more: Any) -> st.SearchStrategy[Expression]:
    return st.tuples(*operands).map(lambda drawn: Call(of, drawn, **more))


@cache
def expressions(kind: Kind, depth: int) -> st.SearchStrategy[Expression]:
    """Of one type, with so many levels of operators at most."""
    leaves = st.one_of(_columns(kind), literals(kind))
    if depth == 0:
        return leaves
    return st.one_of(leaves, *_composed(kind, depth - 1))


def _composed(kind: Kind, depth: int) -> list[st.SearchStrategy[Expression]]:
    def below(other: Kind) -> st.SearchStrategy[Expression]:
        return expressions(other, depth)

    condition = below(Kind.BOOLEAN)
    found = [
        _call("coalesce", below(kind), below(kind)),
        _call("case", condition, below(kind), condition, below(kind), below(kind)),
        _call("case", condition, below(kind), st.just(Literal(Kind.NULL, ""))),
        _call("nullif", below(kind), below(kind)),
    ]
    number = st.one_of(below(Kind.INTEGER), below(Kind.NUMERIC))
    match kind:
        case Kind.BOOLEAN:
            found += [_call("and", condition, condition, condition), _call("or", condition, condition)]
            found += [_call("not", condition)]
            found += [_call("like", below(Kind.TEXT), TEXTS.filter(_is_pattern).map(lambda t: Literal(Kind.TEXT, t)))]
            for other in VALUES:
                operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
                operand = number if other in (Kind.INTEGER, Kind.NUMERIC) else below(other)
                found += [st.builds(lambda of, *drawn: Call(of, drawn), operators, operand, operand)]
                found += [_call("in", operand, operand, literals(other)), _call("is null", operand)]
                found += [_call("in", operand, literals(other), literals(other))]
        case Kind.TEXT:
            found += [_call("||", below(kind), below(kind)), _call("lower", below(kind)), _call("upper", below(kind))]
            found += [
                _call("cast", below(other), to=kind)
                for other in (
                    Kind.INTEGER,
                    Kind.NUMERIC,
                    Kind.BOOLEAN,
                    Kind.DATE,
                    Kind.TIMESTAMP,
                )
            ]
            small = st.integers(-5, 5).map(_small)
            found += [_call(of, below(kind)) for of in ("trim", "ltrim", "rtrim")]
            found += [_call(of, below(kind), small) for of in ("left", "right", "substr")]
            found += [_call("substr", below(kind), small, small), _call("replace", *[below(kind)] * 3)]
            found += [_call("split_part", below(kind), below(kind), small), _call("concat", below(kind), below(kind))]
        case Kind.INTEGER:
            found += [_call(of, below(kind), below(kind)) for of in "+-*/"]
            found += [_call("neg", below(kind))]
            found += [_call("cast", below(other), to=kind) for other in (Kind.NUMERIC, Kind.TEXT)]
            found += [_call("cast", below(Kind.BOOLEAN), to=kind, precision=32)]
            found += [_call("abs", below(kind)), _call("length", below(Kind.TEXT))]
        case Kind.NUMERIC:
            found += [_call(of, below(kind), number) for of in "+-*/"]
            found += [_call("neg", below(kind)), _call("cast", number, to=kind, precision=6, scale=1)]
            found += [_call("cast", below(Kind.TEXT), to=kind), _call("abs", below(kind))]
            found += [_call("round", below(kind), st.integers(0, 3).map(lambda n: Literal(Kind.INTEGER, str(n))))]
            fields = st.sampled_from(EXTRACTED).map(lambda name: Literal(Kind.TEXT, name))
            found += [_call("extract", fields, below(Kind.TIMESTAMP))]
            of_dates = st.sampled_from(sorted(DATE_FIELDS)).map(lambda name: Literal(Kind.TEXT, name))
            found += [_call("extract", of_dates, below(Kind.DATE))]
        case Kind.DATE:
            found += [_call("cast", below(Kind.TIMESTAMP), to=kind)]
        case Kind.TIMESTAMP:
            units = st.sampled_from(TRUNCATED).map(lambda name: Literal(Kind.TEXT, name))
            found += [_call("cast", below(Kind.DATE), to=kind), _call("date_trunc", units, below(kind))]
    return found


def _small(number: int) -> Expression:
    return Literal(Kind.INTEGER, str(number)) if number >= 0 else Call("neg", (Literal(Kind.INTEGER, str(-number)),))


def _is_pattern(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 0


def text_of(expression: Expression, *, at_postgresql: bool = False) -> str:  # noqa: C901, PLR0911, PLR0912
    """The expression as people write it, every operand in brackets.

    ``at_postgresql``: as PostgreSQL computes the same, in which numbers have 32 bits and zeros at the end count.
    """
    if isinstance(expression, ColumnReference):
        return f'"{expression.name}"'
    if isinstance(expression, Literal):
        return _literal_text(expression, at_postgresql=at_postgresql)
    parts = [f"({text_of(operand, at_postgresql=at_postgresql)})" for operand in expression.operands]
    match expression.of:
        case "and" | "or":
            return f" {expression.of} ".join(parts)
        case "not":
            return f"NOT {parts[0]}"
        case "neg":
            return f"- {parts[0]}"
        case "is null":
            return f"{parts[0]} IS NULL"
        case "in":
            return f"{parts[0]} IN ({', '.join(parts[1:])})"
        case "like":
            return f"{parts[0]} LIKE {text_of(expression.operands[1], at_postgresql=at_postgresql)}"
        case "case":
            pairs = zip(parts[:-1:2], parts[1:-1:2], strict=True)
            return f"CASE {' '.join(f'WHEN {when} THEN {then}' for when, then in pairs)} ELSE {parts[-1]} END"
        case "cast":
            return _cast_text(expression, parts[0], at_postgresql=at_postgresql)
        case "left" | "right" | "substr" | "split_part" if at_postgresql:
            texts = 2 if expression.of == "split_part" else 1
            return f"{expression.of}({', '.join([*parts[:texts], *(f'{part}::int' for part in parts[texts:])])})"
        case "length" if at_postgresql:
            return f"length({parts[0]})::bigint"
        case "round":
            return f"round({parts[0]}, {text_of(expression.operands[1])})"
        case "date_trunc":
            return f"date_trunc({text_of(expression.operands[0])}, {parts[1]})"
        case "extract":
            return f"extract({text_of(expression.operands[0]).strip(chr(39))} FROM {parts[1]})"
        case name if name.isalpha() or name == "split_part":
            return f"{name}({', '.join(parts)})"
        case "/" if at_postgresql and kind_of(expression) is Kind.NUMERIC:
            return f"trim_scale({parts[0]}) / trim_scale({parts[1]})"
        case of:
            return f"{parts[0]} {of} {parts[1]}"


def _literal_text(given: Literal, *, at_postgresql: bool) -> str:
    quoted = "'" + given.text.replace("'", "''") + "'"
    match given.kind:
        case Kind.TEXT:
            return f'{quoted}::text COLLATE "C"' if at_postgresql else quoted
        case Kind.DATE | Kind.TIMESTAMP:
            return f"{given.kind} {quoted}"
        case Kind.INTEGER if at_postgresql:
            return f"{given.text}::bigint"
        case Kind.NULL:
            return "NULL"
    return given.text


def _cast_text(call: Call, operand: str, *, at_postgresql: bool) -> str:
    if call.to is Kind.INTEGER:
        if not at_postgresql:
            return f"CAST({operand} AS {'INTEGER' if call.precision == 32 else 'BIGINT'})"
        return f"CAST(CAST({operand} AS {'INTEGER' if call.precision == 32 else 'BIGINT'}) AS BIGINT)"
    if call.to is Kind.NUMERIC:
        return f"CAST({operand} AS NUMERIC{'' if call.precision is None else f'({call.precision}, {call.scale})'})"
    if at_postgresql and call.to is Kind.TEXT:
        operand = f"trim_scale({operand})" if kind_of(call.operands[0]) is Kind.NUMERIC else operand
        return f'CAST({operand} AS TEXT) COLLATE "C"'
    return f"CAST({operand} AS {call.to})"


_TEXT_FUNCTIONS: Final = frozenset(
    {"||", "lower", "upper", "trim", "ltrim", "rtrim", "left", "right", "substr", "replace", "split_part", "concat"}
)
_OF_KIND: Final = {
    "length": Kind.INTEGER, "round": Kind.NUMERIC, "extract": Kind.NUMERIC, "date_trunc": Kind.TIMESTAMP
}  # fmt: skip


def kind_of(expression: Expression) -> Kind:  # noqa: PLR0911 - one case per node
    if isinstance(expression, ColumnReference):
        return COLUMNS[expression.name]
    if isinstance(expression, Literal):
        return expression.kind
    if expression.to is not None:
        return expression.to
    if expression.of in _TEXT_FUNCTIONS:
        return Kind.TEXT
    if expression.of in _OF_KIND:
        return _OF_KIND[expression.of]
    if expression.of in ("+", "-", "*", "/", "neg", "abs", "coalesce", "nullif"):
        kinds = set(map(kind_of, expression.operands)) - {Kind.NULL}
    elif expression.of == "case":
        kinds = {kind_of(each) for each in (*expression.operands[1::2], expression.operands[-1])} - {Kind.NULL}
    else:
        return Kind.BOOLEAN
    return Kind.NUMERIC if Kind.NUMERIC in kinds else next(iter(kinds), Kind.NULL)


class RefusedError(Exception):
    """The expression has no value."""


def slowly(expression: Expression, row: Mapping[str, Any]) -> Any:  # noqa: C901, PLR0911, PLR0912
    """The value, operator by operator. Raises RefusedError."""
    if isinstance(expression, ColumnReference):
        return row[expression.name]
    if isinstance(expression, Literal):
        return _literal_value(expression)
    of, operands = expression.of, expression.operands
    if of in ("and", "or"):
        decisive = of == "or"
        seen = []
        for operand in operands:
            seen.append(slowly(operand, row))
            if seen[-1] is decisive:
                return decisive
        return None if None in seen else not decisive
    if of == "case":
        for condition, value in zip(operands[:-1:2], operands[1:-1:2], strict=True):
            if slowly(condition, row) is True:
                return _as(kind_of(expression), slowly(value, row))
        return _as(kind_of(expression), slowly(operands[-1], row))
    if of == "coalesce":
        found = (slowly(operand, row) for operand in operands)
        return _as(kind_of(expression), next((value for value in found if value is not None), None))
    if of == "in":
        wanted = slowly(operands[0], row)
        if wanted is None:
            return None
        listed = [slowly(operand, row) for operand in operands[1:]]
        return True if wanted in [each for each in listed if each is not None] else None if None in listed else False
    if of == "is null":
        return slowly(operands[0], row) is None
    if of == "nullif":
        first = slowly(operands[0], row)
        return None if first is None or first == slowly(operands[1], row) else _as(kind_of(expression), first)
    if of == "concat":
        return "".join(text for operand in operands if (text := slowly(operand, row)) is not None)
    values: list[Any] = []
    for operand in operands[:1] if of == "like" else operands:
        values.append(slowly(operand, row))
        if values[-1] is None:
            return None
    return _computed(expression, values)


def _as(kind: Kind, value: Any) -> Any:
    return Decimal(value) if kind is Kind.NUMERIC and value is not None else value


def _literal_value(given: Literal) -> Any:  # noqa: PLR0911 - one case per type
    match given.kind:
        case Kind.DATE:
            return (date.fromisoformat(given.text) - EPOCH).days
        case Kind.TIMESTAMP:
            day, clock = given.text.split(" ")
            assert clock == "12:30:00.5"
            return (date.fromisoformat(day) - EPOCH).days * 86_400_000_000 + 45_000_500_000
        case Kind.BOOLEAN:
            return given.text == "true"
        case Kind.INTEGER:
            return int(given.text)
        case Kind.NUMERIC:
            return Decimal(given.text)
        case Kind.NULL:
            return None
    return given.text


def _computed(call: Call, values: list[Any]) -> Any:  # noqa: C901, PLR0911, PLR0912 - one case per operator
    left, right = values[0], values[-1]
    match call.of:
        case "=":
            return left == right
        case "<>":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
        case "not":
            return not left
        case "||":
            return left + right
        case "lower" | "upper":
            change = str.lower if call.of == "lower" else str.upper
            return "".join(change(each) if len(change(each)) == 1 else each for each in left)
        case "trim" | "ltrim" | "rtrim" | "left" | "right" | "substr" | "replace" | "split_part" | "length":
            return _text_value(call.of, *values)
        case "abs":
            return _in_64_bits(abs(left)) if kind_of(call) is Kind.INTEGER else left.copy_abs()
        case "round":
            with localcontext(prec=500):
                places = Decimal(1).scaleb(-right)
                return left.quantize(places, ROUND_HALF_UP)
        case "extract" | "date_trunc":
            return _moment_value(call, left, right)
        case "like":
            assert isinstance(call.operands[1], Literal)
            return _is_like(left, call.operands[1].text)
        case "cast":
            return _cast_value(call, left)
        case "neg":
            return -left if kind_of(call) is Kind.NUMERIC else _in_64_bits(-left)
        case "/" if kind_of(call) is Kind.NUMERIC:
            try:  # compared with PostgreSQL's in tests/integration/databases
                return divide_decimals(left, right)
            except ChangeError:
                raise RefusedError from None
        case "/":
            if right == 0:
                raise RefusedError
            return _in_64_bits(_towards_zero(left, right))
        case of:
            with localcontext(prec=500):
                first, second = (Decimal(left), Decimal(right)) if kind_of(call) is Kind.NUMERIC else (left, right)
                result = first + second if of == "+" else first - second if of == "-" else first * second
            return result if kind_of(call) is Kind.NUMERIC else _in_64_bits(int(result))


def _text_value(of: str, text: str, *more: Any) -> Any:  # noqa: PLR0911 - one case per function
    """Character by character."""
    match of:
        case "trim":
            return _text_value("rtrim", _text_value("ltrim", text))
        case "ltrim":
            return _text_value(of, text[1:]) if text[:1] == " " else text
        case "rtrim":
            return _text_value(of, text[:-1]) if text[-1:] == " " else text
        case "length":
            return sum(1 for _ in text)
        case "left":
            last = more[0] if more[0] >= 0 else len(text) + more[0]
            return "".join(each for place, each in enumerate(text, 1) if place <= last)
        case "right":
            skipped = len(text) - more[0] if more[0] >= 0 else -more[0]
            return "".join(each for place, each in enumerate(text, 1) if place > skipped)
        case "substr":
            if len(more) == 2 and more[1] < 0:
                _refuse()
            end = more[0] + more[1] if len(more) == 2 else len(text) + 1
            return "".join(each for place, each in enumerate(text, 1) if more[0] <= place < end)
        case "replace":
            return more[1].join(_parts(text, more[0])) if more[0] else text
    if more[1] == 0:
        _refuse()
    parts = _parts(text, more[0]) if more[0] else [text]
    return dict(enumerate(parts, 1) if more[1] > 0 else enumerate(parts, -len(parts))).get(more[1], "")


def _parts(text: str, delimiter: str) -> list[str]:
    at = next((at for at in range(len(text)) if text[at : at + len(delimiter)] == delimiter), None)
    return [text] if at is None else [text[:at], *_parts(text[at + len(delimiter) :], delimiter)]


def _moment_value(call: Call, name: str, value: int) -> Any:
    """By the format codes of dates, and by counting days back."""
    kind = kind_of(call.operands[1])
    days, micros = (value, 0) if kind is Kind.DATE else divmod(value, 86_400_000_000)
    day = EPOCH + timedelta(days=days)
    parts = {"hour": micros // 3_600_000_000, "minute": micros // 60_000_000 % 60, "quarter": -(-day.month // 3)}
    if call.of == "extract":
        if name == "second":
            return Decimal(micros % 60_000_000) / 1_000_000
        codes = {"year": "%Y", "month": "%m", "week": "%V", "day": "%d", "dow": "%w", "isodow": "%u", "doy": "%j"}
        return Decimal(day.strftime(codes[name]) if name in codes else parts[name])
    units = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
    if name in units:
        return value - value % units[name]
    while not _begins(day, name):
        day -= timedelta(days=1)
    return (day - EPOCH).days * 86_400_000_000


def _begins(day: date, unit: str) -> bool:
    return {
        "day": True, "week": day.weekday() == 0, "month": day.day == 1, "year": (day.month, day.day) == (1, 1),
        "quarter": day.day == 1 and day.month in (1, 4, 7, 10),
    }[unit]  # fmt: skip


def _towards_zero(left: int, right: int) -> int:
    rest = abs(left) % abs(right)
    return (left - rest if left > 0 else left + rest) // right


def _in_64_bits(number: int) -> int:
    if not -(1 << 63) <= number < 1 << 63:
        raise RefusedError
    return number


def _is_like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == "%":
        return any(_is_like(text[at:], rest) for at in range(len(text) + 1))
    if first == "\\":
        first, rest = rest[0], rest[1:]
    elif first == "_":
        return bool(text) and _is_like(text[1:], rest)
    return text[:1] == first and _is_like(text[1:], rest)


def _cast_value(call: Call, value: Any) -> Any:  # noqa: PLR0911 - one case per type
    kind = kind_of(call.operands[0])
    try:
        match call.to:
            case Kind.TEXT:
                if kind is Kind.DATE:
                    return (EPOCH + timedelta(days=value)).isoformat()
                if kind is Kind.TIMESTAMP:
                    text = str(datetime(1970, 1, 1) + timedelta(microseconds=value))
                    return text.rstrip("0") if "." in text else text
                if kind is Kind.NUMERIC:
                    text = f"{value:f}"
                    text = text.rstrip("0").rstrip(".") if "." in text else text
                    return "0" if text in ("-0", "") else text
                return str(value).lower() if kind is Kind.BOOLEAN else str(value)
            case Kind.TIMESTAMP:
                return value * 86_400_000_000
            case Kind.DATE:
                return value if kind is Kind.DATE else value // 86_400_000_000
            case Kind.INTEGER:
                if kind is Kind.TEXT:
                    value = int(value) if value.isascii() and "_" not in value else _refuse()
                elif kind is Kind.NUMERIC:
                    with localcontext(prec=500):
                        value = int(value.quantize(Decimal(1), ROUND_HALF_UP))
                if call.precision == 32 and not -(1 << 31) <= value < 1 << 31:
                    _refuse()
                return _in_64_bits(int(value))
    except ValueError:
        _refuse()
    return _numeric_value(call, kind, value)


def _numeric_value(call: Call, kind: Kind, value: Any) -> Decimal:
    try:
        if kind is Kind.TEXT and ("_" in value or not value.isascii()):
            _refuse()
        number = Decimal(value)
    except ArithmeticError:
        _refuse()
    if call.precision is None:
        return number
    with localcontext(prec=500):
        number = number.quantize(Decimal(1).scaleb(-call.scale), ROUND_HALF_UP)
    if abs(number) >= 10 ** (call.precision - call.scale):
        _refuse()
    return number


def _refuse() -> Any:
    raise RefusedError
