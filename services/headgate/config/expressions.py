"""Expressions that people write in a feed: a subset of SQL, parsed by sqlglot into a small tree of our own.

The tree holds names, literals and operators and nothing else. What an expression means is in formats/expressions/.
Everything that is not listed in ALLOWED is refused, also what a later version of the parser adds to a node.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from pydantic import AfterValidator, BeforeValidator, StrictStr

from headgate.config.moments import day_of, micros_of

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = [
    "ALLOWED", "Call", "ColumnReference", "Computed", "Expression", "ExpressionError", "Kind", "Literal", "Where",
    "columns_of", "parse_expression",
]  # fmt: skip

CHARACTERS_MAX: Final = 4_000
"""Of an expression. It is stored with the feed, and read again by each worker."""

NODES_MAX: Final = 500
"""Of an expression's tree, with what IN, BETWEEN and CASE stand for."""

DEPTH_MAX: Final = 24
"""Operators within operators. Python's compiler takes 200 brackets within brackets, and one level needs up to six."""

CACHED: Final = 1_024
"""Expressions kept parsed: parsing one takes a millisecond, and a feed is parsed often."""

NUMERIC_DIGITS_MAX: Final = 1_000
"""Of a number in an expression, and of what is computed: PostgreSQL's NUMERIC(precision) ends there."""

ALLOWED: Final = (
    "columns, literals, = <> < <= > >=, AND, OR, NOT, IS [NOT] NULL, [NOT] IN (…), [NOT] BETWEEN, [NOT] LIKE 'text', "
    "+ - * /, ||, CASE, COALESCE, NULLIF, CAST to INTEGER, BIGINT, NUMERIC, TEXT, DATE, TIMESTAMP, and the functions "
    "ABS, CONCAT, DATE_TRUNC, EXTRACT, LEFT, LENGTH, LOWER, LTRIM, REPLACE, RIGHT, ROUND, RTRIM, SPLIT_PART, SUBSTR, "
    "TRIM, UPPER"
)


class ExpressionError(ValueError):
    """An expression that cannot be used; the message has what is wrong with it and what is allowed."""


class Kind(StrEnum):
    """The type of a value in an expression."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    """64 bits."""
    NUMERIC = "numeric"
    TEXT = "text"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    NULL = "NULL"
    """Only NULL is known of it, so it goes with every other kind."""
    OTHER = "another type"
    """Not usable in expressions, except for IS NULL."""
    UNKNOWN = "a type that is not known yet"
    """Where only the source's catalogue was asked, and events decide."""


class ColumnReference(msgspec.Struct, frozen=True):
    """A column of the source's table."""

    name: str


class Literal(msgspec.Struct, frozen=True):
    """``text``: as it was written; a boolean's is ``true`` or ``false``, that of NULL is empty."""

    kind: Kind
    text: str


class Call(msgspec.Struct, frozen=True):
    """An operator or a function. ``of``: the name in ALLOWED, in small letters.

    ``and`` and ``or`` have two operands or more. ``case`` has pairs of condition and value, then the last value.
    ``in`` has what is looked for, then the list. ``date_trunc`` and ``extract`` have a unit first, ``round`` has a
    number of digits last, which are literals. ``to``, ``precision`` and ``scale`` are a cast's.
    """

    of: str
    operands: tuple["Expression", ...]
    to: Kind | None = None
    precision: int | None = None
    scale: int = 0


Expression = ColumnReference | Literal | Call


def columns_of(expression: Expression) -> tuple[str, ...]:
    """The columns that an expression names, in order of first appearance."""
    if isinstance(expression, ColumnReference):
        return (expression.name,)
    if isinstance(expression, Literal):
        return ()
    return tuple(dict.fromkeys(name for operand in expression.operands for name in columns_of(operand)))


