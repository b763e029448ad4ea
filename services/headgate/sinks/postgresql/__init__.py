"""PostgreSQL behind the sink contract: progress rows in schema ``headgate``, batches by COPY and merge.

``connection`` settings, sessions, error classes · ``catalog`` what a table looks like, and whether it can be written ·
``progress`` the fence: claim, seal, positions · ``contention`` waiting for locks, ending sessions of lower epochs ·
``values`` Debezium values → COPY text · ``staging`` rows → session-long temporary tables · ``writer`` one batch, one
transaction · ``parts`` the slow way when a batch as a whole is refused · ``sink`` the contract.
"""

from headgate.sinks.postgresql.sink import PostgresSettings, PostgresSink

__all__ = ["PostgresSettings", "PostgresSink"]
