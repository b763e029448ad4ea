"""A table gets a column while writers write: the feed has to add it at the target, and to fill it."""

import time
from collections.abc import Callable
from typing import Final

from psycopg.sql import SQL, Identifier

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.demo.load import ShopLoad
from headgate_lab.demo.schema import NEW_COLUMN, SCHEMA, ShopTable
from headgate_lab.demo.watch import WatchError
from headgate_lab.embedded.clients import postgres_client

COLUMN_SECONDS_MAX: Final = 240.0
"""From ALTER TABLE at the source until the target has the column: the connector's delay, and one or two batches."""

POLL_SECONDS: Final = 0.1

_HAS: Final = """
SELECT EXISTS (SELECT FROM information_schema.columns WHERE (table_schema, table_name, column_name) = (%s, %s, %s))
"""


def add_column(
    table: ShopTable, load: ShopLoad, *, source_dsn: str, target_dsn: str, check: Callable[[], None]
) -> float:
    """Add NEW_COLUMN to the source's table, have it written, and wait for it at the target; how many seconds that took.

    ``table``: with the column. Raises WatchError, and what ``check`` does.
    """
    with postgres_client(source_dsn) as source:
        source.execute(
            SQL("ALTER TABLE {table} ADD COLUMN {column} {type}").format(
                table=table.identifier, column=Identifier(NEW_COLUMN.name), type=SQL(NEW_COLUMN.sql_type)
            )
        )
    began = time.monotonic()
    load.use(table)
    seconds_max = scaled_seconds(COLUMN_SECONDS_MAX)
    with postgres_client(target_dsn) as target:
        while target.execute(_HAS, (SCHEMA, table.name, NEW_COLUMN.name)).fetchone() != (True,):
            check()
            if time.monotonic() - began > seconds_max:
                raise WatchError(f"{table.full_name} did not get column {NEW_COLUMN.name} in {seconds_max:.0f} s")
            time.sleep(POLL_SECONDS)
    return time.monotonic() - began
