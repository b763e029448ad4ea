"""Which rows a table has at the sink: a feed's ``where``, asked of the source's values of each row.

Nothing but the row after a change is asked, so every event is enough, whatever it has of the row before. A row that is
not kept becomes a delete of its key: the sink may have an earlier version of it, and to delete nothing does no harm.

The expression is compiled once per schema of the events. Where events have no schema, it is compiled once per types of
the values that it needs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headgate.config.expressions import Expression, ExpressionError, Kind, parse_expression
from headgate.formats.change import (
    CONNECTOR,
    DATA_ERRORS,
    LACKING,
    LACKING_NULL,
    Change,
    ChangeError,
    Operation,
    Row,
    reason_of,
)
from headgate.formats.decoding import UndecodableError
from headgate.formats.expressions.code import compile_expression
from headgate.formats.expressions.typing import check_condition, columns_of
from headgate.formats.expressions.values import Readable, read_of_database, read_of_event, read_of_value
from headgate.records.name_lists import shown_names

__all__ = ["Keeps", "RowFilter", "check_where", "filter_at_database", "filtered_columns"]

TYPES_MAX: Final = 256
"""Combinations of types remembered, of events without a schema. More of them would be of bad events."""

MEANINGS_MAX: Final = 256
"""Schemas remembered, of one table. Few tables are ever altered as often."""

OPTION: Final = "where"

Keeps = Callable[[Row], bool]


class RowFilter:
    """The filter of one table."""

    def __init__(self, where: str) -> None:
        """Raises ExpressionError."""
        self._expression = parse_expression(where)
        self.columns = columns_of(self._expression)
        self._by_meaning: dict[int, tuple[dict[str, str] | None, Keeps]] = {}

    def filtered(self, changes: Sequence[Change]) -> list[Change]:
        """The changes as the sink must get them. Raises UndecodableError at the first that cannot be decided."""
        done: list[Change] = []
        add, last, keeps = done.append, None, None
        for change in changes:
            row = change.row
            if row is None:
                add(change)
                continue
            try:
                if keeps is None or change.semantics is not last:
                    last, keeps = change.semantics, self._known(change.semantics)
                is_kept = keeps(row)
            except DATA_ERRORS as error:
                place = change.partition, change.offset
                before = [each for each in done if (each.partition, each.offset) != place]
                raise UndecodableError(*place, reason_of(error), before) from error
            if is_kept:
                add(change)
            elif change.key:  # a row of a table without a key is only ever added
                add(_gone(change))
        return done

    def _known(self, semantics: dict[str, str] | None) -> Keeps:
        known = self._by_meaning.get(id(semantics))
        if known is None:
            if len(self._by_meaning) >= MEANINGS_MAX:
                self._by_meaning.clear()
            # What is remembered by its identity must live as long.
            known = self._by_meaning[id(semantics)] = semantics, self.keeps(semantics)
        return known[1]

    def keeps(self, semantics: Mapping[str, str] | None) -> Keeps:
        """Whether rows whose values have this meaning go to the sink. Raises ChangeError, as its result does."""
        told = semantics or {}
        is_null = told.get(LACKING) == LACKING_NULL
        described = any(name and not name.startswith("\x00") for name in told if name != CONNECTOR)
        if not described:
            return self._by_values(is_null=is_null)
        unknown = [name for name in self.columns if name not in told]
        if unknown:
            known = sorted(name for name in told if name and not name.startswith("\x00"))
            raise _refused(
                f"the event's table does not have the columns {shown_names(unknown)}. It has {shown_names(known)}"
            )
        columns = {name: read_of_event(name, told[name]) for name in self.columns}
        return _guarded(_condition(self._expression, columns, is_null=is_null))

    def _by_values(self, *, is_null: bool) -> Keeps:
        names, known = self.columns, dict[tuple[type, ...], Keeps]()

        def keeps(row: Row) -> bool:
            types = tuple([type(row.get(name)) for name in names])
            found = known.get(types)
            if found is None:
                if len(known) >= TYPES_MAX:
                    known.clear()
                columns = {name: read_of_value(name, type_) for name, type_ in zip(names, types, strict=True)}
                found = known[types] = _guarded(_condition(self._expression, columns, is_null=is_null))
            return found(row)

        return keeps


def _gone(change: Change) -> Change:
    return Change(
        change.partition,
        change.offset,
        Operation.DELETE,
        change.key,
        None,
        change.source_ms,
        change.append_ms,
        change.semantics,
    )


def check_where(where: str, kinds: Mapping[str, Kind]) -> None:
    """Raise ExpressionError unless a table with columns of these types can be filtered like that."""
    expression = parse_expression(where)
    missing = [name for name in columns_of(expression) if name not in kinds]
    if missing:
        raise ExpressionError(
            f"the source's table does not have the columns {shown_names(missing)}. Its columns are "
            f"{shown_names(sorted(kinds))}. Correct the name: columns are named as at the source, in the same case"
        )
    check_condition(expression, kinds)


def filtered_columns(where: str) -> tuple[str, ...]:
    """The columns that a filter asks for."""
    return columns_of(parse_expression(where))


def filter_at_database(where: str, database: str, types: Mapping[str, str]) -> Keeps:
    """The same for rows as texts of a database. ``types``: column → type, of the table's. Raises ChangeError."""
    expression = parse_expression(where)
    missing = [name for name in columns_of(expression) if name not in types]
    if missing:
        raise _refused(f"the source's table does not have the columns {shown_names(missing)}")
    columns = {name: read_of_database(name, database, types[name]) for name in columns_of(expression)}
    return _guarded(_condition(expression, columns, is_null=False))


def _condition(expression: Expression, columns: Mapping[str, Readable], *, is_null: bool) -> Callable[[Row], Any]:
    try:
        check_condition(expression, {name: kind for name, (kind, _) in columns.items()})
        return compile_expression(expression, columns, lacking_is_null=is_null)
    except ExpressionError as error:
        raise _refused(str(error)) from error


def _guarded(compute: Callable[[Row], Any]) -> Keeps:
    def keeps(row: Row) -> bool:
        try:
            return compute(row) is True
        except KeyError as error:
            raise _refused(f"the event's row does not have column {error.args[0]}") from None
        except ChangeError as error:
            raise _refused(str(error)) from None

    return keeps


def _refused(why: str) -> ChangeError:
    return ChangeError(f"{OPTION}: {why}")
