"""MySQL and MariaDB: a dialect of the relational engine (see relational.dialect for what each module is)."""

from headgate.sinks.relational.mysql.dialect import MysqlSink

__all__ = ["MysqlSink"]
