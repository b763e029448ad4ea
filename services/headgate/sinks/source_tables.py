"""The source table of a topic's events, as stored in the sink: one row for all partitions.

A worker knows a topic's table from the first event it met, and forgets it when it ends; another worker would take the
next event's table for the topic's. So the name is a row at the sink, per (cluster, feed, table, topic), made in the
transaction that moves the position past the first event. Two workers that meet different tables in two partitions at
once meet at the row's key: the second one is refused, and starts again knowing the name.
"""

import json

from headgate.formats.tables import show_table
from headgate.records.source_tables import SourceTable
from headgate.sinks.contract import Claim, SinkMovedError

__all__ = ["check_same", "source_table_of", "text_of"]


def text_of(table: SourceTable) -> str:
    """As it is stored: JSON in ASCII, which any database's encoding has."""
    return json.dumps(table)


def source_table_of(text: str) -> SourceTable:
    """What ``text_of`` wrote."""
    return tuple(json.loads(text))


def check_same(claim: Claim, table: str, met: SourceTable, stored: str) -> None:
    """Raises SinkMovedError where the sink has another table than was met."""
    known = source_table_of(stored)
    if known != met:
        raise SinkMovedError(
            f"{table}: topic {claim.topic} carries changes of {show_table(known)}, as another partition has recorded "
            f"at the sink, but this batch has changes of {show_table(met)}. The batch is read again"
        )
