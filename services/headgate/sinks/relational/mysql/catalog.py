"""Describes a sink table and checks whether Headgate can write to it: from the catalogue, and by trying.

Names are ``database.table``, divided at the first dot, or a bare table name in the address's database. Rights are
proven by statements that touch no row: whatever gives or takes them (roles, columns, a read-only server) is then
in the answer.
"""

import re
from typing import Final

import msgspec

from headgate.databases.faults import Fault
from headgate.databases.mysql.catalogue import MysqlForm, read_form
from headgate.databases.mysql.errors import UNAVAILABLE, MysqlError, errno, fault_of, message
from headgate.databases.mysql.session import MysqlSession
from headgate.databases.mysql.sql import NAME_CHARACTERS_MAX, quoted
from headgate.databases.mysql.types import declared_in_full
from headgate.records.identifiers import split_table, table_spelling
from headgate.records.slices import slice_of, with_slice
from headgate.sinks.contract import SinkRefusedError, SinkUnavailableError
from headgate.sinks.relational.mysql.connection import MysqlSinkSession
from headgate.sinks.relational.rights import RightsMissingError
from headgate.sinks.relational.table import RelationalTable, check_generated, check_slice, nearest, without_key

__all__ = ["DATABASE", "MysqlSinkColumn", "account", "check_database", "load_table", "read_version"]

DATABASE: Final = "headgate"
"""Where bookkeeping and staged rows are: a database of our own on the same server."""

_READ_ONLY: Final = 1290
_READ_ONLY_SERVER: Final = (
    "the sink server is read-only. During a fail-over, the table continues once the server accepts writes. "
    "Otherwise point sink.dsn at the primary"
)

_TABLE: Final = """
SELECT t.table_schema, t.table_name, t.table_type, t.engine, e.transactions
FROM information_schema.tables t LEFT JOIN information_schema.engines e ON e.engine = t.engine
WHERE t.table_schema = COALESCE(%s, DATABASE()) AND t.table_name = %s
"""

# The one thing in SHOW CREATE TABLE that changes with the rows.
_AUTO_INCREMENT: Final = re.compile(r" AUTO_INCREMENT=\d+")

_TABLES: Final = """
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys', 'headgate')
"""


SPELLING_CHARACTERS_MAX: Final = 129
"""Of ``database.table``, as wide as the columns of Headgate's own tables: two names of 64 characters, and the dot."""

_EXACT: Final = ("_nopad_bin", "_0900_bin", "binary")
"""How collations end that compare byte by byte. What ends in _bin alone fills up the shorter text with spaces first."""

_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}

_NOT_TEXT: Final = frozenset({"uuid", "inet4", "inet6"})
"""Types that have a character set in the catalog, and are not texts."""


class MysqlSinkColumn(msgspec.Struct, frozen=True):
    """A writable column: ``declared`` as the server prints its type, ``kind`` the type's bare name.

    ``replaces_null``: the server writes something else for NULL, as into ``timestamp`` and ``AUTO_INCREMENT`` that are
    NOT NULL.
    """

    declared: str
    kind: str
    charset: str | None
    collation: str | None
    replaces_null: bool = False

    def __str__(self) -> str:
        return self.declared

    @property
    def folds(self) -> bool:
        """Whether the column takes different texts for one, if only in the number of spaces at their ends."""
        return self.collation is not None and self.kind not in _NOT_TEXT and not self.collation.endswith(_EXACT)

    @property
    def is_exact_text(self) -> bool:
        """Whether the column is a text of some length that is compared letter by letter, but for spaces at the end."""
        return self.kind in ("char", "varchar") and self.collation is not None and self.collation.endswith("_bin")

    @property
    def integers(self) -> range | None:
        """The integers that the column holds, if it is of such a type."""
        bits = _BITS.get(self.kind)
        if bits is None:
            return None
        return range(1 << bits) if "unsigned" in self.declared else range(-(1 << bits - 1), 1 << bits - 1)

    @property
    def definition(self) -> str:
        """The column of a table that holds the same values, or NULL."""
        return f"{self.in_full} NULL"

    @property
    def in_full(self) -> str:
        """Its type with all that its values depend on."""
        charset = None if self.kind in _NOT_TEXT else self.charset
        return declared_in_full(self.declared, charset, self.collation)