@lru_cache(maxsize=CACHED)
def parse_expression(text: str) -> Expression:
    """The tree of an expression. Raises ExpressionError."""
    import sqlglot  # noqa: PLC0415 - takes over 0.1 s, which only a feed with expressions needs
    from sqlglot.errors import ParseError, SqlglotError  # noqa: PLC0415

    if not text.strip():
        raise ExpressionError(f"the expression is empty. Write a condition, or remove the option. Allowed: {ALLOWED}")
    if len(text) > CHARACTERS_MAX:
        raise ExpressionError(f"the expression has {len(text)} characters, at most {CHARACTERS_MAX} are allowed")
    try:
        parsed = sqlglot.parse(text, read="postgres")
        if len(parsed) != 1 or parsed[0] is None:
            raise ExpressionError("only one expression is allowed. Remove the semicolon")
        tree = _Reader().read(parsed[0], 0)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        why = str(first.get("description", "?"))
        if why.startswith("Required keyword"):  # names a class of the parser
            why = "an operand is missing"
        raise ExpressionError(
            f"the expression cannot be parsed at character {first.get('col', '?')}: {why}. Allowed: {ALLOWED}"
        ) from error
    except SqlglotError as error:
        raise ExpressionError(f"the expression cannot be parsed. Check its quotes. Allowed: {ALLOWED}") from error
    except RecursionError as error:
        raise _too_deep() from error
    return tree


def _parsed(text: str) -> str:
    parse_expression(text)
    return text


Where = Annotated[StrictStr, AfterValidator(_parsed)]
"""A row filter, as an option of a feed or of a table."""


def _written(given: object) -> object:
    if isinstance(given, str):
        return given
    raise ValueError(
        f"{given!r} is not an expression. Put the expression in quotes, and a text in quotes within them: \"'eu'\""
    )


Computed = Annotated[StrictStr, BeforeValidator(_written), AfterValidator(_parsed)]
"""What a column is computed by, as an option of a feed or of a table."""


def _too_deep() -> ExpressionError:
    return ExpressionError(f"the expression has more than {DEPTH_MAX} levels of operators within operators")


def _refused(what: str) -> ExpressionError:
    return ExpressionError(f"{what} is not allowed in an expression. Allowed: {ALLOWED}")


class _Reader:
    """Makes our tree of the parser's, node by node."""

    def __init__(self) -> None:
        self._nodes = 0

    def read(self, node: "exp.Expr", depth: int) -> Expression:
        """Raises ExpressionError."""
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise ExpressionError(f"the expression has more than {NODES_MAX} parts")
        if depth > DEPTH_MAX:
            raise _too_deep()
        read = _READ.get(type(node).__name__)
        if read is None:
            raise _refused(_shown(node))
        names, make = read
        given = {name: value for name, value in node.args.items() if value is not None and value is not False}
        given = {name: value for name, value in given.items() if value != []}
        unknown = given.keys() - names - _OF_DIALECT.get(type(node).__name__, frozenset())
        if unknown:
            raise _refused(_shown(node))
        return make(self, given, depth + 1)

    def operand(self, node: "exp.Expr", depth: int) -> Expression:
        """What is beside an operator: a condition only in brackets, because databases bind them differently."""
        if type(node).__name__ in _CONDITIONS:
            raise ExpressionError(
                f"{_shown(node)} is a condition within another operator. Put it in brackets to show what belongs "
                "together"
            )
        return self.read(node, depth)


_NULL: Final = Literal(Kind.NULL, "")

Given = Mapping[str, Any]
Make = Callable[[_Reader, Given, int], Expression]


def _shown(node: "exp.Expr") -> str:
    """A part of the expression, for people."""
    return repr(node.sql("postgres")[:60])


def _binary(of: str) -> Make:
    def make(reader: _Reader, given: Given, depth: int) -> Expression:
        left, right = (reader.operand(given[name], depth) for name in ("this", "expression"))
        if of in _COMPARISONS and _NULL in (left, right):
            raise ExpressionError(f"{of} NULL is never true. Write IS NULL or IS NOT NULL")
        return Call(of, (left, right))

    return make


