"""What must be done to a sink's table so that it takes a change of a source that was altered. Pure.

In: the table's definitions at source and sink, and the columns of a change that the sink lacks. Out: statements, or
for a lake what its one commit changes, or reasons why Headgate does not alter the table, each with what to run instead.

A column is added only if it is known to be new, to be what the change has, and what older rows have in it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from headgate.databases.catalogue import CatalogueColumn, Product
from headgate.databases.mysql import sql as mysql
from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.mysql.types import parse_type as parse_mysql
from headgate.databases.postgresql import sql as postgresql
from headgate.databases.postgresql.catalogue import EnumType, PostgresColumn
from headgate.databases.postgresql.types import PostgresType
from headgate.databases.postgresql.types import parse_type as parse_postgresql
from headgate.records.identifiers import table_spelling
from headgate.records.name_lists import shown_names
from headgate.sinks.altering import AddedColumn, ColumnChanges
from headgate.sinks.creating import LakeType, NewColumn, quoted_by_spark
from headgate.sinks.known_columns import ColumnNumbers, KnownColumns
from headgate.tables.event_types import is_misfit
from headgate.tables.first_values import FirstValue, first_value
from headgate.tables.lake_definition import LakeDefinition, SinkDefinition, spelled
from headgate.tables.lake_tables import lake_outcomes
from headgate.tables.mapped import Mapped, Outcome, Unmapped
from headgate.tables.names import name_problem
from headgate.tables.plan import Sink
from headgate.tables.postgresql_to_postgresql import GENERATED
from headgate.tables.statement import Definition, comment_of, outcomes_of

__all__ = [
    "Alteration",
    "AlterationContext",
    "ColumnNames",
    "SourceColumn",
    "alter_of",
    "names_of",
    "plan_alteration",
    "quoted_at",
    "sink_outcomes",
]  # fmt: skip

C = TypeVar("C", bound=CatalogueColumn)

SourceColumn = PostgresColumn | MysqlColumn
"""A column of either kind of database."""


class AlterationContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan needs beside the two definitions.

    ``missing``: the source's column → the value with which PostgreSQL records that it was added. ``is_empty``: the
    sink's table has no row, and no row that is older than the columns can still come. ``types``: column → the user's
    type. ``shown``: the statement that MySQL and MariaDB print for the sink's table. ``kept``: what the sink keeps of
    its columns, ``numbers``: those of the source's columns now. ``is_refilled``: all rows are copied next. ``masked``:
    columns of the sink with other values than the source's, which a column must not get by another name. ``exclude``:
    columns of the source that the sink must not get by another name either.
    """

    sink: Sink
    missing: Mapping[str, str] = {}
    is_empty: bool = False
    types: Mapping[str, str] = {}
    shown: str = ""
    kept: KnownColumns = KnownColumns()
    numbers: ColumnNumbers | None = None
    is_refilled: bool = False
    masked: frozenset[str] = frozenset()
    exclude: tuple[str, ...] = ()


class Alteration(msgspec.Struct, frozen=True, kw_only=True):
    """Statements, without semicolons, for one table of a sink; none if ``refusals`` has reasons.

    ``needs``: enums that must exist before. ``columns``: those that they add or alter. ``lost``: columns that were
    dropped at the sink with their values, as sentences. ``changes``: instead of statements, for a lake. ``one_by_one``:
    statements of which each is for one column and does not need another one, where columns are altered.
    """

    name: str
    schema: str
    statements: tuple[str, ...] = ()
    needs: tuple[EnumType, ...] = ()
    columns: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    changes: ColumnChanges | None = None
    one_by_one: tuple[str, ...] = ()


