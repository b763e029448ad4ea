"""Reads a statement in the grammar of its database."""

from headgate.migration.statements.clauses import DialectName
from headgate.migration.statements.mariadb import read_mariadb
from headgate.migration.statements.postgresql import read_postgresql
from headgate.migration.statements.statement import Statement


def parse_statement(text: str, dialect: DialectName) -> Statement:
    """Read one ALTER TABLE, CREATE TABLE or DROP TABLE. Raises StatementError."""
    return read_mariadb(text) if dialect == "mysql" else read_postgresql(text)
