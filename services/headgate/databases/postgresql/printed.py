"""Types of PostgreSQL whose cast to text is not what they print, which is what events, and other databases, have."""

from typing import Final

__all__ = ["PRINTED"]

PRINTED: Final = {
    "bpchar": "pg_catalog.textin(pg_catalog.bpcharout({}))",
    "inet": "pg_catalog.textin(pg_catalog.inet_out({}))",
}
"""Type → its text as it is printed. A cast takes the spaces at the end of a ``char``, and adds /32 to an address. (That
of a ``boolean``, true for t, is not of them: sinks take both.)"""