def _chain(of: str) -> Make:
    def make(reader: _Reader, given: Given, depth: int) -> Expression:
        # A chain is one level, however long it is: the parser nests it to the left.
        parts, node = [given["expression"]], given["this"]
        while type(node).__name__.lower() == of and not node.args.get("negate"):
            parts.append(node.args["expression"])
            node = node.args["this"]
        parts.append(node)
        return Call(of, tuple(reader.read(part, depth) for part in reversed(parts)))

    return make


def _negated(given: Given, made: Expression) -> Expression:
    return Call("not", (made,)) if given.get("negate") else made


def _column(_reader: _Reader, given: Given, _depth: int) -> Expression:
    return ColumnReference(str(given["this"].name))


def _literal(_reader: _Reader, given: Given, _depth: int) -> Expression:
    text = str(given["this"])
    if given.get("is_string"):
        return Literal(Kind.TEXT, text)
    if len(text) > NUMERIC_DIGITS_MAX:
        raise ExpressionError(f"a number has more than {NUMERIC_DIGITS_MAX} digits")
    if text.isascii() and text.isdigit():
        return Literal(Kind.INTEGER if int(text) < 1 << 63 else Kind.NUMERIC, text)
    mantissa, mark, exponent = text.lower().partition("e")
    if not mantissa.replace(".", "", 1).isdigit() or not text.isascii() or (mark and not _is_exponent(exponent)):
        raise _refused(repr(text[:60]))
    return Literal(Kind.NUMERIC, text)


def _boolean(_reader: _Reader, given: Given, _depth: int) -> Expression:
    return Literal(Kind.BOOLEAN, "true" if given.get("this") else "false")


def _is_exponent(text: str) -> bool:
    digits = text.removeprefix("-").removeprefix("+")
    return digits.isdigit() and int(digits) <= NUMERIC_DIGITS_MAX


def _is(reader: _Reader, given: Given, depth: int) -> Expression:
    if type(given["expression"]).__name__ != "Null":
        raise _refused("IS with anything but NULL")
    return _negated(given, Call("is null", (reader.operand(given["this"], depth),)))


def _in(reader: _Reader, given: Given, depth: int) -> Expression:
    if not given.get("expressions"):
        raise _refused("IN without a list")
    items = tuple(reader.operand(item, depth) for item in given["expressions"])
    return _negated(given, Call("in", (reader.operand(given["this"], depth), *items)))


def _between(reader: _Reader, given: Given, depth: int) -> Expression:
    value, low, high = (reader.operand(given[name], depth) for name in ("this", "low", "high"))
    return _negated(given, Call("and", (Call(">=", (value, low)), Call("<=", (value, high)))))


def _like(reader: _Reader, given: Given, depth: int) -> Expression:
    pattern = reader.operand(given["expression"], depth)
    if not isinstance(pattern, Literal) or pattern.kind is not Kind.TEXT:
        raise _refused("LIKE with anything but a text in quotes")
    if (len(pattern.text) - len(pattern.text.rstrip("\\"))) % 2:
        raise ExpressionError("a pattern of LIKE cannot end with a backslash, which must have a character behind it")
    return _negated(given, Call("like", (reader.operand(given["this"], depth), pattern)))


def _coalesce(reader: _Reader, given: Given, depth: int) -> Expression:
    return Call("coalesce", tuple(reader.read(part, depth) for part in (given["this"], *given.get("expressions", ()))))


def _case(reader: _Reader, given: Given, depth: int) -> Expression:
    parts: list[Expression] = []
    for branch in given["ifs"]:
        if "this" in given:
            found = reader.operand(given["this"], depth)
            parts.append(Call("=", (found, reader.operand(branch.args["this"], depth))))
        else:
            parts.append(reader.read(branch.args["this"], depth))
        parts.append(reader.read(branch.args["true"], depth))
    default = given.get("default")
    return Call("case", (*parts, _NULL if default is None else reader.read(default, depth)))


