"""An expression of one option of a table, compiled for what the table's values mean.

It is compiled once per schema of the events. Where events have no schema, it is compiled for the types of the source's
catalogue, and where that is not known either, once per types of the values that it needs. Errors begin with the option.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from headgate.config.expressions import Expression, ExpressionError, Kind, columns_of, parse_expression
from headgate.formats.change import CONNECTOR, LACKING, LACKING_NULL, ChangeError, Row, columns_described, is_described
from headgate.formats.expressions.code import compile_expression
from headgate.formats.expressions.declared import (
    DeclaredTypes,
    SourceTypes,
    is_doubtful,
    read_as_declared,
    read_of_schema,
)
from headgate.formats.expressions.reading import Readable
from headgate.formats.expressions.typing import kind_of
from headgate.formats.expressions.values import read_of_database, read_of_event, read_of_value
from headgate.records.name_lists import shown_names

__all__ = ["Evaluation", "Typed", "check_names"]

TYPES_MAX: Final = 256
"""Combinations of types remembered, of events without a schema. More of them would be of bad events."""

MEANINGS_MAX: Final = 256
"""Schemas remembered, of one table. Few tables are ever altered as often."""

NO_COLUMNS: Final[Mapping[str, Readable]] = {}

T = TypeVar("T")
Finish = Callable[[Callable[[Row], Any], Kind], Callable[[Row], T]]
"""What an option makes of a compiled expression and its type. May raise ExpressionError for a type."""


class Typed(NamedTuple, Generic[T]):
    """A function of rows, and the type of its values; None where each row's values decide."""

    function: Callable[[Row], T]
    kind: Kind | None


class _Compiled(NamedTuple, Generic[T]):
    """``types``: what it was compiled for, beside the events' own ``semantics``."""

    semantics: dict[str, str] | None
    types: SourceTypes | None
    typed: Typed[T]


class Evaluation(Generic[T]):
    """The functions of one expression. ``finish``: see Finish; its functions may raise KeyError and ChangeError.

    ``declared``: the types of the source's catalogue, None where no source database is known. They are asked for where
    events do not show a type, so functions and compiling may raise SourceTypesUnavailableError.
    """

    def __init__(self, option: str, text: str, finish: Finish[T], declared: DeclaredTypes | None = None) -> None:
        """Raises ExpressionError."""
        self._option = option
        self._expression = parse_expression(text)
        self._finish = finish
        self._declared = declared
        self.columns = columns_of(self._expression)
        self._by_meaning: dict[int, _Compiled[T]] = {}

    def known(self, semantics: dict[str, str] | None) -> Callable[[Row], T]:
        """The same as ``of``, remembered for a dictionary that many changes share."""
        return self.typed(semantics).function

    def typed(self, semantics: dict[str, str] | None) -> Typed[T]:
        """The same as ``known``, with the type that it was compiled for."""
        known = self._by_meaning.get(id(semantics))
        if known is None or (known.types is not None and self._types() is not known.types):
            if len(self._by_meaning) >= MEANINGS_MAX:
                self._by_meaning.clear()
            types = self._types() if self._needs_types(semantics or {}) else None
            # What is remembered by its identity must live as long.
            known = self._by_meaning[id(semantics)] = _Compiled(semantics, types, self._of(semantics))
        return known.typed

    def of(self, semantics: Mapping[str, str] | None) -> Callable[[Row], T]:
        """The function of rows whose values have this meaning. Raises ChangeError, as its result does."""
        return self._of(semantics).function

    def _of(self, semantics: Mapping[str, str] | None) -> Typed[T]:
        told = semantics or {}
        is_null = told.get(LACKING) == LACKING_NULL
        if not is_described(told):
            types = self._types() if self.columns else None
            if types is None:
                return Typed(self._by_values(is_null=is_null), None)
            return Typed(self._by_types(types, is_null=is_null), None)
        unknown = [name for name in self.columns if name not in told]
        if unknown:
            raise self._refused(
                f"the event's table does not have the columns {shown_names(unknown)}. It has "
                f"{shown_names(sorted(columns_described(told)))}"
            )
        compiled = self._compiled({name: self._of_schema(name, told) for name in self.columns}, is_null=is_null)
        return Typed(self._guarded(compiled.function), compiled.kind)

    def _of_schema(self, name: str, told: Mapping[str, str]) -> Readable:
        if self._declared is None:
            return read_of_event(name, told[name])
        return read_of_schema(name, told[name], told.get(CONNECTOR), self._declared)

    def _types(self) -> SourceTypes | None:
        """Raises SourceTypesUnavailableError."""
        return None if self._declared is None else self._declared.known()

    def _needs_types(self, told: Mapping[str, str]) -> bool:
        if self._declared is None or not self.columns:
            return False
        connector = told.get(CONNECTOR)
        return not is_described(told) or any(is_doubtful(told.get(name, ""), connector) for name in self.columns)

    def at_database(self, database: str, types: Mapping[str, str]) -> Callable[[Row], T]:
        """The same for rows as texts of a database. ``types``: column → type, of the table's. Raises ChangeError."""
        missing = [name for name in self.columns if name not in types]
        if missing:
            raise self._refused(f"the source's table does not have the columns {shown_names(missing)}")
        columns = {name: read_of_database(name, database, types[name]) for name in self.columns}
        return self._guarded(self._compiled(columns, is_null=False).function)

    def _by_types(self, types: SourceTypes, *, is_null: bool) -> Callable[[Row], T]:
        """Of events without schemas, by the types of the catalogue. It is read again where a value does not fit."""
        missing = [name for name in self.columns if name not in types.columns]
        if missing:
            raise self._refused(f"the source's table does not have the columns {shown_names(missing)}")
        found = {name: read_as_declared(name, types.columns[name], types) for name in self.columns}
        read = {name: readable for name, readable in found.items() if readable is not None}
        compute = self._by_values(is_null=is_null, read=read)

        def computed(row: Row) -> T:
            try:
                return compute(row)
            except ChangeError:
                assert self._declared is not None  # noqa: S101 - the types are its own
                now = self._declared.again()
                if now is types:
                    raise
                return self._by_types(now, is_null=is_null)(row)

        return computed

    def _by_values(self, *, is_null: bool, read: Mapping[str, Readable] = NO_COLUMNS) -> Callable[[Row], T]:
        """By the types of values, of columns that are not ``read`` otherwise."""
        names, known = [name for name in self.columns if name not in read], dict[tuple[type, ...], Callable[[Row], T]]()
        if not names:
            return self._guarded(self._compiled(read, is_null=is_null).function)

        def computed(row: Row) -> T:
            types = tuple([type(row.get(name)) for name in names])
            found = known.get(types)
            if found is None:
                if len(known) >= TYPES_MAX:
                    known.clear()
                columns = {name: read_of_value(name, type_) for name, type_ in zip(names, types, strict=True)}
                columns.update(read)
                found = known[types] = self._guarded(self._compiled(columns, is_null=is_null).function)
            return found(row)

        return computed

    def _compiled(self, columns: Mapping[str, Readable], *, is_null: bool) -> Typed[T]:
        try:
            kind = kind_of(self._expression, {name: readable.kind for name, readable in columns.items()})
            compute = compile_expression(self._expression, columns, lacking_is_null=is_null)
            return Typed(self._finish(compute, kind), kind)
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