def load_table(session: MysqlSinkSession, name: str, keyless: bool = False) -> RelationalTable[MysqlSinkColumn]:
    """The table, proven to exist, to have a key and to be writable by Headgate. SinkRefusedError contains what to do.

    With ``keyless`` it may be without key. It is locked against being altered or renamed during the lookup: the catalog
    shows the middle of a RENAME of two tables, in which neither has the name.
    """
    database, relation = split_table(name)
    with session.transaction():
        _hold_form(session, quoted(*(part for part in (database, relation) if part is not None)))
        return _described(session, name, database, relation, keyless=keyless)


def _hold_form(session: MysqlSinkSession, identifier: str) -> None:
    """Until the transaction ends, by the lock that writing takes: a weaker one, raised later, would deadlock.

    What can be neither written nor read has no form to hold: it is refused for that.
    """
    for statement in (f"DELETE FROM {identifier} WHERE FALSE", f"SELECT 1 FROM {identifier} WHERE FALSE"):
        try:
            session.execute(statement)
        except MysqlError as error:
            if errno(error) in UNAVAILABLE - {_READ_ONLY}:
                raise
        else:
            return


def _described(
    session: MysqlSinkSession, name: str, database: str | None, relation: str, *, keyless: bool
) -> RelationalTable[MysqlSinkColumn]:
    found = session.execute(_TABLE, (database, relation))
    if not found:
        if database is None and session.execute("SELECT DATABASE()") == [(None,)]:
            raise SinkRefusedError(f"table {name} has no database. Name one in sink.table or in sink.dsn")
        raise _not_there(session, name, None if database is None else quoted(database, relation))
    ((database, relation, kind, engine, transactions),) = found
    if kind != "BASE TABLE":
        raise SinkRefusedError(f"{name} is not a table at the sink but a {str(kind).lower()}: name the table itself")
    if transactions != "YES":
        raise SinkRefusedError(
            f"table {name} uses engine {engine}, which has no transactions. Run: ALTER TABLE "
            f"{quoted(database, relation)}"
            " ENGINE = InnoDB"
        )
    identifier = quoted(database, relation)
    version = read_version(session, identifier)  # before the rest: what is newer than it shows later
    form = read_form(session.execute, database, relation, is_mariadb=session.is_mariadb)
    columns = {
        column.name: MysqlSinkColumn(
            column.type,
            column.kind,
            column.charset,
            column.collation,
            not column.is_nullable and (column.kind == "timestamp" or column.is_identity),
        )
        for column in form.columns
        if column.generated is None
    }
    key, secondary = _keys(form, name, keyless=keyless)
    check_generated(name, key, form.generated)
    part = slice_of(name)
    # Values of a discriminator have no spaces at their ends, and its collation distinguishes all letters (see below).
    folding = tuple(column for column in key if columns[column].folds and (part is None or column != part.column))
    spelling = with_slice(table_spelling(database, relation), name)
    described = None if part is None else columns.get(part.column)
    integers = None if described is None else described.integers
    table = RelationalTable(
        spelling, database, relation, identifier, columns, form.generated, key, folding, secondary, version,
        form.nullable_defaults, part=slice_of(spelling),
        part_number=part.number if part is not None and integers is not None else None,
        filled=form.filled,
    )  # fmt: skip
    if len(table.name) > SPELLING_CHARACTERS_MAX:
        shorter = "database whose name is shorter or has no dots"
        shorter = shorter if table.part is None else f"shorter discriminator (into), or a {shorter}"
        raise SinkRefusedError(
            f"the name of table {table.name} has {len(table.name)} characters with its quotes, and Headgate's own "
            f"tables store at most {SPELLING_CHARACTERS_MAX}. Use a {shorter}"
        )
    if table.part is not None:
        whole = [[column for column in each.columns if column not in each.prefixed] for each in form.keys]
        is_exact = described is not None and described.is_exact_text
        check_slice(table, name, whole, is_exact=is_exact, integers=integers)
    _check_rights(session, table)
    return table


def _not_there(session: MysqlSinkSession, name: str, identifier: str | None) -> SinkRefusedError:
    """The table does not exist, or cannot be seen: why, if its name is too long, or which one was perhaps meant."""
    for part in filter(None, split_table(name)):
        if len(part) > NAME_CHARACTERS_MAX:
            return SinkRefusedError(
                f"table {name} does not exist at the sink. A name there has at most {NAME_CHARACTERS_MAX} "
                f"characters, and {part!r} has {len(part)}. Name an existing table in sink.table"
            )
    near = nearest(name, (table_spelling(str(schema), str(table)) for schema, table in session.execute(_TABLES)))
    lacks = f"table {name} does not exist at the sink, or the sink's user may not see it{near}. Create it first"
    if identifier is None:
        return SinkRefusedError(lacks)
    grant = f"GRANT SELECT, INSERT, UPDATE, DELETE ON {identifier} TO {account(session)}"
    return RightsMissingError(f"{lacks}, or grant the rights to it", [grant])


