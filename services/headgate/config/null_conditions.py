"""Conditions of a feed that NULL keeps from ever being true: a filter with one leaves out every row without an error.

They are refused when a feed is created or updated, not when it is read: a feed that was accepted with one runs on.
"""

from collections.abc import Iterator
from typing import Final

from headgate.config.expressions import Call, Expression, Kind, Literal, parse_expression
from headgate.config.feed import FeedSpec, FeedSpecError

__all__ = ["check_null_conditions", "null_condition"]

_NULL: Final = Literal(Kind.NULL, "")
_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})


def check_null_conditions(spec: FeedSpec, before: FeedSpec | None = None) -> None:
    """Raise FeedSpecError for such a condition, unless ``before``, which the feed was so far, has its expression."""
    known = set() if before is None else {text for _, text in _expressions(before)}
    for option, text in _expressions(spec):
        why = None if text in known else null_condition(parse_expression(text))
        if why is not None:
            raise FeedSpecError(f"{option}: {why}")


def null_condition(expression: Expression) -> str | None:
    """Why a part of the expression is never true, and what to write instead; None if NULL keeps none from it."""
    if not isinstance(expression, Call):
        return None
    of, operands = expression.of, expression.operands
    if of in _COMPARISONS and _NULL in operands:  # of BETWEEN and CASE: others are refused by the parser
        return "BETWEEN and CASE … WHEN with NULL are never true. Write IS NULL, IS NOT NULL or CASE WHEN … IS NULL"
    if of == "in" and operands[0] == _NULL:
        return "NULL IN and NULL NOT IN are never true. Write a column in front of IN"
    if of == "in" and all(item == _NULL for item in operands[1:]):
        return "IN a list of NULL is never true. Write IS NULL"
    if of == "not" and _is_in_with_null(operands[0]):
        return "NOT IN a list with NULL is never true. Leave NULL out of the list"
    return next((why for operand in operands if (why := null_condition(operand)) is not None), None)


def _is_in_with_null(expression: Expression) -> bool:
    return isinstance(expression, Call) and expression.of == "in" and _NULL in expression.operands[1:]


def _expressions(spec: FeedSpec) -> Iterator[tuple[str, str]]:
    """Each option with an expression, and its text."""
    tables = ((f"tables.{pattern}.", own.where, own.columns) for pattern, own in spec.tables.items())
    places = (("", spec.where, spec.columns), *tables)
    for place, where, columns in places:
        if where is not None:
            yield f"{place}where", where
        for name, text in ({} if columns is None else columns.set).items():
            yield f"{place}columns.set.{name}", text
