"""A database's catalogue, whatever its kind: what tables look like, and what a sink has. Nothing is written."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

from headgate.databases.address import Target
from headgate.databases.catalogue import Product
from headgate.databases.kinds import kind_of
from headgate.databases.mysql import catalogue as mysql
from headgate.databases.mysql.reading import reading as reading_mysql
from headgate.databases.mysql.session import MysqlSession
from headgate.databases.mysql.sql import quoted as mysql_quoted
from headgate.databases.postgresql import catalogue as postgresql
from headgate.databases.postgresql.reading import reading as reading_postgresql
from headgate.databases.postgresql.search_path import find_table
from headgate.databases.postgresql.session import PostgresSession
from headgate.databases.postgresql.sql import quoted
from headgate.records.identifiers import parse_identifier, show_identifier, split_table
from headgate.sinks.known_columns import ColumnNumbers
from headgate.tables.mysql_rights import missing_alter, missing_rights
from headgate.tables.plan import Sink
from headgate.tables.statement import CreateTable, Definition

__all__ = ["Catalogue", "MysqlCatalogue", "PostgresCatalogue", "open_catalogue"]

_NAME: Final = "headgate tables"
"""What a session is called at a PostgreSQL."""

_NO_CREATE: Final = """
SELECT format('GRANT USAGE, CREATE ON SCHEMA %%I TO %%I', nspname, current_user) FROM pg_namespace
WHERE nspname = ANY (%s) AND NOT (has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE'))
ORDER BY nspname
"""

_NO_SCHEMA: Final = """
SELECT format('GRANT CREATE ON DATABASE %I TO %I', current_database(), current_user)
WHERE NOT has_database_privilege(current_database(), 'CREATE')
"""

# Superusers are members of every role.
_NOT_OWNED: Final = """
SELECT format('ALTER TABLE %%s OWNER TO %%I', c.oid::regclass, current_user) FROM pg_class c
WHERE c.oid = ANY (%s) AND NOT pg_has_role(c.relowner, 'USAGE') ORDER BY c.oid::regclass::text
"""

# An array of one element, of the column's own type.
_MISSING_VALUES: Final = """
SELECT attname, (attmissingval::text::text[])[1] FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND atthasmissing
"""

_NUMBERS_OF: Final = """
SELECT attrelid::text, attname, attnum, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = ANY (%s::oid[]) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""

# By database, because both servers open the files of every table of every other one.
_TYPES_OF: Final = """
SELECT table_name, column_name, column_type FROM information_schema.columns
WHERE table_schema = %s AND table_name IN ({}) ORDER BY table_name, ordinal_position
"""


# The replica identity, and the columns of its index.
_LOGGED: Final = """
SELECT c.relreplident::text,
       ARRAY(SELECT a.attname::text FROM pg_index i
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
             WHERE i.indrelid = c.oid
               AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END)
FROM pg_class c
WHERE (c.oid = %s AND c.relkind <> 'p') OR c.oid IN (SELECT relid FROM pg_partition_tree(%s) WHERE isleaf)
"""


class Catalogue(Protocol):
    """A database's catalogue. Methods raise the driver's errors, which ``open_catalogue`` translates."""

    def database(self) -> str | None:
        """The database that the session is in."""
        ...

    def place(self, name: str) -> tuple[str, str] | None:
        """(schema or database, table) that ``name`` stands for, or would; None where no schema is known for it."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is such a table or view, as far as the user can see."""
        ...

    def definition(self, name: str) -> Definition | None:
        """The table of that name; None if it does not exist, or cannot be seen."""
        ...

    def sink(self) -> Sink:
        """What statements that create tables here depend on."""
        ...

    def lacking(self, tables: Sequence[CreateTable], sink: Sink) -> list[str]:
        """Statements that give the user the rights to create these tables, as far as that can be asked."""
        ...

    def unalterable(self, names: Sequence[str]) -> list[str]:
        """Statements that give the user the right to alter these tables, as far as that can be asked.

        Tables that do not exist yet count where the right to create one is not the right to alter it.
        """
        ...

    def missing_values(self, name: str) -> dict[str, str]:
        """Column → what rows that are older than it have in it, as text, for columns whose value the catalogue has."""
        ...

    def column_numbers(self, name: str) -> ColumnNumbers | None:
        """What identifies the table and its columns, and their types; None if the table does not exist."""
        ...

    def numbers_of(self, tables: Collection[str]) -> dict[str, ColumnNumbers]:
        """The same of tables as ``column_numbers`` identifies them. Lacks those that are gone."""
        ...

    def logged_columns(self, name: str) -> frozenset[str] | None:
        """Columns whose former values are in the log of changes where a row is deleted or they change; None for all."""
        ...

    def has_rows(self, name: str) -> bool:
        """Whether the table, which exists, has a row."""
        ...

    def shown(self, name: str) -> str:
        """The statement that the server itself prints for the table; empty where it prints none."""
        ...


class PostgresCatalogue:
    """See Catalogue."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session

    def database(self) -> str | None:
        """See Catalogue."""
        ((name,),) = self._session.execute("SELECT current_database()")
        return str(name)

    def place(self, name: str) -> tuple[str, str] | None:
        """See Catalogue. A name without a schema: where it is on the user's search path, or in the first schema."""
        found = find_table(self._session.execute, self._session.path, name)
        if found is not None:
            return found[1], found[2]
        schema, table = split_table(name)
        schema = schema or next(iter(self._session.path), None)
        return None if schema is None else (schema, table)

    def has(self, name: str) -> bool:
        """See Catalogue."""
        return find_table(self._session.execute, self._session.path, name) is not None

    def definition(self, name: str) -> Definition | None:
        """See Catalogue."""
        place = self.place(name)
        return None if place is None else postgresql.read_definition(self._session, *place)

    def sink(self) -> Sink:
        """See Catalogue."""
        schemas = frozenset(str(name) for (name,) in self._session.execute("SELECT nspname FROM pg_namespace"))
        return Sink(Product.POSTGRESQL, schemas, postgresql.read_enums(self._session))

    def lacking(self, tables: Sequence[CreateTable], sink: Sink) -> list[str]:
        """See Catalogue."""
        schemas = {table.schema for table in tables}
        schemas |= {enum.schema for table in tables for enum in table.needs if enum not in sink.enums}
        if not schemas:
            return []
        grants = [str(grant) for (grant,) in self._session.execute(_NO_CREATE, (sorted(schemas & sink.schemas),))]
        return grants + [str(grant) for (grant,) in self._session.execute(_NO_SCHEMA) if not schemas <= sink.schemas]

    def unalterable(self, names: Sequence[str]) -> list[str]:
        """See Catalogue. Only a table's owner may alter it."""
        oids = [found[0] for name in names if (found := find_table(self._session.execute, self._session.path, name))]
        return [str(statement) for (statement,) in self._session.execute(_NOT_OWNED, (oids,))]

    def missing_values(self, name: str) -> dict[str, str]:
        """See Catalogue."""
        found = find_table(self._session.execute, self._session.path, name)
        rows = [] if found is None else self._session.execute(_MISSING_VALUES, (found[0],))
        return {str(column): str(value) for column, value in rows if value is not None}

    def column_numbers(self, name: str) -> ColumnNumbers | None:
        """See Catalogue."""
        found = find_table(self._session.execute, self._session.path, name)
        return None if found is None else self.numbers_of([str(found[0])]).get(str(found[0]))

    def numbers_of(self, tables: Collection[str]) -> dict[str, ColumnNumbers]:
        """See Catalogue."""
        numbers: dict[str, dict[str, int]] = {}
        types: dict[str, dict[str, str]] = {}
        for table, column, number, type_ in self._session.execute(_NUMBERS_OF, (sorted(tables),)):
            numbers.setdefault(str(table), {})[str(column)] = int(number)
            types.setdefault(str(table), {})[str(column)] = str(type_)
        return {table: ColumnNumbers(table, columns, types=types[table]) for table, columns in numbers.items()}

    def logged_columns(self, name: str) -> frozenset[str] | None:
        """See Catalogue. Of a partitioned table, those of each partition."""
        found = find_table(self._session.execute, self._session.path, name)
        rows = [] if found is None else self._session.execute(_LOGGED, (found[0], found[0]))
        logged = [frozenset(map(str, columns)) for identity, columns in rows if identity != "f"]
        return frozenset.intersection(*logged) if logged else None

    def has_rows(self, name: str) -> bool:
        """See Catalogue."""
        place = self.place(name)
        return place is not None and bool(self._session.execute(f"SELECT 1 FROM {quoted(*place)} LIMIT 1"))  # noqa: S608

    def shown(self, name: str) -> str:
        """See Catalogue."""
        del name
        return ""


class MysqlCatalogue:
    """See Catalogue."""

    def __init__(self, session: MysqlSession) -> None:
        self._session = session

    def database(self) -> str | None:
        """See Catalogue."""
        ((name,),) = self._session.execute("SELECT DATABASE()")
        return None if name is None else str(name)

    def place(self, name: str) -> tuple[str, str] | None:
        """See Catalogue. In the server's own letters, which need not be those of the name, if there is a table."""
        database, table = split_table(name)
        database = database or self.database()
        return None if database is None else self._found(database, table) or (database, table)

    def has(self, name: str) -> bool:
        """See Catalogue."""
        database, table = split_table(name)
        database = database or self.database()
        return database is not None and self._found(database, table) is not None

    def _found(self, database: str, table: str) -> tuple[str, str] | None:
        rows = self._session.execute(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_schema = %s AND table_name = %s",
            (database, table),
        )
        return (str(rows[0][0]), str(rows[0][1])) if rows else None

    def definition(self, name: str) -> Definition | None:
        """See Catalogue."""
        place = self.place(name)
        return None if place is None else mysql.read_definition(self._session, *place)

    def sink(self) -> Sink:
        """See Catalogue."""
        found = self._session.execute("SELECT schema_name FROM information_schema.schemata")
        product = Product.MARIADB if self._session.is_mariadb else Product.MYSQL
        return Sink(product, frozenset(str(name) for (name,) in found))

    def lacking(self, tables: Sequence[CreateTable], sink: Sink) -> list[str]:
        """See Catalogue."""
        del sink
        return missing_rights(self._session, tables)

    def unalterable(self, names: Sequence[str]) -> list[str]:
        """See Catalogue."""
        return missing_alter(self._session, [place for name in names if (place := self.place(name)) is not None])

    def missing_values(self, name: str) -> dict[str, str]:
        """See Catalogue. Neither MySQL nor MariaDB records it."""
        del name
        return {}

    def column_numbers(self, name: str) -> ColumnNumbers | None:
        """See Catalogue. Both only have a column's place among the others, which changes, so there are types only."""
        place = self.place(name)
        table = "" if place is None else show_identifier(place)
        return self.numbers_of([table]).get(table) if table else None

    def numbers_of(self, tables: Collection[str]) -> dict[str, ColumnNumbers]:
        """See Catalogue."""
        types: dict[str, dict[str, str]] = {}
        by_schema: dict[str, list[str]] = {}
        for schema, table in map(parse_identifier, sorted(tables)):
            by_schema.setdefault(schema, []).append(table)
        for schema, names in by_schema.items():
            query = _TYPES_OF.format(", ".join(["%s"] * len(names)))
            for table, column, type_ in self._session.execute(query, (schema, *names)):
                types.setdefault(show_identifier((schema, str(table))), {})[str(column)] = str(type_)
        return {table: ColumnNumbers(table, {}, types=found) for table, found in types.items()}

    def logged_columns(self, name: str) -> frozenset[str] | None:
        """See Catalogue. Connectors need binlog_row_image=FULL."""
        del name
        return None

    def has_rows(self, name: str) -> bool:
        """See Catalogue."""
        place = self.place(name)
        found = [] if place is None else self._session.execute(f"SELECT 1 FROM {mysql_quoted(*place)} LIMIT 1")  # noqa: S608
        return bool(found)

    def shown(self, name: str) -> str:
        """See Catalogue."""
        place = self.place(name)
        rows = [] if place is None else self._session.execute(f"SHOW CREATE TABLE {mysql_quoted(*place)}")
        return "".join(str(row[1]) for row in rows)


@contextmanager
def _postgresql(target: Target) -> Iterator[Catalogue]:
    with reading_postgresql(target, _NAME) as session:
        yield PostgresCatalogue(session)


@contextmanager
def _mysql(target: Target) -> Iterator[Catalogue]:
    with reading_mysql(target) as session:
        yield MysqlCatalogue(session)


_CATALOGUES: Final[dict[str, Callable[[Target], AbstractContextManager[Catalogue]]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
}


def open_catalogue(target: Target) -> AbstractContextManager[Catalogue]:
    """The database's catalogue, for as long as the block lasts. Raises DatabaseError."""
    return _CATALOGUES[kind_of(target.dsn, target.options).name](target)