def _function(of: str, *names: str) -> tuple[frozenset[str], Make]:
    """Of a function whose operands the parser calls ``names``, in their order; those at the end may be missing."""

    def make(reader: _Reader, given: Given, depth: int) -> Expression:
        written = names[: len(given)]
        if any(name not in given for name in written):
            raise _refused(f"{of.upper()} without its first operands")
        return Call(of, tuple(reader.read(given[name], depth) for name in written))

    return frozenset(names), make


def _concat(reader: _Reader, given: Given, depth: int) -> Expression:
    """Of texts, in which NULL counts as the empty one."""
    empty = Literal(Kind.TEXT, "")
    parts = [Call("coalesce", (reader.read(part, depth), empty)) for part in given["expressions"]]
    return Call("concat", tuple(parts))


def _trim(reader: _Reader, given: Given, depth: int) -> Expression:
    of = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(given.get("position")), "trim")
    return Call(of, (reader.read(given["this"], depth),))


def _round(reader: _Reader, given: Given, depth: int) -> Expression:
    digits = reader.read(given["decimals"], depth) if "decimals" in given else Literal(Kind.INTEGER, "0")
    if not isinstance(digits, Literal) or digits.kind is not Kind.INTEGER or int(digits.text) > NUMERIC_DIGITS_MAX:
        raise ExpressionError(f"ROUND takes a number of digits as 0 to {NUMERIC_DIGITS_MAX} behind the comma")
    return Call("round", (reader.read(given["this"], depth), digits))


def _of_unit(of: str, unit: str, value: str, units: Sequence[str]) -> Make:
    def make(reader: _Reader, given: Given, depth: int) -> Expression:
        named = str(given[unit].name).lower()
        if named not in units:
            raise ExpressionError(f"{of.upper()} does not take {named[:40]!r}. It takes {', '.join(units)}")
        return Call(of, (Literal(Kind.TEXT, named), reader.read(given[value], depth)))

    return make


def _cast(reader: _Reader, given: Given, depth: int) -> Expression:
    type_ = given["to"]
    name = str(getattr(type_.this, "name", type_.this))
    parameters = [str(each.name) for each in type_.expressions]
    value = given["this"]
    is_text = type(value).__name__ == "Literal" and bool(value.args.get("is_string"))
    if is_text and name in _OF_TEXTS and not parameters:
        return _moment(_OF_TEXTS[name], str(value.this))
    kind = _CASTS.get(name)
    if kind is None or (parameters and kind is not Kind.NUMERIC):
        raise _refused(f"CAST to {type_.sql('postgres')}")
    precision, scale = _precision(parameters)
    if name == "INT":
        return Call("cast", (reader.read(value, depth),), kind, 32)
    return Call("cast", (reader.read(value, depth),), kind, precision, scale)


def _moment(kind: Kind, text: str) -> Literal:
    try:
        if kind is Kind.DATE:
            day_of(text)
        else:
            micros_of(text, zoned=kind is Kind.TIMESTAMPTZ)
    except (ValueError, OverflowError) as error:
        raise ExpressionError(f"{kind.upper()} {text!r} is not a valid {kind}: {error}") from None
    return Literal(kind, text)


def _precision(parameters: Sequence[str]) -> tuple[int | None, int]:
    if not parameters:
        return None, 0
    if len(parameters) > 2 or not all(text.isascii() and text.isdigit() and len(text) <= 4 for text in parameters):
        raise _refused(f"NUMERIC({', '.join(parameters)})")
    precision, scale = int(parameters[0]), int(parameters[1]) if len(parameters) == 2 else 0
    if not 1 <= precision <= NUMERIC_DIGITS_MAX or scale > precision:
        raise ExpressionError(
            f"NUMERIC({precision},{scale}): the precision must be 1 to {NUMERIC_DIGITS_MAX}, and the scale not larger"
        )
    return precision, scale


