"""Whether anything may read a table's changes from a PostgreSQL, as far as its catalogue shows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

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

# A publication lists a partitioned table or its partitions, by publish_via_partition_root; so may the feed's topics.
_PUBLISHED: Final = """
SELECT c.oid FROM pg_class c WHERE c.oid = ANY (%s) AND EXISTS (
  SELECT FROM pg_publication p
  JOIN pg_publication_tables t ON t.pubname = p.pubname
  JOIN pg_namespace n ON n.nspname = t.schemaname
  JOIN pg_class r ON r.relnamespace = n.oid AND r.relname = t.tablename
  WHERE p.pubinsert AND p.pubupdate AND p.pubdelete
    AND (r.oid = c.oid OR r.oid IN (SELECT relid FROM pg_partition_tree(c.oid))
         OR c.oid IN (SELECT relid FROM pg_partition_tree(r.oid))))
"""


def why_not_captured(
    execute: Callable[[str, Any], Sequence[tuple[Any, ...]]], tables: Mapping[object, str]
) -> list[str]:
    """Reasons, with what to do. ``tables``: oid → name. Raises what ``execute`` does."""
    plugins = {plugin for (plugin,) in execute(_SLOTS, ())}
    if not plugins:
        return [_NO_SLOT]
    numbers = list(tables)
    unlogged = {number for (number,) in execute(_UNLOGGED, (numbers,))}
    published = {number for (number,) in execute(_PUBLISHED, (numbers,))} if plugins == {_BY_PUBLICATION} else numbers
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
