"""PostgreSQL: a dialect of the relational engine (see relational.dialect for what each module is)."""

from headgate.sinks.relational.postgresql.dialect import PostgresSink

__all__ = ["PostgresSink"]
