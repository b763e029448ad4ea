"""Altering a table of a sink, so that it takes changes of a source that was altered.

A lake is altered in one commit, under the fence that also guards rows (sinks/lake/altering.py). Of a database: like
the creation of tables (``creation``), it is not guarded by a lock. Each statement either was executed as a whole
or was not, and PostgreSQL executes all of them in one transaction. Of two agents with parts of one table one alters it,
and the other finds it altered. An agent that is killed afterwards leaves a table that takes the same changes.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec

from headgate.config.columns import ColumnOptions
from headgate.config.feed import FeedSpec
from headgate.databases.address import Target
from headgate.databases.catalogue import Product
from headgate.databases.faults import Fault
from headgate.databases.kinds import kind_of
from headgate.databases.mysql.errors import MysqlError, errno
from headgate.databases.mysql.errors import fault_of as mysql_fault
from headgate.databases.mysql.session import MysqlSession
from headgate.databases.postgresql.errors import PostgresError
from headgate.databases.postgresql.errors import fault_of as postgresql_fault
from headgate.records.control import Positions, SpanPlan
from headgate.records.identifiers import parse_identifier
from headgate.records.name_lists import shown_names
from headgate.records.spans import parse_span, table_of
from headgate.sinks.altering import AltersTables
from headgate.sinks.contract import Claim, SinkError, SinkRefusedError, SinkUnavailableError, ValueRefusedError
from headgate.sinks.known_columns import ColumnNumbers, KnownColumns
from headgate.sinks.registry import target_of
from headgate.sinks.relational.mysql.faults import sink_error as mysql_sink_error
from headgate.sinks.relational.postgresql.faults import sink_error as postgresql_sink_error
from headgate.sinks.relational.rights import RightsMissingError
from headgate.sinks.relational.session import as_sink_errors
from headgate.sources.database import as_source_errors, source_target
from headgate.sources.table_names import source_table
from headgate.sources.table_options import spec_of
from headgate.tables.alteration import Alteration, AlterationContext, names_of, plan_alteration
from headgate.tables.catalogues import open_catalogue
from headgate.tables.executing import TRIES, TakenError, execute_at_mysql, execute_at_postgresql
from headgate.tables.fitting import plan_fitting
from headgate.tables.keyed import keyed_definition
from headgate.tables.lake_catalogue import LakeCatalogue
from headgate.tables.lake_definition import LakeDefinition, SinkDefinition
from headgate.tables.missing import Said, chosen_types
from headgate.tables.mysql_rights import grant_on, missing_alter
from headgate.tables.plan import Sink, needed_first
from headgate.tables.retyped import may_have_other_values
from headgate.tables.shaped import shaped_definition, with_target_names
from headgate.tables.statement import Definition

__all__ = [
    "AtLake", "NotAlteredError", "ResyncNeededError", "StillRefusedError", "add_columns", "check_hidden",
    "check_replaced", "check_restored", "check_retyped", "fit_columns", "numbers_now", "restore_columns",
    "shaped_numbers", "source_numbers", "with_other_values",
]  # fmt: skip

_DUPLICATE_COLUMN: Final = 1060
_UNKNOWN_COLUMN: Final = 1054
_NO_SUCH_COLUMN: Final = "42703"
"""Another agent has renamed it."""


class NotAlteredError(SinkError):
    """Headgate does not alter this table. Once an operator has altered it, it continues by itself."""

    code = "sink_column_missing"
    retryable = True


class StillRefusedError(SinkError):
    """A value that the sink's table does not take, and that no alteration makes possible."""

    code = ValueRefusedError.code


class AtLake(msgspec.Struct, frozen=True):
    """A sink that takes no statements, and the claim under which it alters the table."""

    sink: AltersTables
    claim: Claim
    positions: Positions


class ResyncNeededError(SinkError):
    """Rows of the sink lack values that no change will bring. The table continues once all rows were copied."""

    code = "resync_needed"
    retryable = True