def read_version(session: MysqlSinkSession, identifier: str) -> str:
    """What differs after any alteration of the table of that quoted name: its whole definition.

    0.09 ms, where a whole look takes 1.4 ms (20 columns, measured).
    """
    ((_, definition),) = session.execute(f"SHOW CREATE TABLE {identifier}")
    return _AUTO_INCREMENT.sub("", str(definition))


def _keys(form: MysqlForm, name: str, *, keyless: bool) -> tuple[tuple[str, ...], bool]:
    key = form.row_key
    if key is None:
        if keyless:
            return (), bool(form.keys)
        raise without_key(name)
    if key.prefixed:
        raise SinkRefusedError(
            f"the primary key of table {name} covers only a prefix of {key.prefixed[0]}. Define the key on the "
            "whole column"
        )
    return key.columns, len(form.keys) > 1


def _check_rights(session: MysqlSinkSession, table: RelationalTable[MysqlSinkColumn]) -> None:
    target, column = table.identifier, quoted(next(iter(table.columns)))
    columns, nulls = ", ".join(map(quoted, table.columns)), ", ".join(["NULL"] * len(table.columns))
    tries = {
        "SELECT": f"SELECT {column} FROM {target} WHERE FALSE",
        "INSERT": f"INSERT INTO {target} ({columns}) SELECT {nulls} FROM (SELECT 1) nothing WHERE FALSE",
        "UPDATE": f"UPDATE {target} SET {column} = {column} WHERE FALSE",
        "DELETE": f"DELETE FROM {target} WHERE FALSE",
    }
    missing = []
    for right, statement in tries.items():
        try:
            session.execute(statement)
        except MysqlError as error:
            if errno(error) == _READ_ONLY:
                raise SinkUnavailableError(f"{_READ_ONLY_SERVER} ({message(error)})") from error
            if fault_of(error) is not Fault.PERMISSION:
                raise
            missing.append(right)
    if missing:
        rights = ", ".join(missing)
        grant = f"GRANT {rights} ON {target} TO {account(session)}"
        raise RightsMissingError(f"no right to {rights} on table {table.name}", [grant])


def account(session: MysqlSession) -> str:
    """The session's user, as GRANT names it."""
    ((user,),) = session.execute("SELECT CURRENT_USER()")
    name, _, host = str(user).rpartition("@")
    return f"'{name}'@'{host}'"


def check_database(session: MysqlSinkSession) -> None:
    """Check that this server may keep progress and stage rows; SinkRefusedError contains what to grant or to set."""
    ((read_only, log_bin, log_format, lenient),) = session.execute(
        "SELECT @@global.read_only, @@log_bin, @@binlog_format, @@local_infile"
    )
    if read_only:
        raise SinkUnavailableError(_READ_ONLY_SERVER)
    if log_bin and str(log_format).upper() == "STATEMENT":
        raise SinkRefusedError(
            "the sink logs statements (binlog_format=STATEMENT), which does not work with READ COMMITTED. Run: SET "
            "GLOBAL binlog_format = 'MIXED' or 'ROW'"
        )
    if session.loads and not lenient:
        raise SinkRefusedError(
            "the sink refuses LOAD DATA LOCAL (local_infile=OFF), which Headgate uses to send rows. Run SET GLOBAL "
            "local_infile = ON, or add the option bulk=insert to sink.dsn, which takes about half as long again"
        )
    probe = quoted(DATABASE, "headgate_probe")
    try:
        session.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        session.execute(f"CREATE TEMPORARY TABLE {probe} (i int)")
        session.execute(f"DROP TEMPORARY TABLE {probe}")
    except MysqlError as error:
        if fault_of(error) is not Fault.PERMISSION:
            raise
        rights = "CREATE, DROP, SELECT, INSERT, UPDATE, DELETE, CREATE TEMPORARY TABLES"
        grant = f"GRANT {rights} ON {DATABASE}.* TO {account(session)}"
        raise RightsMissingError(f"no right to keep progress and stage rows in database {DATABASE}", [grant]) from error
