"""Whether anything may read a table's changes from a PostgreSQL, as far as its catalogue shows."""

from collections.abc import Mapping
from typing import Final

from headgate.databases.catalogue import Ask
from headgate.databases.postgresql.publications import published_whole
from headgate.records.name_lists import shown_names

_NO_SLOT: Final = (
    "the source database has no logical replication slot, so nothing captures its changes. Start the connector, or "
    "changes made between the copy and its start are missing at the sink"
)

_SLOTS: Final = """
SELECT DISTINCT plugin::text FROM pg_replication_slots WHERE slot_type = 'logical' AND database = current_database()
"""

_BY_PUBLICATION: Final = "pgoutput"
"""The one output plugin that reads publications. Others (decoderbufs) read every table that is logged."""

_UNLOGGED: Final = "SELECT oid FROM pg_class WHERE oid = ANY (%s) AND relpersistence <> 'p'"


def why_not_captured(execute: Ask, tables: Mapping[object, str]) -> list[str]:
    """Reasons, with what to do. ``tables``: oid → name. Raises what ``execute`` does."""
    plugins = {plugin for (plugin,) in execute(_SLOTS, ())}
    if not plugins:
        return [_NO_SLOT]
    numbers = list(tables)
    unlogged = {number for (number,) in execute(_UNLOGGED, (numbers,))}
    published = published_whole(execute, numbers) if plugins == {_BY_PUBLICATION} else numbers
    unpublished = [tables[number] for number in numbers if number not in published and number not in unlogged]
    reasons = []
    if unlogged:
        reasons.append(
            f"changes of {shown_names([tables[number] for number in numbers if number in unlogged])} are not logged by "
            "the source, so nothing captures them, and the copied rows never change. ALTER TABLE … SET LOGGED"
        )
    if unpublished:
        reasons.append(
            f"no publication at the source publishes inserts, updates and deletes of {shown_names(unpublished)}, so "
            "no connector captures them, and the copied rows never change. `headgate source check` prints the "
            "statement that adds them to the connector's publication"
        )
    return reasons
