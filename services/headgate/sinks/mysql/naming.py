"""Under which name a table's progress rows are kept, be the table there or not.

Who may write a table is closed by its rows alone: a table that was dropped, or that our user may not see any more, must
not keep its feed from being paused or removed. So nothing here asks the table for anything.
"""

from typing import Final

from headgate.sinks.contract import Claim, SinkRefusedError
from headgate.sinks.mysql.connection import Session

__all__ = ["name_to_claim"]

_FOUND: Final = """
SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables
WHERE table_schema = %(database)s AND table_name = %(relation)s
"""

_CLAIMED: Final = """
SELECT table_name FROM headgate.progress
WHERE cluster_id = %(cluster)s AND feed_id = %(feed_id)s AND topic = %(topic)s AND LOWER(table_name) = LOWER(%(full)s)
ORDER BY table_name = %(full)s DESC, owner_rev DESC, n DESC, table_name LIMIT 1
"""


def name_to_claim(session: Session, claim: Claim) -> str:
    """``database.table``, as ``catalog.Table.name`` has it: spelled as the server spells it.

    If there is no such table any more, or none that we may see, it is the one that the feed has claimed before; if it
    never has, the name as given.
    """
    database, dot, relation = claim.table.partition(".")
    if not dot:
        ((default,),) = session.execute("SELECT DATABASE()")
        if default is None:
            raise SinkRefusedError(f"table {claim.table} has no database: name one in sink.table or in sink.dsn")
        database, relation = str(default), claim.table
    full = f"{database}.{relation}"
    parameters: dict[str, object] = {
        "cluster": claim.identity.cluster_id,
        "feed_id": claim.identity.feed_id,
        "topic": claim.topic,
        "database": database,
        "relation": relation,
        "full": full,
    }
    rows = session.execute(_FOUND, parameters) or session.execute(_CLAIMED, parameters)
    return str(rows[0][0]) if rows else full
