"""A source's table with the columns that a feed's options let through: what its table at the sink is made of. Pure."""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from headgate.config.columns import ColumnOptions, Mask
from headgate.databases.catalogue import TableForm
from headgate.databases.mysql.catalogue import MysqlColumn, MysqlDefinition, MysqlKey
from headgate.databases.postgresql.catalogue import PostgresColumn, PostgresDefinition
from headgate.databases.postgresql.types import parse_type
from headgate.tables.computed import computed_mysql, computed_postgresql
from headgate.tables.statement import Definition

__all__ = ["is_computable", "shaped_definition", "unfit_mask", "with_target_names"]

T = TypeVar("T")
C = TypeVar("C", PostgresColumn, MysqlColumn)

HASH_CHARACTERS: Final = 64
"""Of a SHA-256 in hex."""

_POSTGRESQL_HASH: Final[Mapping[str, object]] = {
    "type": f"character varying({HASH_CHARACTERS})", "base": f"character varying({HASH_CHARACTERS})", "kind": "varchar",
    "is_enum": False, "is_identity": False, "identity": "", "generated": None, "generation": "",
    "collation": None, "collation_number": 0, "is_deterministic": True,
}  # fmt: skip
_MYSQL_HASH: Final[Mapping[str, object]] = {
    "type": f"varchar({HASH_CHARACTERS})", "kind": "varchar", "is_identity": False, "generated": None,
    "charset": "utf8mb4", "collation": "utf8mb4_bin",
}  # fmt: skip
"""What the column of a hash is, besides its name, its place and whether it may be NULL."""

_POSTGRESQL_TEXTS: Final = frozenset({"text", "character varying"})
"""Not ``character``, whose values are filled up with spaces in some places and not in others."""
_POSTGRESQL_HASHED: Final = _POSTGRESQL_TEXTS | {"uuid", "smallint", "integer", "bigint"}
_MYSQL_TEXTS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_MYSQL_HASHED: Final = _MYSQL_TEXTS | {"enum", "set", "uuid", "tinyint", "smallint", "mediumint", "int", "bigint"}
"""Types whose values have the same text in every format and at the database."""


def shaped_definition(table: Definition, columns: ColumnOptions) -> Definition:
    """The table as the sink gets it. Its key (see row_keys) must be one that ``columns`` lets through."""
    if not columns.shapes:
        return table
    comments = with_target_names(table.comments, columns)
    if isinstance(table, PostgresDefinition):
        form = TableForm(
            (
                *(
                    _shaped_column(_computable(column, columns), columns, _POSTGRESQL_HASH)
                    for column in table.form.columns
                    if columns.goes(column.name)
                ),
                *computed_postgresql(table, columns),
            ),
            tuple(
                msgspec.structs.replace(key, columns=tuple(map(columns.target, key.columns)))
                for key in table.form.keys
                if columns.hidden_key(key.columns) is None
            ),
        )
        hashed = {name for name, mask in columns.mask.items() if mask.sha256 is not None}
        enums = with_target_names({name: enum for name, enum in table.enums.items() if name not in hashed}, columns)
        return msgspec.structs.replace(table, form=form, comments=comments, enums=enums)
    return msgspec.structs.replace(table, form=_mysql_form(table, columns), comments=comments)


def with_target_names(given: Mapping[str, T], columns: ColumnOptions) -> dict[str, T]:
    """What is known of the source's columns, by the sink's names of those that go there."""
    return {columns.target(name): value for name, value in given.items() if columns.goes(name)}


def _mysql_form(table: MysqlDefinition, columns: ColumnOptions) -> TableForm[MysqlColumn, MysqlKey]:
    return TableForm(
        (
            *(
                _shaped_column(column, columns, _MYSQL_HASH)
                for column in table.form.columns
                if columns.goes(column.name)
            ),
            *computed_mysql(table, columns),
        ),
        tuple(
            msgspec.structs.replace(
                key,
                columns=tuple(map(columns.target, key.columns)),
                prefixed=tuple(map(columns.target, key.prefixed)),
            )
            for key in table.form.keys
            if columns.hidden_key(key.columns) is None
        ),
    )


def is_computable(column: PostgresColumn, columns: ColumnOptions) -> bool:
    """Whether the sink can compute a generated column: what it needs is there as it is, and it is not to be masked."""
    return column.needs is not None and column.name not in columns.mask and all(map(columns.is_untouched, column.needs))


def _computable(column: PostgresColumn, columns: ColumnOptions) -> PostgresColumn:
    return column if is_computable(column, columns) else msgspec.structs.replace(column, needs=None)


def _shaped_column(column: C, columns: ColumnOptions, hashed: Mapping[str, object]) -> C:
    """A column under its name at the sink. ``hashed``: what makes it one of a hash's texts."""
    mask = columns.mask.get(column.name)
    column = msgspec.structs.replace(column, name=columns.target(column.name))
    if mask is None:
        return column
    column = msgspec.structs.replace(column, default=None, is_nullable=column.is_nullable or mask.null)
    return column if mask.sha256 is None else msgspec.structs.replace(column, **hashed)


def unfit_mask(table: Definition, columns: ColumnOptions) -> str | None:
    """Why a column's values cannot be masked like that, None if all can."""
    for column in table.form.columns:
        mask = columns.mask.get(column.name)
        if mask is not None and mask.needs_text and not _is_fit(column, mask):
            form, takes = ("sha256", "texts and integers") if mask.sha256 is not None else ("keep_last", "texts")
            return (
                f"column {column.name} is of type {column.type}, and mask {form} takes {takes} only. Exclude the "
                "column, or mask it with null or a constant"
            )
    return None


def _is_fit(column: PostgresColumn | MysqlColumn, mask: Mask) -> bool:
    if isinstance(column, MysqlColumn):
        return column.kind in (_MYSQL_HASHED if mask.sha256 is not None else _MYSQL_TEXTS)
    if column.is_enum:
        return mask.sha256 is not None
    found = parse_type(column.base)
    if found is None or found.is_array:
        return False
    return found.name in (_POSTGRESQL_HASHED if mask.sha256 is not None else _POSTGRESQL_TEXTS)