_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
_CONDITIONS: Final = frozenset(
    {"EQ", "NEQ", "LT", "LTE", "GT", "GTE", "Is", "In", "Between", "Like", "Not", "And", "Or"}
)
_OF_TEXTS: Final = {
    "DATE": Kind.DATE, "TIMESTAMP": Kind.TIMESTAMP, "TIMESTAMPTZ": Kind.TIMESTAMPTZ,
}  # fmt: skip
"""Literals with their type in front: DATE '2026-01-31'."""
_CASTS: Final = {
    "INT": Kind.INTEGER, "BIGINT": Kind.INTEGER, "DECIMAL": Kind.NUMERIC, "TEXT": Kind.TEXT, "VARCHAR": Kind.TEXT,
    "DATE": Kind.DATE, "TIMESTAMP": Kind.TIMESTAMP,
}  # fmt: skip
TRUNCATED: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
"""Units of DATE_TRUNC."""
EXTRACTED: Final = (*TRUNCATED, "dow", "isodow", "doy")
"""Fields of EXTRACT."""

_TWO: Final = frozenset({"this", "expression"})
_READ: Final[dict[str, tuple[frozenset[str], Make]]] = {
    **{
        name: (_TWO, _binary(of))
        for name, of in {
            "EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=",
            "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "DPipe": "||",
        }.items()
    },
    "And": (_TWO, _chain("and")),
    "Or": (_TWO, _chain("or")),
    "Not": (frozenset({"this"}), lambda reader, given, depth: Call("not", (reader.read(given["this"], depth),))),
    "Neg": (frozenset({"this"}), lambda reader, given, depth: Call("neg", (reader.operand(given["this"], depth),))),
    "Paren": (frozenset({"this"}), lambda reader, given, depth: reader.read(given["this"], depth - 1)),
    "Column": (frozenset({"this"}), _column),
    "Literal": (frozenset({"this", "is_string"}), _literal),
    "Boolean": (frozenset({"this"}), _boolean),
    "Null": (frozenset(), lambda _reader, _given, _depth: _NULL),
    "Is": (_TWO | {"negate"}, _is),
    "In": (frozenset({"this", "expressions", "negate"}), _in),
    "Between": (frozenset({"this", "low", "high", "negate"}), _between),
    "Like": (_TWO | {"negate"}, _like),
    "Coalesce": (frozenset({"this", "expressions"}), _coalesce),
    "Lower": (frozenset({"this"}), lambda reader, given, depth: Call("lower", (reader.read(given["this"], depth),))),
    "Upper": (frozenset({"this"}), lambda reader, given, depth: Call("upper", (reader.read(given["this"], depth),))),
    "Abs": _function("abs", "this"),
    "Concat": (frozenset({"expressions"}), _concat),
    "Extract": (_TWO, _of_unit("extract", "this", "expression", EXTRACTED)),
    "Left": _function("left", "this", "expression"),
    "Length": _function("length", "this"),
    "Nullif": _function("nullif", "this", "expression"),
    "Replace": _function("replace", "this", "expression", "replacement"),
    "Right": _function("right", "this", "expression"),
    "Round": (frozenset({"this", "decimals"}), _round),
    "SplitPart": _function("split_part", "this", "delimiter", "part_index"),
    "Substring": _function("substr", "this", "start", "length"),
    "TimestampTrunc": (frozenset({"this", "unit"}), _of_unit("date_trunc", "unit", "this", TRUNCATED)),
    "Trim": (frozenset({"this", "position"}), _trim),
    "Case": (frozenset({"this", "ifs", "default"}), _case),
    "Cast": (frozenset({"this", "to"}), _cast),
}  # fmt: skip
"""The parser's name of a node → what it may have, and what we make of it."""

_OF_DIALECT: Final[dict[str, frozenset[str]]] = {
    "Div": frozenset({"typed", "safe"}), "DPipe": frozenset({"safe"}), "Cast": frozenset({"_type"}),
    "Concat": frozenset({"safe", "coalesce"}),
}  # fmt: skip
"""What the parser adds to a node of PostgreSQL's dialect and does not change its meaning."""
