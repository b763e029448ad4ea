"""Where a feed's changes come from: topics, their format, the schema registry and the source's database."""

import re
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from headgate.config.plugs import FORMATS
from headgate.config.registry_spec import RegistrySpec
from headgate.config.start_offsets import StartOffsets
from headgate.config.strict import Strict
from headgate.config.times import parse_ts
from headgate.records.identifiers import parse_identifier, show_identifier


def no_evidence() -> str:
    """Why a feed without resolved ts cannot have a target, nor be rewound to a time."""
    told = ", ".join(f"format {name}" for name in FORMATS.names() if FORMATS[name].gives_resolved_ts)
    ends = ", ".join(f"format {name}" for name in FORMATS.names() if "transaction_topic" in FORMATS[name].options)
    return (
        "its events have the time of each change, but not the time up to which the log is complete. Formats that "
        f"have it: {told}, and {ends} with source.transaction_topic"
    )


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
        return FORMATS.checked(given)

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
