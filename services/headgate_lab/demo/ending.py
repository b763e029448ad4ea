"""The end of a run: everything that was written has been applied, and source and target are compared and audited."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import psycopg
from psycopg.sql import SQL, Identifier

from headgate.eventlog.connection import KafkaConnection
from headgate.provisioning.time_scale import scaled_seconds
from headgate.sources.offsets import end_offsets
from headgate_lab.demo.audit import AuditReport, audit
from headgate_lab.demo.compare import Comparison, compare
from headgate_lab.demo.load import write_markers
from headgate_lab.demo.schema import TABLES, Row, ShopTable
from headgate_lab.demo.stack import TOPIC_PREFIX
from headgate_lab.demo.tables import passed
from headgate_lab.demo.watch import Watch, WatchError
from headgate_lab.embedded.clients import postgres_client

DRAIN_SECONDS_MAX: Final = 600.0
"""From the last commit in the source until the feed has passed it."""

POLL_SECONDS: Final = 0.25

Stands = Callable[[ShopTable, Row], bool]
"""Whether the target's table has a row of this key."""


def await_drained(
    watch: Watch,
    *,
    source_dsn: str,
    stands: Stands,
    bootstrap: str,
    seed: int,
    check: Callable[[], None],
    seconds_max: float = DRAIN_SECONDS_MAX,
) -> float:
    """Wait until everything that stopped writers have written has been applied; return how many seconds that took.

    Writes a last row per table. Once it is in the target, every earlier change of its table has been applied, and the
    topics' ends are behind the last commit: the feed's checkpoint must pass them too. Raises WatchError, and what
    ``check`` raises.
    """
    began = time.monotonic()
    with postgres_client(source_dsn) as source:
        markers = write_markers(source, seed)
    missing = [table for table in TABLES if not stands(table, markers[table.name])]
    while missing:
        if time.monotonic() - began > scaled_seconds(seconds_max):
            names = ", ".join(table.full_name for table in missing)
            raise WatchError(f"the last change of {names} has not arrived after {scaled_seconds(seconds_max):.0f} s")
        check()
        time.sleep(POLL_SECONDS)
        missing = [table for table in missing if not stands(table, markers[table.name])]
    topics = {f"{TOPIC_PREFIX}.{table.full_name}": 1 for table in TABLES}
    connection = KafkaConnection(bootstrap)
    ends = end_offsets(connection, topics)
    connection.close()
    what = f"the feed's checkpoint passes the ends of its topics, {ends}"
    at = watch.wait_for(what, lambda seen: passed(seen.snapshot, ends), seconds_max, check)
    return at - began


def row_stands(target: psycopg.Connection, table: ShopTable, key: Row) -> bool:
    """Whether a PostgreSQL has the row now: ``Stands``, but for its first argument."""
    query = SQL("SELECT 1 FROM {table} WHERE {key}").format(
        table=table.identifier, key=SQL(" AND ").join(SQL("{} = %s").format(Identifier(column)) for column in key)
    )
    return target.execute(query, list(key.values())).fetchone() is not None


def examine_all(
    source_dsn: str, target_dsn: str, tables: Sequence[ShopTable] = TABLES
) -> tuple[tuple[Comparison, ...], AuditReport]:
    """Every table compared row by row, and the whole record of the audit examined. Both sides must be at rest.

    ``tables`` as they are now.
    """
    with (
        postgres_client(source_dsn) as source,
        postgres_client(target_dsn) as target,
    ):
        return tuple(compare(source, target, table) for table in tables), audit(source, target)
