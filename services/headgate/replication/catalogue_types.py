"""The types of a feed's tables in the source's catalogue, for expressions over events that do not show them.

They are read in tasks, when the first such event comes, and again once a minute: a table may be altered. No event shows
which definition it is of, so one from before an ALTER is read by the types of now. A value that does not fit them has
the catalogue read again at once.
"""

import time
from collections.abc import Callable
from typing import Final

from headgate.config.feed import FeedSpec, FeedSpecError
from headgate.config.plugs import FORMATS
from headgate.eventlog.clock import wall_ms
from headgate.formats.expressions.declared import DeclaredTypes, SourceTypes, SourceTypesUnavailableError
from headgate.sources.database import as_source_errors, source_target
from headgate.sources.offsets import SourceError
from headgate.sources.table_names import named_like, source_table
from headgate.tables.catalogues import open_catalogue
from headgate.tables.computed import source_columns

__all__ = ["CatalogueTypes"]

TYPES_SECONDS: Final = 60.0
"""How long types are taken for those of the source. Each worker process asks for each of its tables."""

AGAIN_SECONDS: Final = 2.0
"""At least between two questions about a table whose values do not fit: each of its changes may be bad."""

CLOCKS_MS: Final = 10_000
"""By how much the clocks of this machine and of brokers may differ, for which was first: an event or a reading. Kafka
itself needs clocks that are closer. An event that is younger waits for the next reading."""

PAUSE_SECONDS: Final = 30.0
"""A source that does not answer is not asked by each batch of each table: that takes as long as the time-out."""


class CatalogueTypes:
    """Of one feed that names its source database. Not for more than one thread."""

    def __init__(
        self, spec: FeedSpec, clock: Callable[[], float] = time.monotonic, now_ms: Callable[[], int] = wall_ms
    ) -> None:
        self._spec, self.clock, self.now_ms = spec, clock, now_ms
        self._silent: tuple[float, str] | None = None
        """When the source did not answer (monotonic seconds), and why."""

    def of(self, topic: str, table: str, said: Callable[[], str | None]) -> DeclaredTypes:
        """Those of one table. ``table``: the sink's. ``said``: the source's table that its events name, if they do."""
        return _OfTable(self, topic, table, said)

    def read(self, topic: str, table: str, said: Callable[[], str | None]) -> SourceTypes:
        """Raises SourceTypesUnavailableError."""
        now, source = self.clock(), self._spec.source
        if self._silent is not None and now - self._silent[0] < PAUSE_SECONDS:
            raise SourceTypesUnavailableError(self._silent[1])
        assert source.database is not None  # noqa: S101 - only feeds that name it are asked for
        try:
            with as_source_errors(), open_catalogue(source_target(source.database)) as catalogue:
                name = source_table(self._spec, table, topic, has=catalogue.has, said=lambda _: said())
                definition = None if name is None else catalogue.definition(name)
        except (SourceError, FeedSpecError) as error:
            self._silent = now, f"the types of the source's columns cannot be read: {error}"
            raise SourceTypesUnavailableError(self._silent[1]) from error
        self._silent = None
        if definition is None:
            raise SourceTypesUnavailableError(
                f"the types of the source's columns are not known: the source database has no table "
                f"{name or named_like(topic)}, or its user may not see it. Grant SELECT on it, or name the source's "
                "table in source.topic_tables"
            )
        is_debezium = FORMATS[source.format].tells_types
        return SourceTypes(source_columns(definition), is_debezium, source.decimal_handling_mode)


class _OfTable:
    """See DeclaredTypes. While the source does not answer, what was read before counts."""

    def __init__(self, feed: CatalogueTypes, topic: str, table: str, said: Callable[[], str | None]) -> None:
        self._feed, self._topic, self._table, self._said = feed, topic, table, said
        self._found: SourceTypes | None = None
        self._read_at = float("-inf")
        self._began_ms = 0
        """When the reading of ``_found`` began, by this machine's clock."""
        self._readings = 0

    def known(self) -> SourceTypes:
        """See DeclaredTypes."""
        return self._no_older_than(TYPES_SECONDS)

    def again(self) -> SourceTypes:
        """See DeclaredTypes."""
        return self._no_older_than(AGAIN_SECONDS)

    def since(self, append_ms: int) -> SourceTypes:
        """See DeclaredTypes."""
        found, readings = self._found, self._readings
        if found is None or self._began_ms <= append_ms + CLOCKS_MS:
            found = self._no_older_than(AGAIN_SECONDS)
            if self._readings == readings:  # of what is read now, the event is older whatever the clocks show
                raise SourceTypesUnavailableError(
                    "the event may be younger than what is known of the source's columns. They are read again in "
                    f"{AGAIN_SECONDS:.0f} s, or once the source answers"
                )
        return found

    def _no_older_than(self, seconds: float) -> SourceTypes:
        now, found = self._feed.clock(), self._found
        if found is not None and now - self._read_at < seconds:
            return found
        began_ms = self._feed.now_ms()
        try:
            read = self._feed.read(self._topic, self._table, self._said)
        except SourceTypesUnavailableError:
            if found is None:
                raise
            read = found
        else:
            self._began_ms, self._readings = began_ms, self._readings + 1
        self._read_at = now
        self._found = found if read == found and found is not None else read
        return self._found