def add_columns(
    spec: FeedSpec,
    plan: SpanPlan,
    lacking: Mapping[str, str],
    said: Said,
    kept: KnownColumns | None = None,
    *,
    lake: AtLake | None = None,
    numbers: ColumnNumbers | None = None,
) -> tuple[str, ...]:
    """Add columns that a change has and the feed's table lacks, or give them their new names. Idempotent.

    ``lacking``: column → how the change's event describes its values. ``kept``: what the sink keeps of the table's
    columns. ``lake``: where the sink is one. ``numbers``: of the source's columns, unless its catalogue has them.
    Returns the columns. Raises SinkError, SourceError.
    """
    masks = spec_of(spec, plan).columns
    computed = [name for name in lacking if name in masks.set]
    if computed:
        raise NotAlteredError(
            f"column {shown_names(computed)} of table {plan.table} was not added: it is computed (columns.set), so the "
            "source's catalogue does not have what older rows have in it. Add it at the sink yourself, then copy the "
            f"rows with {_resync_of(spec, plan)}"
        )
    masked = [name for name in lacking if masks.source(name) in masks.mask]
    if masked:
        raise NotAlteredError(
            f"column {shown_names(masked)} of table {plan.table} was not added: it is masked, so the source's "
            "catalogue does not have what older rows have in it. Add it at the sink yourself"
        )
    kept = kept or KnownColumns()
    for _ in range(TRIES):
        with _both(spec, plan, said, ", ".join(lacking), lake, numbers) as (source, sink, known):
            alteration = plan_alteration(source, sink, lacking, msgspec.structs.replace(known, kept=kept))
        if alteration.lost:
            raise ResyncNeededError(
                f"{'; '.join(alteration.lost)}. {_resync_of(spec, plan)} adds it again and copies all rows. If the "
                "sink is not to have it, leave it out (columns.exclude)"
            )
        if alteration.refusals:
            raise NotAlteredError("; ".join(alteration.refusals))
        if _is_executed(spec, alteration, sink, known.sink, lake):
            return alteration.columns
    raise _others_alter(plan)


def restore_columns(
    spec: FeedSpec,
    plan: SpanPlan,
    said: Said,
    kept: KnownColumns,
    announce: Callable[[Sequence[str]], None],
    *,
    lake: AtLake | None = None,
) -> tuple[str, ...]:
    """Add columns again that were dropped at the sink and that the source has: all rows are copied next. Idempotent.

    ``announce`` gets the columns before they are added. Returns them. Raises SinkError, SourceError.
    """
    masks = spec_of(spec, plan).columns
    for _ in range(TRIES):
        with _both(spec, plan, said, "its columns", lake) as (source, sink, known):
            there = names_of(source)
            lacking = {name: "" for name in kept.applied if name in there and _is_plain(masks, name)}
            alteration = plan_alteration(source, sink, lacking, msgspec.structs.replace(known, is_refilled=True))
        if alteration.refusals:
            raise NotAlteredError("; ".join(alteration.refusals))
        if alteration.columns:
            announce(alteration.columns)
        if _is_executed(spec, alteration, sink, known.sink, lake):
            return alteration.columns
    raise _others_alter(plan)


def check_restored(spec: FeedSpec, plan: SpanPlan, restored: Sequence[str]) -> None:
    """Raise ResyncNeededError for columns that were added again, and whose values were not all copied."""
    shape = spec_of(spec, plan).columns
    if waiting := [name for name in restored if shape.goes(shape.source(name))]:
        raise ResyncNeededError(
            f"column {shown_names(waiting)} of table {plan.table} was added again at the sink, and its values were not "
            f"all copied. {_resync_of(spec, plan)} copies all rows. If it cannot, drop the column at the sink, wait "
            "until the table reports that, and add it with its values yourself"
        )


def source_numbers(spec: FeedSpec, plan: SpanPlan, said: Said) -> ColumnNumbers | None:
    """What identifies the table and its columns at the source now, under the source's names; None without a catalogue.

    Raises SourceError.
    """
    database = spec.source.database
    if database is None:
        return None
    with as_source_errors(), open_catalogue(source_target(database)) as source:
        name = source_table(spec, plan.table, plan.topic, has=source.has, said=said)
        return None if name is None else source.column_numbers(name)


