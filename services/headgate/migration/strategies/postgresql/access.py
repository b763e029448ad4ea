"""Who may use a copy before it takes the table's place: its owner alone.

The cut-over gives it the table's own rights (handover.py).
"""

from typing import Final

from headgate.databases.postgresql import sql
from headgate.databases.postgresql.bounded_connection import BoundedConnection

__all__ = ["hide"]

_GRANTEES: Final = """
SELECT DISTINCT CASE grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(grantee) END
FROM pg_class, aclexplode(relacl) WHERE oid = %s::regclass AND grantee <> relowner
"""


def hide(session: BoundedConnection, copy: sql.Identifier) -> None:
    """Take the rights that default privileges have given: they are for new tables, and may not be for this one."""
    for (grantee,) in session.execute(_GRANTEES, (copy.as_string(session),)).fetchall():
        role = sql.SQL("PUBLIC") if grantee is None else sql.Identifier(grantee)
        session.execute(sql.SQL("REVOKE ALL ON {} FROM {}").format(copy, role))
