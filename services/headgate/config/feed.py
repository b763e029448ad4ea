"""A feed as its owner writes it: source topics, sink, and the few things that can be chosen.

The YAML (or the JSON on the changefeed topic) is checked here and nowhere else; an unknown option is refused with
the nearest known name.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from headgate.config.column_types import column_of
from headgate.config.columns import ColumnOptions
from headgate.config.expressions import Where
from headgate.config.maintenance_options import MaintenanceOptions
from headgate.config.plugs import FORMATS, SINKS, Plugs
from headgate.config.snapshot import SnapshotOptions
from headgate.config.start_offsets import StartOffsets
from headgate.config.store_options import StoreOptions
from headgate.config.strict import Strict
from headgate.config.table_options import AmbiguousPatternsError, Into, TableOptions, most_specific, patterns_of
from headgate.config.times import parse_ts
from headgate.config.topic_options import TopicOptions
from headgate.config.wording import explained, one_of
from headgate.config.yaml_integers import spelling_faults
from headgate.records.identifiers import parse_identifier, show_identifier
from headgate.records.places import Place

__all__ = [
    "FeedSpec",
    "FeedSpecError",
    "RegistrySpec",
    "SinkSpec",
    "SkippedRecord",
    "SourceDatabase",
    "SourceSpec",
    "Strict",
    "load_feed",
    "no_evidence",
    "parse_feed",
]


class FeedSpecError(ValueError):
    """A feed description that cannot be used: names the option, what is wrong, and what is allowed."""


def no_evidence() -> str:
    """Why a feed without resolved ts cannot have a target, nor be rewound to a time."""
    told = ", ".join(f"format {name}" for name in FORMATS.names() if FORMATS[name].gives_resolved_ts)
    ends = ", ".join(f"format {name}" for name in FORMATS.names() if "transaction_topic" in FORMATS[name].options)
    return (
        "its events have the time of each change, but not the time up to which the log is complete. Formats that "
        f"have it: {told}, and {ends} with source.transaction_topic"
    )


class RegistrySpec(Strict):
    """Where the schemas of Avro events are. The password comes from ``password_file``, never from the log.

    ``ca_file``: whose signature the registry's certificate must have, instead of those the machine trusts.
    """

    url: str
    user: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    allow_plain_http: bool = False
    """User and password are sent over http, where they can be read on the way."""

    @field_validator("url")
    @classmethod
    def _address(cls, given: str) -> str:
        try:
            parts = urlsplit(given)
            port = parts.port
        except ValueError:
            raise ValueError("it is not a valid URL. Use something like https://registry.example:8081") from None
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                "it must not contain credentials, because feeds are stored in Kafka. Use user and password_file"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            raise ValueError(f"{given!r} is not a valid URL. Use something like https://registry.example:8081")
        if parts.query or parts.fragment:
            raise ValueError("the URL must not have a query (?) or a fragment (#)")
        return given

    @model_validator(mode="after")
    def _fit_together(self) -> "RegistrySpec":
        if (self.user is None) != (self.password_file is None):
            raise ValueError("user and password_file: give both or neither")
        if self.user is not None and ":" in self.user:
            raise ValueError("user: HTTP basic authentication does not allow a colon in it")
        is_plain = not self.url.startswith("https:")
        if self.user is not None and is_plain and not self.allow_plain_http:
            raise ValueError(
                "http sends user and password in plain text. Use an https address, or set allow_plain_http: true"
            )
        if self.allow_plain_http and (self.user is None or not is_plain):
            raise ValueError("allow_plain_http needs an http address, user and password_file. Remove it")
        if self.ca_file is not None and not self.url.startswith("https:"):
            raise ValueError("ca_file needs an https address, because http has no certificates")
        return self


def _one_of(plugs: Plugs[Any], given: str) -> str:
    """The name of a plug. Raises ValueError for any other, and PlugError for one that cannot be used."""
    if given not in plugs.names():
        raise ValueError(one_of(given, plugs.names()))
    plugs[given]
    return given


def _table_of_two(table: str) -> str:
    """``table`` with no more quotes than it needs. Raises ValueError if it is not schema.table."""
    if re.search(r"[*?\[\]()|\\^$]", re.sub(r'"(?:[^"]|"")*"', "", table)):
        raise ValueError(
            f"{table!r} looks like a pattern. Patterns are not supported: name each table (put a name that contains "
            "such a character in double quotes)"
        )
    parts = parse_identifier(table)
    if len(parts) != 2:
        raise ValueError(
            f"{table!r} is not a valid table name. Write schema.table (database.table for databases without schemas)"
        )
    return show_identifier(parts)


class SourceDatabase(Strict):
    """The database that the changes come from: ``dsn``, its address, or ``connection``, a named one.

    Its catalogue has what events lack: exact types, keys, defaults and comments. A password comes from a file, never
    from the log: ``password_file``, or the connection's.
    """

    dsn: str | None = None
    connection: str | None = None
    """The name of a connection (databases/connections.py), instead of ``dsn`` and ``password_file``."""
    password_file: Path | None = None

    @model_validator(mode="after")
    def _one_address(self) -> "SourceDatabase":
        if (self.dsn is None) == (self.connection is None):
            raise ValueError("give either source.database.dsn or source.database.connection")
        if self.connection is not None and self.password_file is not None:
            raise ValueError(
                "source.database.connection has a password file of its own. Remove source.database.password_file"
            )
        return self


_NOT_OF_CHANGE_LOGS: Final = {
    "tables": "a change log holds one table's changes",
    "topic_tables": "name the change log's topic after its table",
    "transaction_topic": "the ends of transactions count changes per topic, and need one partition",
    "target_ts": "streams end at switches, so not every partition comes to the target",
}
"""Options of a source, and why a feed that reads a change log cannot have them."""


class SourceSpec(Strict):
    """Where changes come from: ``topics``, ``topic_pattern`` (a full-match regular expression) or ``change_log``.

    A pattern stands for what matches it in future, too: such a topic's table joins the feed from its earliest change.
    ``start_ts``: from the records of that time on, less a margin (sources/offsets.py). ``start_offsets``: topic →
    {partition: first offset to apply}, for every topic and all its partitions, or {topic_id, offsets}
    (config/start_offsets.py). ``target_ts``: changes
    after it are not applied, and the feed is finished once everything before it is. ``transaction_topic``: where
    Debezium writes the ends of transactions, which show up to which time a table is complete (formats/transactions.py).
    ``tables``: which tables the only topic carries for the feed, as schema.table or database.table; each goes to a sink
    table of its own. Without it, a topic carries one table. ``binary_handling_mode``: the option of that name of
    Debezium's connector, where it is not the default: how bytes are written as text, which schemas do not show.
    ``change_log``: the name of a change log of generations, which is one table's. With ``strict_generations`` all that
    a switch has closed is applied before anything that it has opened; else a stream waits for its parents only.
    """

    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    change_log: str | None = None
    strict_generations: bool = False
    format: str = "debezium-json"
    """How changes are written: config/plugs.py has the names."""
    start: Literal["earliest", "latest"] = "earliest"
    start_ts: int | None = None
    start_offsets: dict[str, StartOffsets] = Field(default_factory=dict)
    target_ts: int | None = None
    transaction_topic: str | None = None
    tables: tuple[str, ...] = ()
    topic_tables: dict[str, str] = Field(default_factory=dict)
    """Topic → source table, for ``headgate verify``, where the topic is not named like its table."""
    unavailable_value: str = "__debezium_unavailable_value"
    binary_handling_mode: Literal["bytes", "base64", "base64-url-safe", "hex"] | None = None
    decimal_handling_mode: Literal["string", "precise"] | None = None
    """The option of that name of Debezium's connector, for expressions over events without schemas: only where a
    decimal without digits behind the point is a text, values do not show which it is."""
    output_nulls: bool | None = None
    """Maxwell's option of that name: whether its rows contain NULLs, or omit them. None: not set."""
    registry: RegistrySpec | None = None
    """For formats whose schemas are in a registry."""
    database: SourceDatabase | None = None
    """Where the tables' definitions are read."""

    @field_validator("format")
    @classmethod
    def _known(cls, given: str) -> str:
        return _one_of(FORMATS, given)

    @field_validator("topic_pattern")
    @classmethod
    def _regular(cls, given: str | None) -> str | None:
        try:
            re.compile(given or "")
        except re.error as error:
            raise ValueError(f"{given!r} is not a valid regular expression: {error}") from error
        return given

    @field_validator("start_ts", "target_ts", mode="before")
    @classmethod
    def _time(cls, given: Any) -> int | None:
        return None if given is None else parse_ts(given)

    @field_validator("tables")
    @classmethod
    def _named(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        named = tuple(map(_table_of_two, given))
        twice = sorted({table for table in named if named.count(table) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} is listed twice")
        return named

    @field_validator("topic_tables")
    @classmethod
    def _tables_of_topics(cls, given: dict[str, str]) -> dict[str, str]:
        return {topic: _table_of_two(table) for topic, table in sorted(given.items())}

    @model_validator(mode="after")
    def _tables_of_one_topic(self) -> "SourceSpec":
        if not self.tables:
            return self
        if self.topic_pattern is not None or len(self.topics) != 1:
            raise ValueError(
                "source.tables lists the tables of one topic. Give exactly one topic in source.topics, and no "
                "source.topic_pattern. Create a feed for each such topic"
            )
        if self.transaction_topic is not None:
            raise ValueError(
                "source.transaction_topic cannot be used with source.tables, because the ends of transactions count "
                "changes per topic. Remove one of them"
            )
        return self

    @model_validator(mode="after")
    def _topics_that_are_read(self) -> "SourceSpec":
        if self.tables and self.topic_tables:
            raise ValueError(
                "source.topic_tables cannot be used with source.tables, which names the tables "
                "already. Remove one of them"
            )
        for topic in self.topic_tables:
            read = topic in self.topics if self.topic_pattern is None else re.fullmatch(self.topic_pattern, topic)
            if not read:
                raise ValueError(f"source.topic_tables names topic {topic!r}, which the feed does not read")
        return self

    @model_validator(mode="after")
    def _modes_of_debezium(self) -> "SourceSpec":
        if self.binary_handling_mode is not None and "binary_handling_mode" not in FORMATS[self.format].options:
            raise ValueError(
                f"source.binary_handling_mode is an option of Debezium's connectors. Format {self.format} encodes "
                "bytes in one way only. Remove the option"
            )
        if self.decimal_handling_mode is not None and "decimal_handling_mode" not in FORMATS[self.format].options:
            raise ValueError(
                "source.decimal_handling_mode is for Debezium's events without schemas (format debezium-json). Events "
                f"of format {self.format} show what their decimals are. Remove the option"
            )
        return self

    @model_validator(mode="after")
    def _nulls_of_maxwell(self) -> "SourceSpec":
        if self.output_nulls is not None and "output_nulls" not in FORMATS[self.format].options:
            raise ValueError(
                f"source.output_nulls is an option of Maxwell. Events of format {self.format} mark NULL themselves. "
                "Remove the option"
            )
        return self

    @property
    def gives_resolved_ts(self) -> bool:
        """Whether the log, as the feed reads it, shows up to which ts it is complete."""
        return FORMATS[self.format].gives_resolved_ts or self.transaction_topic is not None

    @model_validator(mode="after")
    def _transactions_that_can_be(self) -> "SourceSpec":
        if self.transaction_topic is None:
            return self
        if "transaction_topic" not in FORMATS[self.format].options:
            raise ValueError(
                "source.transaction_topic needs format debezium-json, because only Debezium writes the ends of "
                f"transactions (provide.transaction.metadata=true). This feed's format is {self.format}"
            )
        if not self.transaction_topic.rpartition(".")[0]:
            raise ValueError(
                f"source.transaction_topic {self.transaction_topic!r} is not of the form "
                "<topic.prefix>.transaction. Headgate finds the topics of a transaction by this prefix"
            )
        if self.transaction_topic in self.topics:
            raise ValueError(
                f"source.topics has {self.transaction_topic}, which is source.transaction_topic and "
                "has no table's changes. Remove it"
            )
        return self

    @model_validator(mode="after")
    def _times_that_can_be(self) -> "SourceSpec":
        if self.start_ts is not None and "start" in self.model_fields_set:
            raise ValueError("give only one of source.start and source.start_ts")
        if self.target_ts is None:
            return self
        if not self.gives_resolved_ts:
            raise ValueError(f"source.target_ts cannot be reached with format {self.format}: {no_evidence()}")
        if self.start_ts is not None and self.start_ts >= self.target_ts:
            raise ValueError("source.target_ts must be later than source.start_ts, or nothing would be applied")
        return self

    @model_validator(mode="after")
    def _offsets_that_can_be(self) -> "SourceSpec":
        if not self.start_offsets:
            return self
        if self.start_ts is not None or "start" in self.model_fields_set:
            raise ValueError("give only one of source.start_offsets, source.start and source.start_ts")
        if sorted(self.start_offsets) != sorted(self.topics):
            raise ValueError("source.start_offsets must name every topic in source.topics, and no other")
        for topic, start in self.start_offsets.items():
            if sorted(start.offsets) != list(range(len(start.offsets))) or not start.offsets:
                raise ValueError(f"source.start_offsets of {topic}: give an offset for each partition from 0 on")
        return self

    @model_validator(mode="after")
    def _registry_where_needed(self) -> "SourceSpec":
        if FORMATS[self.format].needs_registry and self.registry is None:
            raise ValueError(
                f"format {self.format} needs source.registry.url, where the schemas of its events are stored"
            )
        if self.registry is not None and not FORMATS[self.format].needs_registry:
            raise ValueError(
                f"source.registry cannot be used with format {self.format}, which needs no registry. Remove it"
            )
        return self

    @model_validator(mode="after")
    def _one_way_of_naming(self) -> "SourceSpec":
        if [bool(self.topics), bool(self.topic_pattern), self.change_log is not None].count(True) != 1:
            raise ValueError("give exactly one of source.topics, source.topic_pattern and source.change_log")
        return self

    @model_validator(mode="after")
    def _change_log_that_can_be_read(self) -> "SourceSpec":
        if self.change_log is None:
            if self.strict_generations:
                raise ValueError("source.strict_generations needs source.change_log. Remove it")
            return self
        for option, why in _NOT_OF_CHANGE_LOGS.items():
            if option in self.model_fields_set and getattr(self, option):
                raise ValueError(f"source.{option} cannot be used with source.change_log: {why}")
        return self


_OF_EVERY_SINK: Final = frozenset({"table"})


COMMIT_SECONDS_MIN: Final = 1.0
"""Less is a commit at once, which needs no interval."""

COMMIT_SECONDS_MAX: Final = 900.0
"""A table is behind its source by as much, and its changes must be on the topic for as long."""


class SinkSpec(Strict):
    """Where changes go: to ``dsn``, an address in the form of its ``type``, or to ``connection``, a named one.

    A password comes from a file, never from the log: ``password_file``, or the connection's.
    """

    type: str
    """Which sink: config/plugs.py has their names."""
    dsn: str | None = None
    connection: str | None = None
    """The name of a connection (databases/connections.py), instead of ``dsn`` and ``password_file``."""
    password_file: Path | None = None
    table: str = "{schema}.{table}"
    """Target table; ``{schema}`` and ``{table}`` are the last two parts of the topic's name, or of source.tables'."""
    foreign_keys: Literal["enforce", "ignore"] = "enforce"
    """``ignore``: the sink does not check its foreign keys for our rows (docs/target-tables.md, Foreign keys)."""
    keyless: Literal["refuse", "append"] = "refuse"
    """``append``: rows of a source table without key are added to a sink table without key, and only added."""
    tables: Literal["create", "existing", "evolve"] | None = None
    """``create``: Headgate creates tables that the sink lacks, as source.database defines them, or, without it, the
    schemas of events. ``evolve``: it also alters them, where the source's tables were altered. ``existing``: missing
    tables are refused. By default ``create`` for feeds that name source.database."""
    unique_keys: Literal["omit", "create"] = "omit"
    """``create``: tables that Headgate creates get the source's unique keys. A table can stop where two rows swap a
    value in one transaction, because rows are applied one after the other."""
    partitions: Literal["as-source", "by-key"] = "as-source"
    """Of a topic: the partition of the source's record, or the one that the key decides on (Kafka's murmur2)."""
    format: Literal["flat", "cloudevents", "debezium"] = "flat"
    """Of records of a topic: a row as flat JSON, the same with CloudEvents' attributes as headers, or Debezium's
    envelope of the event."""
    topic: TopicOptions = Field(default_factory=TopicOptions)
    """Of topics that Headgate creates."""
    mode: Literal["upsert", "append"] = "upsert"
    """Of a lake table: ``upsert`` keeps it equal to the source's table, ``append`` adds a row for every change."""
    commit_interval_seconds: Annotated[float, Field(ge=COMMIT_SECONDS_MIN, le=COMMIT_SECONDS_MAX)] | None = None
    """From one commit of a table to the next, at least; by default what the sink's plug names."""
    maintenance: MaintenanceOptions = Field(default_factory=MaintenanceOptions)
    """Of the tables of a lake: how, and how often, their files are compacted and old versions removed."""
    store: StoreOptions = Field(default_factory=StoreOptions)
    """Of tables in an object store: its server, and the files that have the keys to it."""
    types: dict[str, str] = Field(default_factory=dict)
    """Column of the sink, as ``schema.table.column`` → its type, where Headgate creates the table."""
    rounding: Literal["refuse", "allow"] = "refuse"
    """``allow``: the database rounds values that have more digits than a column keeps, or cuts them off."""
    not_the_source: bool = False
    """The sink only looks like the changes' own source (a copy that is published in turn): write all the same."""

    @field_validator("type")
    @classmethod
    def _known(cls, given: str) -> str:
        return _one_of(SINKS, given)

    @field_validator("types")
    @classmethod
    def _types_of_columns(cls, given: dict[str, str]) -> dict[str, str]:
        for name, chosen in given.items():
            column_of(name)
            if not chosen.strip():
                raise ValueError(f"{name} has no type. Write it like shop.orders.total: decimal(12,2)")
        return given

    @model_validator(mode="after")
    def _of_the_sink(self) -> "SinkSpec":
        given = {
            "connection": self.connection is not None,
            "password_file": self.password_file is not None,
            "foreign_keys": self.foreign_keys != "enforce",
            "keyless": self.keyless != "refuse",
            "tables": self.tables in ("create", "evolve"),
            "format": self.format != "flat",
            "partitions": self.partitions != "as-source",
            "topic": self.topic != TopicOptions(),
            "mode": self.mode != "upsert",
            "commit_interval_seconds": self.commit_interval_seconds is not None,
            "maintenance": self.maintenance != MaintenanceOptions(),
            "store": self.store != StoreOptions(),
            "types": bool(self.types),
            "unique_keys": self.unique_keys != "omit",
            "rounding": self.rounding != "refuse",
        }
        for option in sorted(name for name, is_given in given.items() if is_given):
            self.check_takes(option, f"sink.{option}")
        if self.tables == "evolve" and not SINKS[self.type].alters_tables:
            raise ValueError(
                f"sink.tables: evolve cannot be used with sinks of type {self.type}, whose tables Headgate creates and "
                "does not alter. Write tables: create, and add columns yourself"
            )
        if (self.dsn is None) == (self.connection is None):
            raise ValueError("give either sink.dsn or sink.connection")
        if self.connection is not None and self.password_file is not None:
            raise ValueError("sink.connection has its own password file. Remove sink.password_file")
        if self.connection is not None and self.store != StoreOptions():
            raise ValueError("sink.connection has a store of its own. Remove sink.store")
        return self

    @property
    def writes_events(self) -> bool:
        """Whether the sink needs the events that changes came as."""
        return self.format == "debezium"

    def check_takes(self, option: str, written: str) -> None:
        """Raise ValueError unless sinks of this type take ``option``. ``written``: its whole name in the feed."""
        options = SINKS[self.type].options
        if option in _OF_EVERY_SINK or option in options:
            return
        taken = ", ".join(f"sink.{name}" for name in sorted(options)) or "none of these options"
        raise ValueError(f"{written} cannot be used with sinks of type {self.type}, which take {taken}. Remove it")

    @property
    def finds_rows(self) -> bool:
        """Whether the sink has one row for each key, in a table."""
        return "tables" in SINKS[self.type].options and self.mode != "append"

    @property
    def session_options(self) -> tuple[str, str]:
        """What sessions of tables may differ in: tables with the same options can share them."""
        return self.foreign_keys, self.keyless


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
        return str(Place.parse(given))

    @property
    def place(self) -> Place:
        """Topic, partition and offset."""
        return Place.parse(self.record)


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
        for option, is_given in (("types", bool(self.sink.types)), ("unique_keys", self.sink.unique_keys != "omit")):
            if is_given and not self.creates_tables:
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
            for option in named:
                self.sink.check_takes(option, f"tables.{pattern}.{option}")
                if option in ("types", "unique_keys") and not self.creates_tables:
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
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FeedSpecError(f"not YAML: {error}") from error
    if not isinstance(data, dict):
        raise FeedSpecError("a feed is a mapping with the options feed, source and sink")
    if faults := spelling_faults(text, data):
        raise FeedSpecError("; ".join(faults))
    try:
        return FeedSpec.model_validate(data)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'feed'}: {explained(e)}" for e in error.errors()]
        raise FeedSpecError("; ".join(lines)) from error


def load_feed(path: Path) -> FeedSpec:
    """A feed from a file; FeedSpecError names the file."""
    try:
        return parse_feed(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FeedSpecError(
            f"{path}: {error.strerror}. Give a feed in a YAML file; `headgate feed init` writes one"
        ) from error
    except FeedSpecError as error:
        raise FeedSpecError(f"{path}: {error}") from error