def numbers_now(spec: FeedSpec, tables: Collection[str]) -> dict[str, ColumnNumbers]:
    """See Catalogue.numbers_of, of the feed's source. Raises SourceError."""
    database = spec.source.database
    if database is None:
        return {}
    with as_source_errors(), open_catalogue(source_target(database)) as source:
        return source.numbers_of(tables)


def shaped_numbers(found: ColumnNumbers, shape: ColumnOptions) -> ColumnNumbers:
    """The same under the sink's names, with those that the feed leaves out."""
    exclude = shape.exclude or ()
    hidden = [name for name in found.types if (name in exclude if shape.include is None else not shape.goes(name))]
    return ColumnNumbers(
        found.table,
        with_target_names(found.columns, shape),
        {name: found.columns.get(name, 0) for name in hidden},
        with_target_names(found.types, shape),
    )


def check_hidden(
    spec: FeedSpec, plan: SpanPlan, kept: KnownColumns, numbers: ColumnNumbers, there: Collection[str]
) -> None:
    """Raise NotAlteredError for a column of the sink that is, by its number, one that the feed leaves out or masks.

    Its name was another column's before, so no change lacks it. ``there``: the columns that the sink's table has.
    """
    shape, folded = spec_of(spec, plan).columns, {name.casefold() for name in there}
    for name in (column for column in numbers.columns if column.casefold() in folded):
        former = kept.excluded.former_names(name, numbers, _hidden_from(name, shape, kept, numbers))
        proven = [old for old, is_proven in former.items() if is_proven]
        if proven:
            raise NotAlteredError(
                f"column {name} of table {plan.table} is at the source what was {proven[0]}, which "
                f"{_way_to_hide(shape, name, proven[0])}"
            )
    before = kept.numbers
    masked = {shape.target(name): name for name in shape.mask}
    for target, name in masked.items():
        number = None if before is None or before.table != numbers.table else before.columns.get(target)
        now = next((column for column, its in numbers.columns.items() if its == number), target)
        if now.casefold() in folded and now not in masked:
            raise NotAlteredError(
                f"column {now} of table {plan.table} is at the source what was {name}, which is masked. Add "
                f"{shape.source(now)} to columns.mask and keep {name} there"
            )


def _hidden_from(name: str, shape: ColumnOptions, kept: KnownColumns, numbers: ColumnNumbers) -> Collection[str]:
    """Columns of the source whose values must not arrive in the sink's column ``name``.

    A list of columns to take may name a column that it did not name before. Only one that it named as another column
    is not what it meant.
    """
    if shape.include is None:
        return shape.exclude or ()
    before, number = kept.numbers, numbers.columns[name]
    if before is None or before.table != numbers.table or before.columns.get(name, number) == number:
        return ()
    return [column for column in kept.excluded.columns if not shape.goes(column)]


def _way_to_hide(shape: ColumnOptions, name: str, old: str) -> str:
    column = shape.source(name)
    if shape.include is None:
        return f"columns.exclude leaves out. Add {column} to columns.exclude and keep {old} there"
    return (
        f"columns.include does not name. Remove {column} from columns.include. If the sink needs its values, "
        "give them another name there (columns.rename)"
    )


def check_replaced(spec: FeedSpec, plan: SpanPlan, replaced: Sequence[str]) -> None:
    """Raise ResyncNeededError for columns that the source has dropped and added again."""
    if replaced:
        raise ResyncNeededError(
            f"column {shown_names(replaced)} of table {plan.table} was dropped and added again at the source, or got "
            "the name of another one, so rows of the sink that did not change since have values that the source does "
            "not have. "
            f"{_resync_of(spec, plan)} applies what the log has by now, and then copies all rows"
        )


