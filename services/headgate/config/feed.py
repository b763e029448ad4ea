"""A feed as its owner writes it: a source (source_spec.py), a sink (sink_spec.py), and what concerns both.

The YAML (or the JSON on the changefeed topic) is checked here and nowhere else; an unknown option is refused with
the nearest known name.
"""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from headgate.config.columns import ColumnOptions
from headgate.config.expressions import Where
from headgate.config.given_files import given_bytes, shown_name
from headgate.config.plugs import FORMATS, SINKS
from headgate.config.sink_spec import SinkSpec
from headgate.config.snapshot import SnapshotOptions
from headgate.config.source_spec import SourceSpec
from headgate.config.strict import Strict
from headgate.config.table_options import AmbiguousPatternsError, Into, TableOptions, most_specific, patterns_of
from headgate.config.wording import explained
from headgate.config.yaml_integers import spelling_faults
from headgate.config.yaml_text import YamlError, load_yaml
from headgate.records.identifiers import parse_identifier
from headgate.records.places import LogPosition


class FeedSpecError(ValueError):
    """A feed description that cannot be used: names the option, what is wrong, and what is allowed."""


BATCH_INTERVAL_SECONDS_MAX: Final = 2.0
"""A table moves, stops and takes its turn at the border of a batch, so all of that waits as long."""


