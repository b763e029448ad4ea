"""An expression of one option of a table, compiled for what the table's values mean.

It is compiled once per schema of the events. Where events have no schema, it is compiled once per types of the values
that it needs. Errors begin with the option.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from headgate.config.expressions import Expression, ExpressionError, Kind, columns_of, parse_expression
from headgate.formats.change import CONNECTOR, LACKING, LACKING_NULL, ChangeError, Row
from headgate.formats.expressions.code import compile_expression
from headgate.formats.expressions.typing import kind_of
from headgate.formats.expressions.values import Readable, read_of_database, read_of_event, read_of_value
from headgate.records.name_lists import shown_names

__all__ = ["Evaluation", "check_names"]

TYPES_MAX: Final = 256
"""Combinations of types remembered, of events without a schema. More of them would be of bad events."""

MEANINGS_MAX: Final = 256
"""Schemas remembered, of one table. Few tables are ever altered as often."""

T = TypeVar("T")
Finish = Callable[[Callable[[Row], Any], Kind], Callable[[Row], T]]
"""What an option makes of a compiled expression and its type. May raise ExpressionError for a type."""


class Evaluation(Generic[T]):
    """The functions of one expression. ``finish``: see Finish; its functions may raise KeyError and ChangeError."""

    def __init__(self, option: str, text: str, finish: Finish[T]) -> None:
        """Raises ExpressionError."""
        self._option = option
        self._expression = parse_expression(text)
        self._finish = finish
        self.columns = columns_of(self._expression)
        self._by_meaning: dict[int, tuple[dict[str, str] | None, Callable[[Row], T]]] = {}

    def known(self, semantics: dict[str, str] | None) -> Callable[[Row], T]:
        """The same as ``of``, remembered for a dictionary that many changes share."""
        known = self._by_meaning.get(id(semantics))
        if known is None:
            if len(self._by_meaning) >= MEANINGS_MAX:
                self._by_meaning.clear()
            # What is remembered by its identity must live as long.
            known = self._by_meaning[id(semantics)] = semantics, self.of(semantics)
        return known[1]

    def of(self, semantics: Mapping[str, str] | None) -> Callable[[Row], T]:
        """The function of rows whose values have this meaning. Raises ChangeError, as its result does."""
        told = semantics or {}
        is_null = told.get(LACKING) == LACKING_NULL
        described = any(name and not name.startswith("\x00") for name in told if name != CONNECTOR)
        if not described:
            return self._by_values(is_null=is_null)
        unknown = [name for name in self.columns if name not in told]
        if unknown:
            known = sorted(name for name in told if name and not name.startswith("\x00"))
            raise self._refused(
                f"the event's table does not have the columns {shown_names(unknown)}. It has {shown_names(known)}"
            )
        columns = {name: read_of_event(name, told[name]) for name in self.columns}
        return self._guarded(self._compiled(columns, is_null=is_null))

    def at_database(self, database: str, types: Mapping[str, str]) -> Callable[[Row], T]:
        """The same for rows as texts of a database. ``types``: column → type, of the table's. Raises ChangeError."""
        missing = [name for name in self.columns if name not in types]
        if missing:
            raise self._refused(f"the source's table does not have the columns {shown_names(missing)}")
        columns = {name: read_of_database(name, database, types[name]) for name in self.columns}
        return self._guarded(self._compiled(columns, is_null=False))

    def _by_values(self, *, is_null: bool) -> Callable[[Row], T]:
        names, known = self.columns, dict[tuple[type, ...], Callable[[Row], T]]()

        def computed(row: Row) -> T:
            types = tuple([type(row.get(name)) for name in names])
            found = known.get(types)
            if found is None:
                if len(known) >= TYPES_MAX:
                    known.clear()
                columns = {name: read_of_value(name, type_) for name, type_ in zip(names, types, strict=True)}
                found = known[types] = self._guarded(self._compiled(columns, is_null=is_null))
            return found(row)

        return computed

    def _compiled(self, columns: Mapping[str, Readable], *, is_null: bool) -> Callable[[Row], T]:
        try:
            kind = kind_of(self._expression, {name: kind for name, (kind, _) in columns.items()})
            return self._finish(compile_expression(self._expression, columns, lacking_is_null=is_null), kind)
        except ExpressionError as error:
            raise self._refused(str(error)) from error

    def _guarded(self, compute: Callable[[Row], T]) -> Callable[[Row], T]:
        def guarded(row: Row) -> T:
            try:
                return compute(row)
            except KeyError as error:
                raise self._refused(f"the event's row does not have column {error.args[0]}") from None
            except ChangeError as error:
                raise self._refused(str(error)) from None

        return guarded

    def _refused(self, why: str) -> ChangeError:
        return ChangeError(f"{self._option}: {why}")


def check_names(expression: Expression, kinds: Mapping[str, Kind], hint: str = "") -> None:
    """Raise ExpressionError for a column that a table with these columns does not have."""
    missing = [name for name in columns_of(expression) if name not in kinds]
    if missing:
        raise ExpressionError(
            f"the source's table does not have the columns {shown_names(missing)}. Its columns are "
            f"{shown_names(sorted(kinds))}. Correct the name: columns are named as at the source, in the same case"
            f"{hint}"
        )
