"""A sink table that was altered while Headgate used a cached description of it.

How rows are written follows from the table's columns and keys, and those are looked up once per session: to look them
up for each batch would cost more than many a batch. What is kept has a *version*, which one cheap statement reads
again within the batch's transaction, after its statements have taken the lock on the table that keeps alterations
out until the commit. If it is another one, nothing is committed, and the batch is retried with a new description.
"""

from headgate.sinks.contract import SinkUnavailableError


class TableAlteredError(SinkUnavailableError):
    """The table is not what the batch was prepared for and must be read again. Retryable, if it keeps being altered."""

    def __init__(self, table: str) -> None:
        super().__init__(f"table {table} was altered while a batch was being written to it")
