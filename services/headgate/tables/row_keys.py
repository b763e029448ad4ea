"""The key by which rows of a table are found at the sink, where it is not the source's primary key.

Kafka keeps changes in order only among records of one key, and only who writes the records sees that a row's key has
changed: a connector then writes a delete of the former key. So rows are found by the columns of the records' key, the
connector's ``message.key.columns``, which ``tables.….key`` names. They must identify a row as a primary key does.
"""

from collections.abc import Collection, Sequence

from headgate.config.feed import FeedSpec
from headgate.records.control import SpanPlan
from headgate.records.identifiers import table_spelling
from headgate.records.name_lists import shown_names
from headgate.sinks.contract import TableShape
from headgate.tables.statement import Definition

__all__ = ["RowKey"]


class RowKey:
    """Of one table: whether changes of a row find it at the sink, in their order.

    ``records``: the columns of the newest record's key, empty if that is not known.
    """

    def __init__(
        self, own: FeedSpec, plan: SpanPlan, source: Definition, records: tuple[str, ...], sink: TableShape | None
    ) -> None:
        self._own, self._plan, self._source, self._records = own, plan, source, records
        primary = source.form.primary
        self._primary = () if primary is None else primary.columns
        self._columns = {column.name: column for column in source.form.columns}

        self._there = None if sink is None or sink.is_missing else set(sink.key)
        self.key = self._found_by()
        """The source's columns by which rows are found; empty where that is the primary key, or not known."""

    def _found_by(self) -> tuple[str, ...]:
        if self._own.key is not None:
            return self._own.key
        records = self._records
        if not records or not set(records) <= self._columns.keys() or set(records) == set(self._primary):
            return ()
        # Where the sink's table has another key, every change is refused, with both keys in the error.
        return records if self._there is None or self._there == self._at_sink(records) else ()

    def _at_sink(self, key: Sequence[str]) -> set[str]:
        return set(map(self._own.columns.target, key))

    def refusal(self) -> str | None:
        """Why rows cannot be found by ``key``, None if they can."""
        key = self.key
        missing = [name for name in key if name not in self._columns]
        if missing:
            known = shown_names(sorted(self._columns))
            return f"the source's table does not have the columns {shown_names(missing)}. Its columns are {known}"
        return self._unnamed() or self._unidentified(key) or self._unordered() or self._misplaced(self._at_sink(key))

    def _unordered(self) -> str | None:
        """Changes of one row are in order only if their records have its key."""
        if self._own.key is None or not self._records or set(self._records) == set(self._own.key):
            return None
        return (
            f"the records of topic {self._plan.topic} have the key {_shown(self._records)}, so a change of "
            f"{_shown(self._own.key)} is not a delete of the former row, and changes of one row may be in several "
            f"partitions. Set message.key.columns={self._message_key(self._own.key)} at the connector, or remove the "
            "option"
        )

    def _unnamed(self) -> str | None:
        """A table that is created gets the source's primary key, unless the feed names another one."""
        if self._own.key is not None or self._there is not None:
            return None
        return (
            f"the records of topic {self._plan.topic} have the key {_shown(self._records)}, and the source's primary "
            f"key is {_shown(self._primary) if self._primary else 'missing'}. To find rows by the records' key, set "
            f"key: [{', '.join(self._records)}] for the table in `tables`. Otherwise remove message.key.columns at the "
            "connector"
        )

    def _unidentified(self, key: Sequence[str]) -> str | None:
        """A key of a row, as a primary key is one."""
        nullable = [name for name in key if self._columns[name].is_nullable]
        if nullable:
            return (
                f"key column {shown_names(nullable)} may be NULL at the source, and no row is found by NULL. Set it "
                "NOT NULL at the source, or choose other columns"
            )
        if not any(each.finds_rows and set(each.columns) <= set(key) for each in self._source.form.keys):
            return (
                f"{_shown(key)} is not unique at the source: no primary key and no plain unique index is of these "
                "columns, so two rows could become one. Create a unique index at the source, or add columns of one"
            )
        return self._own.columns.hidden_key(key)

    def _misplaced(self, wanted: Collection[str]) -> str | None:
        there = self._there
        if there is None or there == wanted:
            return None
        return (
            f"the sink's table finds rows by {_shown(sorted(there)) if there else 'no key'}, not by "
            f"{_shown(sorted(wanted))}. Give it that primary key, or let Headgate create it"
        )

    def replica_identity(self, logged: frozenset[str] | None) -> str | None:
        """Why deletes and changes of the key would not name the former row. ``logged``: see Catalogue."""
        lacking = [] if logged is None else [name for name in self.key if name not in logged]
        if not lacking:
            return None
        table = table_spelling(self._source.schema, self._source.table)
        return (
            f"the source's log does not have the former {shown_names(lacking)} of a row, so where it changes the "
            f"former row would stay at the sink. Run ALTER TABLE {table} REPLICA IDENTITY FULL at the source (and the "
            "same for each partition), or REPLICA IDENTITY USING INDEX with a unique index of these columns"
        )

    def _message_key(self, key: Sequence[str]) -> str:
        return f"{self._source.schema}.{self._source.table}:{','.join(key)}"


def _shown(key: Sequence[str]) -> str:
    return f"({', '.join(key)})"