class _Added(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    mapped: Mapped
    default: str | None
    comment: str | None


_MASKED: Final = "the column is masked under its former name only, so add its new name to columns.mask of the feed"


class _NotAddedError(Exception):
    """Why a column is not added, and what to do."""


def plan_alteration(
    source: Definition, sink: SinkDefinition, lacking: Mapping[str, str], known: AlterationContext
) -> Alteration:
    """What must be done to the sink's table. Nothing is left to do if it has the columns by now.

    ``lacking``: column → how the change's event describes its values, empty if it does not.
    """
    name = spelled(sink)
    wanted = [column for column in lacking if column not in ColumnNames(sink.product, sink.form.columns)]
    added: list[_Added] = []
    refusals: list[str] = []
    planner = _Planner(source, sink, known)
    lost = tuple(_lost(sink, column) for column in wanted if planner.is_lost(column))
    if lost:
        return Alteration(name=name, schema=sink.schema, lost=lost)
    renamed: dict[str, str] = {}
    for column in wanted:
        try:
            planner.check_excluded(column)
            former = planner.former(column)
            if former is None:
                added.append(planner.added(column, lacking[column]))
            else:
                renamed[column] = former
        except _NotAddedError as error:
            refusals.append(f"column {column} of table {name} was not added: {error}")
    refusals += _not_renamed(sink, renamed)
    refusals += [
        f"column {former} of table {name} was not renamed to {column}: {_MASKED}. Then "
        f"{_to_rename(sink, [former], column)}"
        for column, former in renamed.items()
        if former in known.masked
    ]
    if refusals:
        return Alteration(name=name, schema=sink.schema, refusals=tuple(refusals))
    columns = (*renamed, *(column.name for column in added))
    if isinstance(sink, LakeDefinition):
        renames_of_lake = {former: column for column, former in renamed.items()}
        changes = ColumnChanges(tuple(map(_added_to_lake, added)), renames_of_lake) if columns else None
        return Alteration(name=name, schema=sink.schema, columns=columns, changes=changes)
    renames = [_rename(sink, former, column) for column, former in renamed.items()]
    return Alteration(
        name=name,
        schema=sink.schema,
        statements=(*renames, *(_statements(sink, added) if added else ())),
        needs=tuple(dict.fromkeys(column.mapped.needs for column in added if column.mapped.needs is not None)),
        columns=columns,
    )


class ColumnNames(Generic[C]):
    """A table's column names, as its database compares them."""

    def __init__(self, product: Product, columns: Sequence[C]) -> None:
        self._folds = product.ignores_case
        self._columns = {self.folded(column.name): column for column in columns}

    def folded(self, name: str) -> str:
        """The name in the form in which names are compared."""
        return name.casefold() if self._folds else name

    def __contains__(self, name: str) -> bool:
        return self.folded(name) in self._columns

    def get(self, name: str) -> C | None:
        """The column of that name."""
        return self._columns.get(self.folded(name))


def names_of(source: Definition) -> ColumnNames[SourceColumn]:
    """The names of a source's columns."""
    return ColumnNames(source.product, source.form.columns)


def sink_outcomes(source: Definition, sink: SinkDefinition, overrides: Mapping[str, str]) -> dict[str, Outcome]:
    """What becomes of each of the source's columns at the sink. ``overrides``: column → the user's type."""
    if isinstance(sink, LakeDefinition):
        return lake_outcomes(source, overrides)
    return outcomes_of(source, sink.product, overrides)


class _Planner:
    """Decides about one column after the other."""

    def __init__(self, source: Definition, sink: SinkDefinition, known: AlterationContext) -> None:
        self._source, self._sink, self._known = source, sink, known
        self._product = known.sink.product
        self._outcomes = sink_outcomes(source, sink, known.types)
        self._at_source, self._at_sink = names_of(source), ColumnNames(sink.product, sink.form.columns)
        self._in_sinks_names = ColumnNames(sink.product, source.form.columns)
        """The source's columns, whose names are compared as the sink does: to MySQL ``Mail`` is ``mail``."""

    def is_lost(self, name: str) -> bool:
        """Whether the sink's table had the column when rows were written, so that it was dropped there."""
        if self._known.is_empty or self._known.is_refilled or name not in self._at_source:
            return False
        folded = self._at_sink.folded
        return folded(name) in map(folded, self._known.kept.applied)

    def check_excluded(self, name: str) -> None:
        """Raise _NotAddedError for a column that is, or may be, one that the feed leaves out, by a new name."""
        known = self._known
        former = known.kept.excluded.former_names(name, known.numbers, known.exclude)
        proven = [old for old, is_proven in former.items() if is_proven]
        if proven:
            raise _NotAddedError(
                f"it is the new name of {proven[0]}, which columns.exclude leaves out. Add {name} to columns.exclude "
                f"and keep {proven[0]} there, because older changes have it. If the sink is to have it, remove "
                f"{proven[0]} from columns.exclude"
            )
        if former:
            names = shown_names(list(former))
            raise _NotAddedError(
                f"it may be the new name of {names}, which columns.exclude leaves out and the source's table does not "
                f"have any more. If it was renamed, add {name} to columns.exclude. If it is new, remove {names} from "
                "columns.exclude"
            )

    def former(self, name: str) -> str | None:
        """The sink's column that has the name at the source by now, as the source's catalogue proves."""
        former = map(self._at_sink.get, self._known.kept.former_names(name, self._known.numbers))
        there = [column.name for column in former if column is not None and column.name not in self._in_sinks_names]
        return there[0] if len(there) == 1 else None

    def added(self, name: str, meaning: str) -> _Added:
        """The sink's new column. Raises _NotAddedError."""
        column = self._found(name)
        mapped = self._mapped(column)
        problem = self._name_problem(column.name)
        if problem is not None:
            raise _NotAddedError(problem)
        self._check_meaning(column, meaning)
        self._check_key(column, mapped)
        self._check_enum(mapped)
        self._check_new(column, mapped)
        comment = comment_of(self._source.comments.get(column.name), self._product, "column")
        return _Added(name=name, mapped=mapped, default=self._default(column, mapped), comment=comment)

    def _name_problem(self, name: str) -> str | None:
        if not isinstance(self._sink, LakeDefinition):
            return name_problem(name, self._product, is_column=True)
        alike = [each.name for each in self._sink.form.columns if each.name.casefold() == name.casefold()]
        if alike:
            return (
                f"the table has {alike[0]}, which differs only in upper and lower case. Rename it with columns.rename"
            )
        problem = self._sink.rules.name_problem(name)
        return None if problem is None else f"{problem}. Rename it with columns.rename"

    def _found(self, name: str) -> SourceColumn:
        found = self._at_source.get(name)
        if found is not None and name not in self._in_sinks_names:
            raise _NotAddedError(
                f"the source's table calls it {found.name} now, which is another column at the sink. The change is "
                f"from before that. Run {_statement(self._sink, name, '…')} with its type, and copy its values into "
                f"{quoted_at(self._sink, found.name)} when the table has passed these changes"
            )
        if found is None:
            table = table_spelling(self._source.schema, self._source.table)
            gone = [each.name for each in self._sink.form.columns if each.name not in self._in_sinks_names]
            renamed = (
                f"If it is another name of {shown_names(gone)}, {_to_rename(self._sink, gone, name)}. Otherwise run"
                if gone
                else "Run"
            )
            raise _NotAddedError(
                f"the source's table {table} does not have it any more. It was dropped or renamed after this change. "
                f"{renamed} {_statement(self._sink, name, '…')} with the type that it had"
            )
        return found

    def _mapped(self, column: SourceColumn) -> Mapped:
        outcome = self._outcomes[column.name]
        if isinstance(outcome, Mapped) and outcome.generated is None:
            return outcome
        if isinstance(outcome, Mapped):
            computed = f"{outcome.type.sql} GENERATED ALWAYS AS ({outcome.generated}) STORED"
            raise _NotAddedError(f"{GENERATED}. Run {_statement(self._sink, column.name, computed)}")
        instead = (outcome.instead if isinstance(outcome, Unmapped) else "") or "…"
        raise _NotAddedError(
            f"{outcome.reason}. Run {_statement(self._sink, column.name, instead)} with a type that holds its values"
        )

    def _check_meaning(self, column: SourceColumn, meaning: str) -> None:
        if is_misfit(meaning, column):
            raise _NotAddedError(
                f"the change was made when it had another type ({meaning}), and the source's column is {column.type} "
                f"now. Run {_statement(self._sink, column.name, '…')} with the type that it had, and alter it when the "
                "table has passed these changes"
            )

    def _check_key(self, column: SourceColumn, mapped: Mapped) -> None:
        key = self._source.form.primary
        if key is not None and column.name in key.columns:
            columns = ", ".join(quoted_at(self._sink, part) for part in key.columns)
            raise _NotAddedError(
                f"it is part of the source's primary key, and the sink's table has another key. Pause the feed and run "
                f"{_statement(self._sink, column.name, mapped.type.sql)}, fill the column, and give the table PRIMARY "
                f"KEY ({columns})"
            )

    def _check_enum(self, mapped: Mapped) -> None:
        wanted = mapped.needs
        for enum in self._known.sink.enums if wanted is not None else ():
            if wanted is not None and (enum.schema, enum.name) == (wanted.schema, wanted.name) and enum != wanted:
                raise _NotAddedError(
                    f"the sink's enum {mapped.type.sql} has other labels than the source's. Run ALTER TYPE "
                    f"{mapped.type.sql} ADD VALUE … for each missing label"
                )

    def _check_new(self, column: SourceColumn, mapped: Mapped) -> None:
        """Raise _NotAddedError if the column may have had another name, which events do not show.

        A column that was added is behind all others of the source, unless it was placed elsewhere. A column that
        was renamed keeps its type.
        """
        gone = [each for each in self._sink.form.columns if each.name not in self._in_sinks_names]
        numbers = [each.number for each in self._source.form.columns if each.name in self._at_sink]
        is_last = column.number > max(numbers, default=0)
        former = [each.name for each in gone if not is_last or _kind_of(each) in (None, _name_of(mapped))]
        if former:
            hint = "" if self._known.masked.isdisjoint(former) else f", {_MASKED}, and then"
            raise _NotAddedError(
                f"it may be the new name of {shown_names(former)}, which the source's table does not have. If it was "
                f"renamed{hint}, {_to_rename(self._sink, former, column.name)}. If it is new, run "
                f"{_statement(self._sink, column.name, mapped.type.sql)}, with the source's default"
            )

    def _default(self, column: SourceColumn, mapped: Mapped) -> str | None:
        """What follows DEFAULT, so that rows that are there get what the source's rows have."""
        if isinstance(self._sink, LakeDefinition) and self._sink.rules.appends:
            return None
        missing = self._known.missing.get(column.name)
        value = first_value(column, mapped, self._source.product, self._product, missing)
        if isinstance(value, FirstValue):
            return value.sql
        if self._known.is_empty or self._known.is_refilled:
            return None
        raise _NotAddedError(
            f"it is not known what rows that do not change again have in it: {value.reason}. Run "
            f"{_statement(self._sink, column.name, mapped.type.sql)}, and give those rows their values by a DEFAULT or "
            "an UPDATE"
        )


def _kind_of(column: CatalogueColumn) -> str | None:
    """The name of a sink's type without its numbers; None for one that is not on the list."""
    if isinstance(column, MysqlColumn):
        found = parse_mysql(column.type)
        return column.kind if column.kind == "json" or found is None else found.name
    if not isinstance(column, PostgresColumn):
        return _SMALL.get(column.kind, column.kind)
    known = parse_postgresql(column.base)
    return None if known is None else known.name


_SMALL: Final = {"tinyint": "int", "smallint": "int"}
"""Types of lakes that Iceberg keeps as another one."""


def _name_of(mapped: Mapped) -> str | None:
    type_ = mapped.type
    if isinstance(type_, LakeType):
        return _SMALL.get(type_.name, type_.name)
    return None if isinstance(type_, PostgresType) and type_.own is not None else type_.name


def _not_renamed(sink: SinkDefinition, renamed: Mapping[str, str]) -> list[str]:
    """Why renames that are proven are not made. ``renamed``: column → its former name."""
    if not isinstance(sink, LakeDefinition) or sink.rules.renames:
        return []
    return [
        f"column {former} of table {spelled(sink)} is {column} at the source now, and such tables do not rename a "
        f"column without writing every file again: {_to_rename(sink, [former], column)}"
        for column, former in renamed.items()
    ]


def _added_to_lake(column: _Added) -> AddedColumn:
    assert isinstance(column.mapped.type, LakeType)  # noqa: S101 - what a lake's columns are mapped to
    return AddedColumn(NewColumn(column.name, column.mapped.type, comment=column.comment or None), column.default)


# --- statements ---


def quoted_at(sink: SinkDefinition, name: str) -> str:
    """A name as statements for the sink have it."""
    if isinstance(sink, LakeDefinition):
        return quoted_by_spark(name)
    return postgresql.quoted(name) if sink.product is Product.POSTGRESQL else mysql.quoted(name)


def alter_of(sink: SinkDefinition) -> str:
    """How a statement that alters the sink's table begins."""
    if isinstance(sink, LakeDefinition):
        return f"ALTER TABLE {sink.rules.place}"
    quoted = postgresql.quoted if sink.product is Product.POSTGRESQL else mysql.quoted
    return f"ALTER TABLE {quoted(sink.schema, sink.table)}"


def _to_rename(sink: SinkDefinition, former: Sequence[str], column: str) -> str:
    """What people do if the column is one of ``former``."""
    if isinstance(sink, LakeDefinition) and not sink.rules.renames:
        pairs = [f"{{{column}: {name}}}" for name in former]
        return f"keep the table's name: update the feed with columns.rename: {shown_names(pairs)}"
    return f"run {shown_names([_rename(sink, name, column) for name in former])}"


def _rename(sink: SinkDefinition, former: str, column: str) -> str:
    return f"{alter_of(sink)} RENAME COLUMN {quoted_at(sink, former)} TO {quoted_at(sink, column)}"


def _lost(sink: SinkDefinition, column: str) -> str:
    return f"column {column} of table {spelled(sink)} was dropped at the sink, after rows had been written with it"


def _statement(sink: SinkDefinition, column: str, type_: str) -> str:
    """For people."""
    return f"{alter_of(sink)} ADD COLUMN {quoted_at(sink, column)} {type_}"


def _statements(sink: Definition, added: Iterable[_Added]) -> Iterator[str]:
    """One statement adds all columns, so that no client sees only some of them."""
    is_postgresql = sink.product is Product.POSTGRESQL
    # MySQL does not know IF NOT EXISTS here: the second agent gets an error, and reads the catalogue again.
    adding = "ADD COLUMN IF NOT EXISTS" if is_postgresql else "ADD COLUMN"
    yield f"{alter_of(sink)} " + ", ".join(
        f"{adding} {quoted_at(sink, column.name)} {column.mapped.type.sql}"
        + ("" if is_postgresql else " NULL")
        + ("" if column.default is None else f" DEFAULT {column.default}")
        + ("" if is_postgresql or not column.comment else f" COMMENT {mysql.literal(column.comment)}")
        for column in added
    )
    if is_postgresql:
        target = postgresql.quoted(sink.schema, sink.table)
        for column in added:
            if column.comment:
                name = f"{target}.{postgresql.quoted(column.name)}"
                yield f"COMMENT ON COLUMN {name} IS {postgresql.literal(column.comment)}"
