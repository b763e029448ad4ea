"""Whether a feed names a table of its sink in two ways, such as ``orders`` and ``public.orders``.

Names are compared before the sink is asked (records/taken_tables.py), and only the sink shows what a name without a
schema, or in other letters, stands for. Two sources would then write the same rows, and in one topic share a row of
progress.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from headgate.config.feed import FeedSpec
from headgate.databases.kinds import KINDS
from headgate.records.control import SpanPlan
from headgate.records.identifiers import normal_table, split_table, table_spelling
from headgate.records.slices import slice_of, whole_table, with_slice
from headgate.records.taken_tables import TakenTables
from headgate.sinks.registry import target_of
from headgate.sinks.relational.session import as_sink_errors
from headgate.sources.topics import TableClashError
from headgate.tables.catalogues import Catalogue, open_catalogue

__all__ = ["check_named_once", "named_twice"]


def check_named_once(spec: FeedSpec, plans: Sequence[SpanPlan], known: Collection[str]) -> None:
    """Raise TableClashError where a table that is not ``known`` shares rows with another one. Raises SinkError."""
    former = [plan for plan in plans if normal_table(plan.table) in known]
    reasons = named_twice(spec, [plan for plan in plans if normal_table(plan.table) not in known], former)
    if reasons:
        raise TableClashError("; ".join(reasons.values()))


def named_twice(spec: FeedSpec, plans: Sequence[SpanPlan], known: Sequence[SpanPlan] = ()) -> Mapping[str, str]:
    """Name → why it shares rows with an earlier one, of those of ``plans`` that do. Raises SinkError.

    ``known``: tables that the feed has already, whose names are not judged.
    """
    doubtful = _doubtful(plan.table for plan in (*known, *plans))
    if not doubtful or spec.sink.type not in KINDS:
        return {}
    with as_sink_errors(), open_catalogue(target_of(spec.sink)) as at_sink:
        first = _taken(at_sink, (plan for plan in known if whole_table(plan.table) in doubtful))
        return _clashes(at_sink, first, [plan for plan in plans if whole_table(plan.table) in doubtful])


def _doubtful(names: Iterable[str]) -> frozenset[str]:
    """Whole tables that may be one: of one name, in different letters, or without a schema or database."""
    by_relation: defaultdict[str, dict[str, str | None]] = defaultdict(dict)
    for name in set(map(whole_table, names)):
        space, relation = split_table(name)
        by_relation[relation.casefold()][name] = None if space is None else space.casefold()
    found: set[str] = set()
    for spaces in by_relation.values():
        for name, space in spaces.items():
            others = [other for known, other in spaces.items() if known != name]
            if any(space is None or other is None or space == other for other in others):
                found.add(name)
    return frozenset(found)


def _taken(at_sink: Catalogue, plans: Iterable[SpanPlan]) -> TakenTables:
    taken = TakenTables()
    for plan in plans:
        name = _at_sink(at_sink, plan.table)
        if name is not None and taken.clash(name) is None:
            taken.take(name, plan.table)
    return taken


def _clashes(at_sink: Catalogue, taken: TakenTables, plans: Iterable[SpanPlan]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for plan in plans:
        name = _at_sink(at_sink, plan.table)
        other = None if name is None else taken.clash(name)
        if name is not None and other is None:
            taken.take(name, plan.table)
        elif name is not None and other is not None and other != plan.table:
            found[plan.table] = _reason(whole_table(name), other, plan.table)
    return found


def _at_sink(at_sink: Catalogue, name: str) -> str | None:
    """The name in the sink's own spelling; None where it is not known in which schema it would be."""
    place = at_sink.place(name)
    return None if place is None else with_slice(table_spelling(*place), name)


def _reason(table: str, other: str, name: str) -> str:
    is_slice = slice_of(name) is not None or slice_of(other) is not None
    advice = "give each source another value (`into` in `tables`)" if is_slice else "send each source to its own table"
    return (
        f"{other} and {name} are two names of the same rows of table {table} at the sink, which two sources would "
        f"write. Name the table in one way, with its schema or database, and {advice}"
    )
