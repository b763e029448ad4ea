"""The type of an expression, by the types of its columns. Pure.

Nothing is converted by itself except an INTEGER to a NUMERIC: what databases convert in different ways is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from headgate.config.expressions import Call, Column, Expression, ExpressionError, Kind, Literal

__all__ = ["check_condition", "columns_of", "kind_of"]

_ANY: Final = frozenset({Kind.NULL, Kind.UNKNOWN})
_NUMBERS: Final = frozenset({Kind.INTEGER, Kind.NUMERIC})
_CASTS: Final[Mapping[Kind, frozenset[Kind]]] = {
    Kind.INTEGER: frozenset({Kind.INTEGER, Kind.NUMERIC, Kind.TEXT, Kind.BOOLEAN}),
    Kind.NUMERIC: frozenset({Kind.INTEGER, Kind.NUMERIC, Kind.TEXT}),
    Kind.TEXT: frozenset({Kind.INTEGER, Kind.NUMERIC, Kind.TEXT, Kind.BOOLEAN, Kind.DATE}),
    Kind.DATE: frozenset({Kind.DATE, Kind.TIMESTAMP}),
}
"""Type → the types that can be cast to it."""


def columns_of(expression: Expression) -> tuple[str, ...]:
    """The columns that an expression names, in order of first appearance."""
    if isinstance(expression, Column):
        return (expression.name,)
    if isinstance(expression, Literal):
        return ()
    return tuple(dict.fromkeys(name for operand in expression.operands for name in columns_of(operand)))


def check_condition(expression: Expression, kinds: Mapping[str, Kind]) -> None:
    """Raise ExpressionError unless the expression is a condition. ``kinds``: of each column that it names."""
    found = kind_of(expression, kinds)
    if found not in (Kind.BOOLEAN, *_ANY):
        raise ExpressionError(f"the expression is of type {found}, and a filter must be a condition, of type boolean")


def kind_of(expression: Expression, kinds: Mapping[str, Kind]) -> Kind:
    """The expression's type. Raises ExpressionError."""
    if isinstance(expression, Column):
        return kinds[expression.name]
    if isinstance(expression, Literal):
        return expression.kind
    given = [kind_of(operand, kinds) for operand in expression.operands]
    if expression.of != "is null" and Kind.OTHER in given:
        name = next(
            (each.name for each in expression.operands if isinstance(each, Column) and kinds[each.name] is Kind.OTHER),
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


_RULES: Final[Mapping[str, Callable[[Call, Sequence[Kind]], Kind]]] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "in"), _same),
    **dict.fromkeys(("and", "or", "not"), _all(Kind.BOOLEAN, Kind.BOOLEAN)),
    "is null": lambda _call, _given: Kind.BOOLEAN,
    "like": _all(Kind.TEXT, Kind.BOOLEAN),
    **dict.fromkeys(("||", "lower", "upper"), _all(Kind.TEXT, Kind.TEXT)),
    **dict.fromkeys(("+", "-", "*", "/", "neg"), _arithmetic),
    "coalesce": _coalesce,
    "case": _case,
    "cast": _cast,
}
