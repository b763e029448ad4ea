"""Expressions over events without schemas: whether the values can be read as what the expressions need. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from headgate.config.expressions import Expression, ExpressionError, Kind, columns_of, parse_expression
from headgate.config.feed import FeedSpec, FeedSpecError
from headgate.config.plugs import FORMATS
from headgate.formats.expressions.declared import BYTES, UNSIGNED_BYTES
from headgate.formats.expressions.evaluation import check_names
from headgate.formats.expressions.filters import OPTION
from headgate.formats.expressions.typing import check_condition, kind_of
from headgate.records.control import SpanPlan
from headgate.sources.preview import Seen
from headgate.tables.computed import source_columns
from headgate.tables.statement import Definition

__all__ = ["check_values"]

_IN_JSON: Final = (Kind.TEXT, Kind.INTEGER, Kind.NUMERIC, Kind.BOOLEAN)
"""What a value can be where nothing but the value shows its type."""

_ADVICE: Final = (
    "Events without schemas have decimals, dates and times as texts or numbers. Name the database that the changes "
    "come from in source.database, or let the connector write schemas"
)
_NOT_FOUND: Final = (
    "Its events have no schemas, and source.database does not have the table, or its user may not see it. Grant SELECT "
    "on it, or name the source's table in source.topic_tables"
)


def check_values(
    spec: FeedSpec, own: FeedSpec, plan: SpanPlan, definition: Definition | None, seen: Seen | None
) -> None:
    """Raise FeedSpecError for expressions of a table whose events do not show what they need.

    ``own``: the feed as it is for the table. ``definition``: as the source, or a schema, has the table; None if neither
    does. ``seen``: what the topic's newest records show.
    """
    # Records of a topic of several tables show nothing of one of them.
    is_shown = seen is not None and not spec.source.tables
    kinds = seen.kinds if seen is not None and is_shown else {}
    in_bytes = seen.bytes_of_decimals if seen is not None and is_shown else frozenset()
    for option, expression in _expressions(own):
        try:
            if definition is not None:
                _check_decimals(spec, definition, expression, kinds, in_bytes)
                continue
            if spec.source.database is None and seen is not None and seen.columns is not None and kinds:
                check_names(expression, dict.fromkeys(seen.columns, Kind.UNKNOWN))
            advice = _ADVICE if spec.source.database is None else _NOT_FOUND
            _check_untyped(expression, kinds, advice, is_condition=option == OPTION)
        except ExpressionError as error:
            raise FeedSpecError(f"{option}: table {plan.table}: {error}") from error


def _expressions(own: FeedSpec) -> Iterator[tuple[str, Expression]]:
    if own.where is not None:
        yield OPTION, parse_expression(own.where)
    for name, text in own.columns.set.items():
        yield f"columns.set.{name}", parse_expression(text)


def _check_untyped(
    expression: Expression, kinds: Mapping[str, frozenset[Kind]], advice: str, *, is_condition: bool
) -> None:
    """Raise ExpressionError where no value of a column fits, or where none of those that were seen does."""
    names = columns_of(expression)
    unknown = dict.fromkeys(names, Kind.UNKNOWN)
    check = check_condition if is_condition else kind_of
    for name in names:
        refusals = [_refusal(check, expression, unknown | {name: kind}) for kind in _IN_JSON]
        if all(refusals):
            raise ExpressionError(f"column {name} cannot be typed: {refusals[0]}. {advice}")
    # Values of several types show nothing: which of them a bad event has is not known.
    seen = {name: next(iter(kinds[name])) for name in names if len(kinds.get(name, ())) == 1}
    refusal = _refusal(check, expression, unknown | seen)
    if refusal is not None:
        shown = ", ".join(f"{name} {kind}" for name, kind in sorted(seen.items()))
        raise ExpressionError(f"{refusal}. In the newest events the types are: {shown}. {advice}")


def _refusal(check: Callable[..., object], expression: Expression, kinds: Mapping[str, Kind]) -> str | None:
    try:
        check(expression, kinds)
    except ExpressionError as error:
        return str(error)
    return None


def _check_decimals(
    spec: FeedSpec,
    definition: Definition,
    expression: Expression,
    kinds: Mapping[str, frozenset[Kind]],
    in_bytes: frozenset[str],
) -> None:
    """Raise ExpressionError for a decimal that is bytes, or a text of which nothing shows whether it is digits."""
    if not FORMATS[spec.source.format].tells_types:
        return
    columns, mode = source_columns(definition), spec.source.decimal_handling_mode
    for name in columns_of(expression):
        column = columns.get(name)
        if column is None or Kind.TEXT not in kinds.get(name, ()):
            continue
        if column.is_unsigned:
            raise ExpressionError(f"column {name} is a bigint unsigned{UNSIGNED_BYTES}")
        if column.kind is not Kind.NUMERIC:
            continue
        if mode == "precise" or name in in_bytes:
            raise ExpressionError(f"column {name} is a decimal{BYTES}")
        if mode is None and (column.scale is None or column.scale <= 0):
            raise ExpressionError(
                f"column {name} is a decimal that may have no digits behind the point, and its events have texts, "
                "which may be digits or bytes. Set source.decimal_handling_mode to the connector's "
                "decimal.handling.mode"
            )
