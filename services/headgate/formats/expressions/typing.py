"""The type of an expression, by the types of its columns. Pure.

Nothing is converted by itself except an INTEGER to a NUMERIC: what databases convert in different ways is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from headgate.config.expressions import Call, ColumnReference, Expression, ExpressionError, Kind, Literal
from headgate.formats.expressions.functions import DATE_FIELDS

__all__ = ["check_condition", "check_is_condition", "kind_of"]

_ANY: Final = frozenset({Kind.NULL, Kind.UNKNOWN})
_NUMBERS: Final = frozenset({Kind.INTEGER, Kind.NUMERIC})
_CASTS: Final[Mapping[Kind, frozenset[Kind]]] = {
    Kind.INTEGER: frozenset({Kind.INTEGER, Kind.NUMERIC, Kind.TEXT, Kind.BOOLEAN}),
    Kind.NUMERIC: frozenset({Kind.INTEGER, Kind.NUMERIC, Kind.TEXT}),
    Kind.TEXT: frozenset({Kind.INTEGER, Kind.NUMERIC, Kind.TEXT, Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP}),
    Kind.DATE: frozenset({Kind.DATE, Kind.TIMESTAMP}),
    Kind.TIMESTAMP: frozenset({Kind.TIMESTAMP, Kind.DATE}),
}
"""Type → the types that can be cast to it."""


def check_condition(expression: Expression, kinds: Mapping[str, Kind]) -> None:
    """Raise ExpressionError unless the expression is a condition. ``kinds``: of each column that it names."""
    check_is_condition(kind_of(expression, kinds))


def check_is_condition(found: Kind) -> None:
    """Raise ExpressionError unless an expression of this type is a condition."""
    if found not in (Kind.BOOLEAN, *_ANY):
        raise ExpressionError(f"the expression is of type {found}, and a filter must be a condition, of type boolean")


def kind_of(expression: Expression, kinds: Mapping[str, Kind]) -> Kind:
    """The expression's type. Raises ExpressionError."""
    if isinstance(expression, ColumnReference):
        return kinds[expression.name]
    if isinstance(expression, Literal):
        return expression.kind
    given = [kind_of(operand, kinds) for operand in expression.operands]
    if expression.of != "is null" and Kind.OTHER in given:
        name = next(
            (
                each.name
                for each in expression.operands
                if isinstance(each, ColumnReference) and kinds[each.name] is Kind.OTHER
            ),
            "",
        )
        raise ExpressionError(
            f"column {name} has a type that expressions do not take, except in IS NULL. They take booleans, integers, "
            "decimals, texts, dates and timestamps"
        )
    return _RULES[expression.of](expression, given)


def _common(what: str, kinds: Sequence[Kind]) -> Kind:
    """The type that values of these types have together. Raises ExpressionError."""
    known = {kind for kind in kinds if kind is not Kind.NULL}
    if not known:
        return Kind.NULL
    certain = known - {Kind.UNKNOWN}
    if certain == _NUMBERS:
        return Kind.UNKNOWN if Kind.UNKNOWN in known else Kind.NUMERIC
    if len(certain) > 1:
        shown = " and ".join(sorted(certain))
        raise ExpressionError(f"{what} needs values of one type, and has {shown}. {_advice(certain)}")
    return Kind.UNKNOWN if Kind.UNKNOWN in known else next(iter(certain))


def _advice(kinds: AbstractSet[Kind]) -> str:
    if Kind.DATE in kinds and Kind.TEXT in kinds:
        return "Write a date as DATE '2026-01-31'"
    if Kind.TIMESTAMP in kinds and Kind.TEXT in kinds:
        return "Write a timestamp as TIMESTAMP '2026-01-31 12:00:00'"
    if Kind.TIMESTAMPTZ in kinds and Kind.TEXT in kinds:
        return "Write a timestamp with time zone as TIMESTAMPTZ '2026-01-31 12:00:00+00'"
    if Kind.TEXT in kinds and kinds & _NUMBERS:
        return "Write numbers without quotes, or use CAST"
    return "Use CAST"


def _same(call: Call, given: Sequence[Kind]) -> Kind:
    _common(call.of.upper(), given)
    return Kind.BOOLEAN


def _all(wanted: Kind, result: Kind) -> Callable[[Call, Sequence[Kind]], Kind]:
    def rule(call: Call, given: Sequence[Kind]) -> Kind:
        wrong = next((kind for kind in given if kind not in (wanted, *_ANY)), None)
        if wrong is not None:
            cast = ". Use CAST(… AS TEXT)" if wanted is Kind.TEXT else ""
            raise ExpressionError(f"{call.of.upper()} needs {wanted}, and has {wrong}{cast}")
        return result

    return rule


