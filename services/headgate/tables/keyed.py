"""A source's table with another key than its primary one: what its table at the sink is made of. Pure."""

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from headgate.databases.catalogue import TableForm
from headgate.databases.mysql.catalogue import MysqlColumn, MysqlKey
from headgate.databases.postgresql.catalogue import PostgresDefinition, PostgresKey
from headgate.tables.statement import Definition

__all__ = ["keyed_definition"]

_NAME: Final = "PRIMARY"
_FORMER: Final = "source_primary_key"
"""A unique index of the sink, if the feed has those of the source created too."""

K = TypeVar("K", PostgresKey, MysqlKey)


def keyed_definition(table: Definition, key: Sequence[str] | None) -> Definition:
    """The table with ``key`` as its primary key, and its own one among its other unique keys. Pure."""
    primary = table.form.primary
    if key is None or (primary is not None and set(primary.columns) == set(key)):
        return table
    if isinstance(table, PostgresDefinition):
        first = PostgresKey(
            name=_NAME, columns=tuple(key), is_primary=True, finds_rows=True, is_valid=True, is_immediate=True,
            has_own_operators=False,
        )  # fmt: skip
        return msgspec.structs.replace(table, form=TableForm(table.form.columns, _with_first(first, table.form.keys)))
    other = MysqlKey(name=_NAME, columns=tuple(key), is_primary=True, finds_rows=True, prefixed=())
    form: TableForm[MysqlColumn, MysqlKey] = TableForm(table.form.columns, _with_first(other, table.form.keys))
    return msgspec.structs.replace(table, form=form)


def _with_first(first: K, keys: Sequence[K]) -> tuple[K, ...]:
    found: list[K] = [first]
    found += [_as_another(key) for key in keys if set(key.columns) != set(first.columns)]
    return tuple(found)


def _as_another(key: K) -> K:
    return msgspec.structs.replace(key, is_primary=False, name=_FORMER) if key.is_primary else key
