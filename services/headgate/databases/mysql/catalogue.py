"""The catalogue of MySQL and MariaDB."""

from itertools import groupby
from typing import Final

from headgate.databases.catalogue import Ask, CatalogueColumn, Key, Product, TableDefinition, TableForm
from headgate.databases.mysql.session import MysqlSession

__all__ = ["MysqlColumn", "MysqlDefinition", "MysqlForm", "MysqlKey", "read_definition", "read_form"]

_COLUMNS: Final = """
SELECT ordinal_position, column_name, column_type, data_type, is_nullable, column_default, extra,
       generation_expression, character_set_name, collation_name
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""

# MariaDB's JSON is a text with a check of the column's own, under the column's name.
_JSON: Final = """
SELECT constraint_name FROM information_schema.check_constraints
WHERE constraint_schema = %s AND table_name = %s AND check_clause LIKE 'json_valid%%'
"""

_KEYS: Final = """
SELECT index_name, column_name, sub_part, index_type FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND non_unique = 0
ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index
"""

_COMMENT: Final = "SELECT table_comment FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"

_COMMENTS: Final = """
SELECT column_name, column_comment FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s AND column_comment <> ''
"""


class MysqlColumn(CatalogueColumn, frozen=True, kw_only=True):
    """A column. ``kind`` of MariaDB's JSON is ``json``."""

    charset: str | None


class MysqlKey(Key, frozen=True, kw_only=True):
    """A unique index."""

    prefixed: tuple[str, ...]
    """Columns that are in the index with a prefix only."""


MysqlForm = TableForm[MysqlColumn, MysqlKey]
MysqlDefinition = TableDefinition[MysqlColumn, MysqlKey]


def read_definition(session: MysqlSession, database: str, table: str) -> MysqlDefinition | None:
    """The table of that name; None if it does not exist, or cannot be seen. Raises MysqlError."""
    form = read_form(session.execute, database, table, is_mariadb=session.is_mariadb)
    if not form.columns:
        return None
    comments = [str(text) for (text,) in session.execute(_COMMENT, (database, table))]
    return TableDefinition(
        product=Product.MARIADB if session.is_mariadb else Product.MYSQL,
        schema=database,
        table=table,
        form=form,
        comment="".join(comments) or None,
        comments={str(name): str(text) for name, text in session.execute(_COMMENTS, (database, table))},
    )


def read_form(ask: Ask, database: str | None, table: str, *, is_mariadb: bool) -> MysqlForm:
    """The table of that name; no columns if it does not exist, or cannot be seen. Raises MysqlError."""
    place = (database, table)
    described = ask(_COLUMNS, place)
    json = {str(row[0]) for row in ask(_JSON, place)} if is_mariadb else set()
    return MysqlForm(
        tuple(
            MysqlColumn(
                number=int(number),
                name=str(name),
                type=str(declared),
                kind="json" if name in json else str(kind).lower(),
                is_nullable=is_nullable == "YES",
                default=None if _is_generated(extra) else _default(default, is_mariadb=is_mariadb),
                generated=str(expression or "") if _is_generated(extra) else None,
                is_identity="auto_increment" in str(extra).lower(),
                collation=collation,
                charset=charset,
            )
            for number, name, declared, kind, is_nullable, default, extra, expression, charset, collation in described
        ),
        tuple(
            MysqlKey(
                name=str(index),
                columns=tuple(str(column) for _, column, _, _ in parts if column is not None),
                is_primary=index == "PRIMARY",
                finds_rows=all(
                    column is not None and prefix is None and how == "BTREE" for _, column, prefix, how in parts
                ),
                prefixed=tuple(str(column) for _, column, prefix, _ in parts if prefix is not None),
            )
            for index, rows in groupby(ask(_KEYS, place), key=lambda row: row[0])
            for parts in [list(rows)]
        ),
    )


def _is_generated(extra: object) -> bool:
    return "GENERATED" in str(extra).upper().split()


def _default(text: object, *, is_mariadb: bool) -> str | None:
    """MariaDB has the word NULL for a column without a default; a text is in quotes there."""
    return None if text is None or (is_mariadb and text == "NULL") else str(text)
