"""Which rows a table has at the sink: a feed's ``where``, asked of the source's values of each row.

Nothing but the row after a change is asked, so every event is enough, whatever it has of the row before. A row that is
not kept becomes a delete of its key: the sink may have an earlier version of it, and to delete nothing does no harm.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headgate.config.expressions import Kind, columns_of, parse_expression
from headgate.formats.change import DATA_ERRORS, Change, Operation, Row, reason_of
from headgate.formats.decoding import UndecodableError
from headgate.formats.expressions.declared import DeclaredTypes
from headgate.formats.expressions.evaluation import Evaluation, check_names
from headgate.formats.expressions.typing import check_condition, check_is_condition

__all__ = ["Keeps", "RowFilter", "check_where", "filter_at_database", "filtered_columns"]

OPTION: Final = "where"

Keeps = Callable[[Row], bool]


class RowFilter:
    """The filter of one table."""

    def __init__(self, where: str, declared: DeclaredTypes | None = None) -> None:
        """``declared``: see Evaluation. Raises ExpressionError."""
        self._evaluation = _evaluation(where, declared)

    def filtered(self, changes: Sequence[Change]) -> list[Change]:
        """The changes as the sink must get them. Raises UndecodableError at the first that cannot be decided.

        Raises SourceTypesUnavailableError.
        """
        done: list[Change] = []
        add, last, keeps = done.append, None, None
        for change in changes:
            row = change.row
            if row is None:
                add(change)
                continue
            try:
                if keeps is None or change.semantics is not last:
                    last, keeps = change.semantics, self._evaluation.known(change.semantics)
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

    def keeps(self, semantics: Mapping[str, str] | None) -> Keeps:
        """Whether rows whose values have this meaning go to the sink. Raises ChangeError, as its result does."""
        return self._evaluation.of(semantics)


def _evaluation(where: str, declared: DeclaredTypes | None = None) -> Evaluation[bool]:
    return Evaluation(OPTION, where, _keeping, declared)


def _keeping(compute: Callable[[Row], Any], kind: Kind) -> Keeps:
    check_is_condition(kind)
    return lambda row: compute(row) is True


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
    check_names(expression, kinds)
    check_condition(expression, kinds)


def filtered_columns(where: str) -> tuple[str, ...]:
    """The columns that a filter asks for."""
    return columns_of(parse_expression(where))


def filter_at_database(where: str, database: str, types: Mapping[str, str]) -> Keeps:
    """The same for rows as texts of a database. ``types``: column → type, of the table's. Raises ChangeError."""
    return _evaluation(where).at_database(database, types)
