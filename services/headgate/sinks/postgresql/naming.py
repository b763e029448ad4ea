"""Under which name a table's progress rows are kept, be the table there or not.

Who may write a table is closed by its rows alone: a table that was dropped, or that we have lost our rights to, must
not keep its feed from being paused or removed. So nothing here asks the table for anything.
"""

from typing import Final

from headgate.sinks.contract import Claim
from headgate.sinks.postgresql.catalog import Connection, parse_name

__all__ = ["name_to_claim", "name_to_seal"]

_FOUND: Final = """
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""

_CLAIMED: Final = """
SELECT table_name FROM headgate.progress
WHERE cluster_id = %(cluster)s AND feed_id = %(feed_id)s AND topic = %(topic)s
  AND right(table_name, length(%(relation)s) + 1) = '.' || %(relation)s
ORDER BY owner_rev DESC, n DESC, table_name LIMIT 1
"""

_SEALABLE: Final = """
SELECT DISTINCT table_name FROM headgate.progress
WHERE cluster_id = %(cluster)s AND feed_id = %(feed_id)s AND topic = %(topic)s
  AND right(table_name, length(%(relation)s) + 1) = '.' || %(relation)s AND (owner_rev, n) = (%(owner_rev)s, %(n)s)
"""


def name_to_claim(connection: Connection, claim: Claim) -> str:
    """``schema.table``, as ``catalog.Table.name`` has it: exact if it is given with its schema.

    A bare name is looked for along the search path; if there is no such table any more, it is the one that the feed has
    claimed before; if it never has, the one that would be made now.
    """
    if "." in claim.table:
        return claim.table
    row = connection.execute(_FOUND, (parse_name(claim.table).as_string(connection),)).fetchone()
    row = row or connection.execute(_CLAIMED, _parameters(claim)).fetchone()
    if row is None:
        row = connection.execute("SELECT coalesce(current_schema(), 'public') || '.' || %s", (claim.table,)).fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    return str(row[0])


def name_to_seal(connection: Connection, claim: Claim) -> str:
    """The same; but what the claim's epoch has claimed goes before what the name means now."""
    if "." in claim.table:
        return claim.table
    rows = connection.execute(_SEALABLE, _parameters(claim)).fetchall()
    return str(rows[0][0]) if len(rows) == 1 else name_to_claim(connection, claim)


def _parameters(claim: Claim) -> dict[str, object]:
    return {
        "cluster": claim.identity.cluster_id,
        "feed_id": claim.identity.feed_id,
        "topic": claim.topic,
        "relation": claim.table,
        "owner_rev": claim.epoch.owner_rev,
        "n": claim.epoch.n,
    }