def _arithmetic(call: Call, given: Sequence[Kind]) -> Kind:
    wrong = next((kind for kind in given if kind not in (*_NUMBERS, *_ANY)), None)
    if wrong is not None:
        of = "-" if call.of == "neg" else call.of
        raise ExpressionError(f"{of} needs numbers, and has {wrong}. Cast texts with CAST(… AS NUMERIC)")
    return _common(call.of, given)


def _coalesce(_call: Call, given: Sequence[Kind]) -> Kind:
    return _common("COALESCE", given)


def _case(_call: Call, given: Sequence[Kind]) -> Kind:
    conditions, values = given[:-1:2], [*given[1:-1:2], given[-1]]
    wrong = next((kind for kind in conditions if kind not in (Kind.BOOLEAN, *_ANY)), None)
    if wrong is not None:
        raise ExpressionError(f"CASE WHEN needs a condition, and has {wrong}")
    return _common("CASE", values)


def _cast(call: Call, given: Sequence[Kind]) -> Kind:
    assert call.to is not None  # noqa: S101 - the parser gives every cast a type
    if given[0] not in (*_CASTS[call.to], *_ANY):
        raise ExpressionError(f"CAST of {given[0]} to {call.to} is not allowed")
    return call.to


def _signature(result: Kind, *wanted: Kind, optional: int = 0) -> Callable[[Call, Sequence[Kind]], Kind]:
    """A function of operands of these types, of which so many at the end may be missing."""

    def rule(call: Call, given: Sequence[Kind]) -> Kind:
        of = call.of.upper()
        if not len(wanted) - optional <= len(given) <= len(wanted):
            raise ExpressionError(f"{of} needs {len(wanted)} operands, and has {len(given)}")
        for number, (kind, found) in enumerate(zip(wanted, given, strict=False), 1):
            if found not in (kind, *_ANY):
                cast = f". Use CAST(… AS {_CAST_NAMES[kind]})" if found in _CASTS[kind] else ""
                raise ExpressionError(f"{of} needs {kind} as operand {number}, and has {found}{cast}")
        return result

    return rule


_CAST_NAMES: Final = {Kind.TEXT: "TEXT", Kind.INTEGER: "BIGINT", Kind.TIMESTAMP: "TIMESTAMP"}


def _nullif(_call: Call, given: Sequence[Kind]) -> Kind:
    common = _common("NULLIF", given)
    return given[0] if given[0] in _ANY else common


def _round(call: Call, given: Sequence[Kind]) -> Kind:
    _arithmetic(call, given[:1])
    return Kind.NUMERIC


def _extract(call: Call, given: Sequence[Kind]) -> Kind:
    field = call.operands[0]
    assert isinstance(field, Literal)  # noqa: S101 - the parser gives it a field
    if given[1] not in (Kind.DATE, Kind.TIMESTAMP, *_ANY):
        raise ExpressionError(f"EXTRACT needs date or timestamp, and has {given[1]}")
    if given[1] is Kind.DATE and field.text not in DATE_FIELDS:
        raise ExpressionError(f"EXTRACT: a date has no {field.text}")
    return Kind.NUMERIC


_RULES: Final[Mapping[str, Callable[[Call, Sequence[Kind]], Kind]]] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "in"), _same),
    **dict.fromkeys(("and", "or", "not"), _all(Kind.BOOLEAN, Kind.BOOLEAN)),
    "is null": lambda _call, _given: Kind.BOOLEAN,
    "like": _all(Kind.TEXT, Kind.BOOLEAN),
    **dict.fromkeys(("||", "lower", "upper"), _all(Kind.TEXT, Kind.TEXT)),
    **dict.fromkeys(("+", "-", "*", "/", "neg", "abs"), _arithmetic),
    **dict.fromkeys(("trim", "ltrim", "rtrim"), _all(Kind.TEXT, Kind.TEXT)),
    "concat": _all(Kind.TEXT, Kind.TEXT),
    "date_trunc": _signature(Kind.TIMESTAMP, Kind.TEXT, Kind.TIMESTAMP),
    "extract": _extract,
    "left": _signature(Kind.TEXT, Kind.TEXT, Kind.INTEGER),
    "length": _signature(Kind.INTEGER, Kind.TEXT),
    "nullif": _nullif,
    "replace": _signature(Kind.TEXT, Kind.TEXT, Kind.TEXT, Kind.TEXT),
    "right": _signature(Kind.TEXT, Kind.TEXT, Kind.INTEGER),
    "round": _round,
    "split_part": _signature(Kind.TEXT, Kind.TEXT, Kind.TEXT, Kind.INTEGER),
    "substr": _signature(Kind.TEXT, Kind.TEXT, Kind.INTEGER, Kind.INTEGER, optional=1),
    "coalesce": _coalesce,
    "case": _case,
    "cast": _cast,
}
