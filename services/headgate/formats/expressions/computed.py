"""Columns that are computed: a feed's ``columns.set``, of the source's values of each row.

A value goes to the sink as the same Python value whether it was computed for a change or for a row that is copied:
dates and timestamps are texts, as databases write them, so nothing has to show what a number means.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from headgate.config.expressions import ExpressionError, Kind, columns_of, parse_expression
from headgate.formats.change import ABSENT, Row
from headgate.formats.expressions.declared import DeclaredTypes
from headgate.formats.expressions.evaluation import Evaluation, check_names
from headgate.formats.expressions.functions import date_text, instant_text, timestamp_text
from headgate.formats.expressions.reading import AbsentError
from headgate.formats.expressions.typing import kind_of
from headgate.formats.expressions.values import kind_at_database

__all__ = [
    "SENT_FORMS", "TEXT_FORMS", "ComputedColumns", "Form", "TypedColumns", "check_computed", "check_held",
    "computed_at_database", "needed_columns",
]  # fmt: skip

OPTION: Final = "columns.set"

Form = Callable[[Any], object]
"""How a value that is not NULL is given to others."""

SENT_FORMS: Final[Mapping[Kind, Form]] = {
    Kind.DATE: date_text, Kind.TIMESTAMP: timestamp_text, Kind.TIMESTAMPTZ: instant_text,
}  # fmt: skip
"""As a sink takes values. Others are Python's own: texts, integers, decimals and booleans."""

TEXT_FORMS: Final[Mapping[Kind, Form]] = {
    Kind.DATE: date_text, Kind.TIMESTAMP: timestamp_text, Kind.TIMESTAMPTZ: timestamp_text,
    Kind.NUMERIC: lambda value: f"{value:f}", Kind.INTEGER: str, Kind.BOOLEAN: lambda value: "1" if value else "0",
}  # fmt: skip
"""As both databases write values where tables are compared (verify/)."""


class TypedColumns(NamedTuple):
    """``function``: a row → the values of the computed columns, in order.

    ``kinds``: column → type, of those whose type is known before the first row.
    """

    function: Callable[[Row], list[object]]
    kinds: tuple[tuple[str, Kind], ...]


class ComputedColumns:
    """The columns of one table."""

    def __init__(self, given: Mapping[str, str], declared: DeclaredTypes | None = None) -> None:
        """``given``: name at the sink → expression. ``declared``: see Evaluation. Raises ExpressionError."""
        self._names = tuple(given)
        self._evaluations = [_evaluation(name, text, SENT_FORMS, declared) for name, text in given.items()]

    def of(self, semantics: dict[str, str] | None) -> Callable[[Row], list[object]]:
        """A function of rows whose values have this meaning: the values, in order. Raises ChangeError, as it does."""
        return self.typed(semantics).function

    def typed(self, semantics: dict[str, str] | None) -> "TypedColumns":
        """The same with the types of its values, which are of the same moment. Raises ChangeError."""
        found = [evaluation.typed(semantics) for evaluation in self._evaluations]
        functions = [each.function for each in found]
        kinds = tuple((name, each.kind) for name, each in zip(self._names, found, strict=True) if each.kind is not None)
        return TypedColumns(lambda row: [function(row) for function in functions], kinds)


def computed_at_database(
    given: Mapping[str, str], database: str, types: Mapping[str, str], forms: Mapping[Kind, Form]
) -> dict[str, Callable[[Row], object]]:
    """The same for rows as texts of a database. ``types``: column → type, of the table's. Raises ChangeError."""
    return {name: _evaluation(name, text, forms).at_database(database, types) for name, text in given.items()}


def needed_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """The source's columns that these are computed from."""
    return tuple(dict.fromkeys(name for text in given.values() for name in columns_of(parse_expression(text))))


def _evaluation(
    name: str, text: str, forms: Mapping[Kind, Form], declared: DeclaredTypes | None = None
) -> Evaluation[object]:
    names = columns_of(parse_expression(text))

    def finish(compute: Callable[[Row], Any], kind: Kind) -> Callable[[Row], object]:
        _check_kind(kind)
        form = forms.get(kind)

        def computed(row: Row) -> object:
            try:
                value = compute(row)
            except AbsentError:
                # What is computed from nothing that changed has not changed. Otherwise its value is not known.
                if all(row.get(column) is ABSENT for column in names):
                    return ABSENT
                raise
            return value if form is None or value is None else form(value)

        return computed

    return Evaluation(f"{OPTION}.{name}", text, finish, declared)


def check_computed(text: str, kinds: Mapping[str, Kind]) -> Kind:
    """The type of a column that is computed like that, in a table with columns of these types.

    UNKNOWN where only events show it. Raises ExpressionError.
    """
    expression = parse_expression(text)
    check_names(expression, kinds, f". A text is in quotes: \"'{text[:20]}'\"" if text.isidentifier() else "")
    kind = kind_of(expression, kinds)
    _check_kind(kind, of_events=False)
    return kind


def _check_kind(kind: Kind, *, of_events: bool = True) -> None:
    """Raise ExpressionError for what no column can be made of. ``of_events``: NULL may be a value's own type."""
    if kind is Kind.NULL and not of_events:
        raise ExpressionError("the result is always NULL, so its type is not known. Write CAST(NULL AS TEXT)")
    if kind is Kind.OTHER:
        raise ExpressionError(
            "the column has a type that expressions do not take. To give it another name, use columns.rename"
        )


def check_held(kind: Kind, database: str, type_: str) -> None:
    """Raise ExpressionError for a column of the sink that does not take results of this type.

    ``type_``: as the sink's catalogue has it. What databases know better, such as an enum, is left to them.
    """
    there = kind_at_database(database, type_)
    is_same = there in (kind, Kind.OTHER, Kind.UNKNOWN) or kind is Kind.UNKNOWN
    if is_same or (kind, there) in _TAKEN or (kind, type_) == (Kind.TIMESTAMPTZ, "datetime"):
        return
    raise ExpressionError(f"the result is of type {kind}, and the sink's column of type {type_}. Use CAST, or ALTER it")


_TAKEN: Final = {(Kind.INTEGER, Kind.NUMERIC), (Kind.BOOLEAN, Kind.INTEGER)}
"""Columns of another type that take every value: MySQL's booleans are integers."""