class SkippedRecord(BaseModel):
    """A record that is set aside if it cannot be applied. Written as its place, or as {record, topic_id}.

    ``topic_id``: Kafka's id of the topic that the offset belongs to. The owner adds it when it accepts the feed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    record: str
    topic_id: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_id(cls, given: Any) -> Any:
        return {"record": given} if isinstance(given, str) else given

    @field_validator("record")
    @classmethod
    def _names_a_record(cls, given: str) -> str:
        return str(LogPosition.parse(given))

    @property
    def place(self) -> LogPosition:
        """Topic, partition and offset."""
        return LogPosition.parse(self.record)


def _made_by(columns: ColumnOptions, option: str) -> frozenset[str]:
    """Columns at the sink that an option names."""
    return frozenset(columns.set if option == "set" else columns.rename.values())


_NOT_WITH_SNAPSHOTS: Final = {
    "change_log": "its rows have no table at a source database",
    "start_ts": "tables whose rows are copied start at the end of their topics",
    "start_offsets": "tables whose rows are copied start at the end of their topics",
    "target_ts": "rows of the source are newer than that",
}
"""Options of a source, and why a feed that copies rows cannot have them."""

_OF_CREATED_TABLES: Final = frozenset({"partition_by", "types", "unique_keys"})
"""Options that nothing but creating a table needs."""

SKIPS_MAX: Final = 100
"""Records that are named one by one. With more, it is the table or its source that has to be corrected."""


class FeedSpec(Strict):
    """A changefeed as its owner wants it."""

    feed: str
    source: SourceSpec
    sink: SinkSpec
    batch_rows_max: int = Field(default=200_000, ge=1, le=2_000_000)
    """Most changes of one micro-batch; large when behind is what makes reducing pay."""
    batch_interval_seconds: Literal["auto"] | Annotated[float, Field(ge=0.0, le=BATCH_INTERVAL_SECONDS_MAX)] = "auto"
    """From the begin of one micro-batch to that of the next, at least (Spark's processing-time trigger); auto: none,
    but a second where few changes come."""
    split: Literal["auto", "manual"] = "auto"
    """Who divides a table between agents: the split scheduler, by its load, or only ``headgate table split``."""

    spread: Literal["auto", "manual"] = "auto"
    """Who moves tables to an agent that joins: the coordinator, by itself, or only ``headgate feed rebalance``."""

    on_bad_change: Literal["fail", "quarantine"] = "fail"
    """What becomes of a change that cannot be decoded or applied: its table stops there, or it goes to deadletter."""

    quarantine_per_hour_max: int = Field(default=100, ge=1, le=10_000)
    """Changes of one table set aside within an hour before it is the table that is taken for broken: it then fails."""

    deadletter_retention_days: int | None = Field(default=30, ge=1, le=36_500)
    """Age at which the coordinator removes dead letters of the feed. null keeps them until they are purged."""

    skip: tuple[SkippedRecord, ...] = ()
    """Records that go to deadletter, instead of stopping their table, if they cannot be decoded or applied."""

    snapshot: SnapshotOptions = Field(default_factory=SnapshotOptions)
    """Whether rows are copied from source.database when a table joins the feed (config/snapshot.py)."""

    columns: ColumnOptions = Field(default_factory=ColumnOptions)
    """How columns are shaped on their way to the sink, of all tables that have no ``columns`` of their own."""

    where: Where | None = None
    """A condition on the source's columns: rows for which it is not true do not go to the sink. Of all tables that have
    no ``where`` of their own."""

    key: tuple[str, ...] | None = None
    """See TableOptions: only a table's own options have it, never the feed."""

    tables: dict[str, TableOptions] = Field(default_factory=dict)
    """Pattern of source tables → options that they have instead of the feed's (config/table_options.py)."""

    @field_validator("key")
    @classmethod
    def _of_tables(cls, given: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if given is not None:
            raise ValueError("it is an option of single tables. Set it in `tables`, under the table's name")
        return given

    @field_validator("skip")
    @classmethod
    def _few(cls, given: tuple[SkippedRecord, ...]) -> tuple[SkippedRecord, ...]:
        if len(given) > SKIPS_MAX:
            raise ValueError(
                f"it names {len(given)} records, at most {SKIPS_MAX} are allowed. Remove those that the feed has "
                "passed, or set all bad changes aside with on_bad_change: quarantine"
            )
        return given

    @model_validator(mode="after")
    def _tables_that_can_be_created(self) -> "FeedSpec":
        if self.creates_tables and self.source.database is None and (self.evolves_tables or not self.events_tell_types):
            lacking = "" if self.evolves_tables else ", which these events cannot have"
            raise ValueError(
                f"sink.tables: {self.sink.tables} needs the tables' definitions{lacking}. Name the database that the "
                "changes come from in source.database, or create the tables yourself and remove the option"
            )
        given = {
            "types": bool(self.sink.types),
            "unique_keys": self.sink.unique_keys != "omit",
            "partition_by": self.sink.partition_by is not None,
        }
        for option in sorted(_OF_CREATED_TABLES):
            if given[option] and not self.creates_tables:
                raise ValueError(
                    f"sink.{option} is for tables that Headgate creates. Name the database that the changes come from "
                    "in source.database, with sink.tables: create, or remove the option"
                )
        chosen = {self.sink.unique_keys, *(options.unique_keys for options in self.tables.values())}
        if self.creates_tables and "create" in chosen and self.source.database is None:
            raise ValueError(
                "unique_keys: create needs source.database, because events do not contain a table's unique keys"
            )
        return self

    @model_validator(mode="after")
    def _events_that_can_be_written(self) -> "FeedSpec":
        if self.sink.writes_events and not FORMATS[self.source.format].has_envelopes:
            known = ", ".join(name for name in FORMATS.names() if FORMATS[name].has_envelopes)
            raise ValueError(
                f"sink.format: {self.sink.format} needs events that are such envelopes already (source.format: "
                f"{known}). This feed's format is {self.source.format}. Remove sink.format: records are then flat JSON"
            )
        if self.sink.needs_types and not FORMATS[self.source.format].tells_types:
            known = ", ".join(name for name in FORMATS.names() if FORMATS[name].tells_types)
            raise ValueError(
                f"sink.format: {self.sink.format} needs events with schemas, which describe the types of columns "
                f"(source.format: {known}). Events of format {self.source.format} have none. Remove sink.format and "
                "sink.registry: records are then flat JSON"
            )
        spec = {"columns and where": self, **{pattern: self._with(options) for pattern, options in self.tables.items()}}
        shaped = next((name for name, each in spec.items() if each.shapes), None)
        if self.sink.writes_events and shaped is not None and not FORMATS[self.source.format].shapes_envelopes:
            raise ValueError(
                f"sink.format: {self.sink.format} writes events of format {self.source.format} as they came, so rows "
                f"cannot be shaped ({shaped}). Remove that, or sink.format: records are then flat JSON"
            )
        return self

    @model_validator(mode="after")
    def _rows_that_can_be_copied(self) -> "FeedSpec":
        given = {"snapshot": self.snapshot} | {
            f"tables.{pattern}.snapshot": options.snapshot
            for pattern, options in self.tables.items()
            if options.snapshot is not None
        }
        option = next((name for name, snapshot in given.items() if snapshot.is_initial), None)
        if option is None:
            return self
        self.sink.check_takes("snapshot", option)
        source = self.source
        if source.database is None:
            raise ValueError(
                f"{option}: initial copies rows from the database that the changes come from. Name it in "
                "source.database, or let the connector write a snapshot and remove the option"
            )
        for name, why in _NOT_WITH_SNAPSHOTS.items():
            if name in source.model_fields_set and getattr(source, name):
                raise ValueError(f"source.{name} cannot be used with {option}: initial: {why}. Remove one of them")
        deleting = next((name for name, snapshot in given.items() if snapshot.existing_rows == "delete"), None)
        if deleting is not None and self.sink.mode == "append":
            raise ValueError(
                f"{deleting}.existing_rows: delete cannot be used with sink.mode: append, which adds a row for every "
                "change and deletes none. Use keep, or empty the table"
            )
        if self.snapshot.is_initial and "start" in source.model_fields_set and source.start != "latest":
            raise ValueError(
                f"source.start: {source.start} contradicts snapshot: initial, which starts at the end of the topics "
                "and copies what was before from the source's database. Remove one of them"
            )
        return self

    @field_validator("tables")
    @classmethod
    def _patterns(cls, given: dict[str, TableOptions]) -> dict[str, TableOptions]:
        patterns_of(given)
        return given

    @model_validator(mode="after")
    def _options_of_tables(self) -> "FeedSpec":
        for pattern, options in self.tables.items():
            named = dict.fromkeys(options.of_sink, "") | ({"types": ""} if options.types else {})
            self.sink.check_partitions(options.partition_by or (), f"tables.{pattern}.partition_by")
            for option in named:
                self.sink.check_takes(option, f"tables.{pattern}.{option}")
                if option in _OF_CREATED_TABLES and not self.creates_tables:
                    raise ValueError(
                        f"tables.{pattern}.{option} is for tables that Headgate creates. Name the database that the "
                        "changes come from in source.database, with sink.tables: create, or remove the option"
                    )
        return self

    @model_validator(mode="after")
    def _tables_of_several_sources(self) -> "FeedSpec":
        for pattern, options in self.tables.items():
            if options.into is not None:
                why = self._why_not_into(options, options.into)
                if why is not None:
                    raise ValueError(f"tables.{pattern}.into {why}")
        return self

    def _why_not_into(self, options: TableOptions, into: Into) -> str | None:
        if options.table is not None:
            return "names the target table, and so does `table`. Remove one of them"
        if not SINKS[self.sink.type].takes_slices:
            known = ", ".join(name for name in SINKS.names() if SINKS[name].takes_slices)
            return (
                f"cannot be used with sinks of type {self.sink.type}. Only sinks of these types write several sources "
                f"to one table: {known}. Give each source a table of its own"
            )
        if (options.keyless or self.sink.keyless) == "append":
            return "contradicts keyless: append, because rows are kept apart by the table's key. Remove one of them"
        if self.evolves_tables:
            return (
                "cannot be used with sink.tables: evolve. A column that one source gets would have its default in the "
                "rows of all sources, which may have other values there. Use create, and add columns yourself"
            )
        columns = self.columns if options.columns is None else options.columns
        made = next((name for name in ("set", "rename") if into.column in _made_by(columns, name)), None)
        if made is not None:
            return (
                f"makes a column {into.column} at the sink, and so does columns.{made}. Give one of them another name"
            )
        return None

    @model_validator(mode="after")
    def _keys_that_are_known(self) -> "FeedSpec":
        for pattern, options in self.tables.items():
            if options.key is None:
                continue
            option = f"tables.{pattern}.key"
            if self.source.database is None:
                raise ValueError(
                    f"{option} needs source.database, where Headgate checks that the columns are unique and never "
                    "NULL. Name the database that the changes come from"
                )
            if not self.sink.finds_rows:
                raise ValueError(
                    f"{option} cannot be used with this sink, which does not find rows by a key. Remove the option"
                )
            if (options.keyless or self.sink.keyless) == "append":
                raise ValueError(f"{option} contradicts keyless: append. Remove one of them")
        return self

    @property
    def commit_interval_seconds(self) -> float:
        """From one commit of a table to the next, at least; 0 for sinks that are committed to at once."""
        chosen = self.sink.commit_interval_seconds
        return SINKS[self.sink.type].commit_interval_seconds if chosen is None else chosen

    def name_of(self, topic: str, source_table: str | None = None) -> tuple[str, ...]:
        """A table's name at the source, in its parts: as the feed names it, or else as its topic is named.

        ``source_table``: which of several tables of the topic.
        """
        named = source_table or self.source.topic_tables.get(topic)
        return tuple(topic.split(".")[-2:]) if named is None else parse_identifier(named)

    def pattern_of(self, topic: str, source_table: str | None = None) -> str | None:
        """The pattern of ``tables`` that a table has its options from, None if it has the feed's. See ``name_of``.

        Raises FeedSpecError where two patterns claim it.
        """
        if not self.tables:
            return None
        try:
            found = most_specific(patterns_of(self.tables), self.name_of(topic, source_table))
        except AmbiguousPatternsError as error:
            raise FeedSpecError(str(error)) from error
        return None if found is None else found.text

    def for_table(self, topic: str, source_table: str | None = None) -> "FeedSpec":
        """The feed as it is for one table: its own options in place of the feed's. See ``pattern_of``."""
        pattern = self.pattern_of(topic, source_table)
        if pattern is None:
            return self
        return self._with(self.tables[pattern])

    def _with(self, options: TableOptions) -> "FeedSpec":
        """With a table's own options in place of the feed's."""
        sink = self.sink.model_copy(update=options.of_sink) if options.of_sink else self.sink
        return self.model_copy(update={"sink": sink, **options.of_feed})

    @property
    def shapes(self) -> bool:
        """Whether the sink's rows are others than the source's."""
        return self.columns.shapes or self.where is not None

    @property
    def hides(self) -> bool:
        """Whether the sink must not get all values of the source."""
        return self.columns.hides or self.where is not None

    @property
    def events_tell_types(self) -> bool:
        """Whether events can define tables: each topic carries one table, and they may have schemas."""
        source = self.source
        return FORMATS[source.format].tells_types and source.change_log is None and not source.tables

    @property
    def creates_tables(self) -> bool:
        """Whether Headgate creates tables that the sink lacks."""
        if self.sink.tables is not None:
            return self.sink.tables in ("create", "evolve")
        return self.source.database is not None and "tables" in SINKS[self.sink.type].options

    @property
    def evolves_tables(self) -> bool:
        """Whether Headgate alters a table of the sink when the source's was altered."""
        return self.sink.tables == "evolve"

    @property
    def may_set_aside(self) -> bool:
        """Whether some bad change of some table may go to deadletter."""
        some = {self.on_bad_change, *(options.on_bad_change for options in self.tables.values())}
        return "quarantine" in some or bool(self.skip)

    def skips(self, topic: str, topic_id: str | None) -> frozenset[tuple[int, int]]:
        """(partition, offset) of the records to skip in the topic with that id (None: the broker has no ids)."""
        return frozenset(
            (each.place.partition, each.place.offset)
            for each in self.skip
            if each.place.topic == topic and (None in (each.topic_id, topic_id) or each.topic_id == topic_id)
        )

    def to_json(self) -> str:
        """The spec in its form on the changefeed topic."""
        return self.model_dump_json(exclude_defaults=True)


def parse_feed(text: str) -> FeedSpec:
    """A feed from YAML or JSON text. Raises FeedSpecError with every fault."""
    try:
        data = load_yaml(text)
    except YamlError as error:
        raise FeedSpecError(str(error)) from error
    if not isinstance(data, dict):
        found = (
            "the text is empty"
            if data is None
            else f"it is a {'list' if isinstance(data, list) else 'single value'}, not a mapping"
        )
        raise FeedSpecError(f"{found}. Write a feed with the options feed, source and sink")
    if faults := spelling_faults(text, data):
        raise FeedSpecError("; ".join(faults))
    try:
        return FeedSpec.model_validate(data)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'feed'}: {explained(e)}" for e in error.errors()]
        raise FeedSpecError("; ".join(lines)) from error


def load_feed(path: Path) -> FeedSpec:
    """A feed from a file, or from standard input (``-``); FeedSpecError names it."""
    text = feed_text(path)
    try:
        return parse_feed(text)
    except FeedSpecError as error:
        raise FeedSpecError(f"{shown_name(path)}: {error}") from error


def feed_text(path: Path) -> str:
    """What a file of feeds, or standard input (``-``), contains. Raises FeedSpecError."""
    try:
        return given_bytes(path).decode()
    except OSError as error:
        raise FeedSpecError(
            f"{shown_name(path)}: {error.strerror}. Give a feed in a YAML file, or - for standard input; "
            "`headgate feed init` writes one"
        ) from error
    except UnicodeDecodeError as error:
        raise FeedSpecError(f"{shown_name(path)} is not UTF-8 text. Give a feed in YAML") from error