def with_other_values(spec: FeedSpec, retyped: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Those of KnownColumns.retyped whose values may be others now."""
    database = spec.source.database
    if database is None or not retyped:
        return {}
    target = source_target(database)
    # MySQL's types are read as MariaDB's.
    is_postgresql = kind_of(target.dsn, target.options).name == "postgresql"
    product = Product.POSTGRESQL if is_postgresql else Product.MARIADB
    return {name: types for name, types in retyped.items() if may_have_other_values(product, *types)}


def check_retyped(spec: FeedSpec, plan: SpanPlan, retyped: Mapping[str, tuple[str, str]]) -> None:
    """Raise ResyncNeededError for columns whose values a change of their type may have changed at the source."""
    if retyped:
        types = "; ".join(f"{name} is {now}, and was {before}" for name, (before, now) in retyped.items())
        raise ResyncNeededError(
            f"table {plan.table} has columns of another type at the source by now ({types}), so rows of the sink that "
            "did not change since may have values that the source does not have. "
            f"{_resync_of(spec, plan)} applies what the log has by now, and then copies all rows"
        )


def _is_plain(columns: ColumnOptions, name: str) -> bool:
    """Whether a column of the sink has the source's own values."""
    return columns.source(name) not in columns.mask and name not in columns.set


def _resync_of(spec: FeedSpec, plan: SpanPlan) -> str:
    # By the span: its feed's record may have another name of the table (records/stored_names.py).
    return f"`headgate table resync {spec.feed} {table_of(plan.span)}`"


def fit_columns(spec: FeedSpec, plan: SpanPlan, said: Said, lake: AtLake | None = None) -> Alteration:
    """Widen types and drop NOT NULL as the source has; what was done, and what was not. Idempotent.

    Raises SinkError, SourceError.
    """
    for _ in range(TRIES):
        with _both(spec, plan, said, "its columns", lake) as (source, sink, known):
            alteration = plan_fitting(source, sink, known)
        try:
            if _is_executed(spec, alteration, sink, known.sink, lake):
                return alteration
        except RightsMissingError:
            raise
        except SinkRefusedError:  # such as for a view of one column, which must not hold up the others
            if lake is not None:  # it takes its one commit, or nothing
                raise
            return _one_by_one(spec, alteration, sink, known.sink)
    raise _others_alter(plan)


def _one_by_one(spec: FeedSpec, alteration: Alteration, before: SinkDefinition, sink: Sink) -> Alteration:
    """What of the alteration the sink takes, and for the rest why not. Raises SinkError."""
    done: list[str] = []
    refusals = list(alteration.refusals)
    for statement in alteration.one_by_one:
        alone = msgspec.structs.replace(alteration, statements=(statement,))
        try:
            done += (statement,) if _is_executed(spec, alone, before, sink, None) else ()
        except SinkRefusedError as error:
            refusals.append(f"{statement} was refused by the sink, so run it yourself: {error}")
    return msgspec.structs.replace(alteration, statements=tuple(done), columns=(), refusals=tuple(refusals))


def _others_alter(plan: SpanPlan) -> SinkUnavailableError:
    return SinkUnavailableError(f"table {plan.table} was not altered: others alter it at the same time")


class _SinkCatalogue(Protocol):
    """What a plan needs of the sink: see Catalogue."""

    def place(self, name: str) -> tuple[str, str] | None: ...

    def definition(self, name: str) -> SinkDefinition | None: ...

    def sink(self) -> Sink: ...

    def has_rows(self, name: str) -> bool: ...

    def shown(self, name: str) -> str: ...


@contextmanager
def _at_sink(spec: FeedSpec, lake: AtLake | None) -> Iterator[_SinkCatalogue]:
    if lake is not None:
        yield LakeCatalogue(lake.sink)
        return
    with as_sink_errors(), open_catalogue(target_of(spec.sink)) as catalogue:
        yield catalogue


@contextmanager
def _both(  # noqa: PLR0917 - what a plan is made of
    spec: FeedSpec,
    plan: SpanPlan,
    said: Said,
    columns: str,
    lake: AtLake | None,
    numbers: ColumnNumbers | None = None,
) -> Iterator[tuple[Definition, SinkDefinition, AlterationContext]]:
    """The table at the source and at the sink, and what else a plan needs."""
    database = spec.source.database
    assert database is not None  # noqa: S101 - a feed that evolves tables names it
    with _at_sink(spec, lake) as at_sink:
        target = at_sink.definition(plan.table)
        if target is None:
            raise NotAlteredError(f"table {plan.table} does not exist at the sink, or its user may not see it")
        with as_source_errors(), open_catalogue(source_target(database)) as source:
            name = source_table(spec, plan.table, plan.topic, has=source.has, said=said)
            definition = None if name is None else source.definition(name)
            if name is None or definition is None:
                raise NotAlteredError(
                    f"table {plan.table} was not altered for {columns}: the source database has no table "
                    f"{name or plan.topic}, or its user may not see it. Alter the sink's table yourself"
                )
            definition = keyed_definition(definition, spec_of(spec, plan).key)
            shape = spec_of(spec, plan).columns
            missing = with_target_names(source.missing_values(name), shape)
            found = source.column_numbers(name) if numbers is None else None
        known = AlterationContext(
            sink=at_sink.sink(),
            missing=missing,
            is_empty=_is_whole(plan) and not at_sink.has_rows(plan.table),
            numbers=numbers if found is None else shaped_numbers(found, shape),
            types=chosen_types(spec, [plan], at_sink).get((target.schema, target.table), {}),
            shown=at_sink.shown(plan.table),
            masked=frozenset(map(shape.target, shape.mask)),
            exclude=shape.exclude or (),
        )
    yield shaped_definition(definition, shape), target, known


def _is_executed(
    spec: FeedSpec, alteration: Alteration, before: SinkDefinition, sink: Sink, lake: AtLake | None
) -> bool:
    """Whether the table is as planned: False if another session or job has altered it at the same time."""
    if lake is not None and alteration.changes is not None and isinstance(before, LakeDefinition):
        return lake.sink.alter(lake.claim, lake.positions, before.present, alteration.changes)
    if not alteration.statements:
        return True
    target = target_of(spec.sink)
    try:
        with as_sink_errors():
            _ALTERING[kind_of(target.dsn, target.options).name](target, alteration, sink)
    except TakenError:
        return False
    return True


def _is_whole(plan: SpanPlan) -> bool:
    """Whether all changes before these are at the sink: those of other partitions may be older, and still come."""
    return len(plan.start) == 1 and parse_span(plan.span).partitions is None


def _doing(alteration: Alteration) -> str:
    return f"altering {', '.join(alteration.columns)} of {alteration.name}"


def _postgresql(target: Target, alteration: Alteration, sink: Sink) -> None:
    def refused(error: PostgresError) -> Exception:
        if postgresql_fault(error) is Fault.PERMISSION and (owned := _owned(target, alteration)):
            return _without_right(alteration, owned)
        if error.sqlstate == _NO_SUCH_COLUMN:
            return TakenError()
        return postgresql_sink_error(error, _doing(alteration))

    execute_at_postgresql(target, [*needed_first([alteration], sink), *alteration.statements], sink, refused)


def _owned(target: Target, alteration: Alteration) -> list[str]:
    with open_catalogue(target) as catalogue:
        return catalogue.unalterable([alteration.name])


def _mysql(target: Target, alteration: Alteration, sink: Sink) -> None:
    def refused(session: MysqlSession, error: MysqlError) -> Exception:
        if errno(error) in (_DUPLICATE_COLUMN, _UNKNOWN_COLUMN):
            return TakenError()
        if mysql_fault(error) is Fault.PERMISSION:
            place = parse_identifier(alteration.name)
            grants = missing_alter(session, [(place[0], place[1])]) or [grant_on(session, place[0], ["ALTER"])]
            return _without_right(alteration, grants)
        return mysql_sink_error(error, _doing(alteration))

    execute_at_mysql(target, alteration.statements, sink, refused)


def _without_right(alteration: Alteration, grants: list[str]) -> RightsMissingError:
    return RightsMissingError(f"no right to alter table {alteration.name}", grants)


_ALTERING: Final[dict[str, Callable[[Target, Alteration, Sink], None]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
}
