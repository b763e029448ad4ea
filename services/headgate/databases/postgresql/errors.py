"""What PostgreSQL's errors mean."""

import psycopg

__all__ = ["message"]


def message(error: psycopg.Error) -> str:
    """What the server said."""
    return (error.diag.message_primary or str(error) or type(error).__name__).strip()
