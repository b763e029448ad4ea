"""MySQL and MariaDB behind the sink contract: progress rows in database ``headgate``, batches by LOAD DATA and merge.

``address`` where it is · ``connection`` sessions, error classes, rows sent from memory · ``catalog`` what a table looks
like, and whether it can be written · ``progress`` the fence: claim, seal, positions · ``contention`` waiting for locks,
ending sessions of lower epochs · ``values`` Debezium values → text · ``staging`` rows → session-long temporary tables ·
``writer`` one batch, one transaction · ``parts`` the slow way when a batch as a whole is refused · ``sink`` the
contract.
"""

from headgate.sinks.mysql.sink import MysqlSettings, MysqlSink

__all__ = ["MysqlSettings", "MysqlSink"]
