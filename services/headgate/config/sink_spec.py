"""Where a feed's changes go: the kind of sink, its address, and how its tables are written."""

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator, model_validator

from headgate.config.column_types import column_of
from headgate.config.maintenance_options import MaintenanceOptions
from headgate.config.partitioning import IDENTITY, PartitionBy, instead_of_transform, partition_fields
from headgate.config.plugs import SINKS
from headgate.config.registry_spec import RegistrySpec
from headgate.config.store_options import StoreOptions
from headgate.config.strict import Strict
from headgate.config.topic_options import TopicOptions

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
    format: Literal["flat", "cloudevents", "avro", "debezium"] = "flat"
    """Of records of a topic: a row as flat JSON, the same with CloudEvents' attributes as headers, the row as Avro, or
    Debezium's envelope of the event."""
    registry: RegistrySpec | None = None
    """Where schemas of records in Avro are registered."""
    topic: TopicOptions = Field(default_factory=TopicOptions)
    """Of topics that Headgate creates."""
    mode: Literal["upsert", "append"] = "upsert"
    """Of a lake table: ``upsert`` keeps it equal to the source's table, ``append`` adds a row for every change."""
    commit_interval_seconds: Annotated[float, Field(ge=COMMIT_SECONDS_MIN, le=COMMIT_SECONDS_MAX)] | None = None
    """From one commit of a table to the next, at least; by default what the sink's plug names."""
    maintenance: MaintenanceOptions = Field(default_factory=MaintenanceOptions)
    """Of the tables of a lake: how, and how often, their files are compacted and old versions removed."""
    partition_by: PartitionBy | None = None
    """How lake tables that Headgate creates are divided; None: they are not, and those that exist may be in any way."""
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
        return SINKS.checked(given)

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
            "registry": self.registry is not None,
            "topic": self.topic != TopicOptions(),
            "mode": self.mode != "upsert",
            "commit_interval_seconds": self.commit_interval_seconds is not None,
            "maintenance": self.maintenance != MaintenanceOptions(),
            "partition_by": self.partition_by is not None,
            "store": self.store != StoreOptions(),
            "types": bool(self.types),
            "unique_keys": self.unique_keys != "omit",
            "rounding": self.rounding != "refuse",
        }
        for option in sorted(name for name, is_given in given.items() if is_given):
            self.check_takes(option, f"sink.{option}")
        self.check_partitions(self.partition_by or (), "sink.partition_by")
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

    @model_validator(mode="after")
    def _registry_where_needed(self) -> "SinkSpec":
        if self.format == "avro" and self.registry is None:
            raise ValueError(
                "sink.format: avro needs sink.registry.url, where the schemas of its records are registered"
            )
        if self.format != "avro" and self.registry is not None:
            raise ValueError(
                f"sink.registry cannot be used with sink.format: {self.format}, which registers no schemas. Remove it, "
                "or set sink.format: avro"
            )
        return self

    @property
    def writes_events(self) -> bool:
        """Whether the sink needs the events that changes came as."""
        return self.format == "debezium"

    @property
    def needs_types(self) -> bool:
        """Whether the sink needs events that describe the types of their columns."""
        return self.format == "avro"

    def check_takes(self, option: str, written: str) -> None:
        """Raise ValueError unless sinks of this type take ``option``. ``written``: its whole name in the feed."""
        options = SINKS[self.type].options
        if option in _OF_EVERY_SINK or option in options:
            return
        taken = ", ".join(f"sink.{name}" for name in sorted(options)) or "none of these options"
        raise ValueError(f"{written} cannot be used with sinks of type {self.type}, which take {taken}. Remove it")

    def check_partitions(self, by: tuple[str, ...], written: str) -> None:
        """Raise ValueError unless tables of this sink can be divided like that. ``written``: as of ``check_takes``."""
        field = next((each for each in partition_fields(by) if each.transform != IDENTITY), None)
        if field is None or SINKS[self.type].partition_transforms:
            return
        raise ValueError(
            f"{written}: {field.text} cannot be used with sinks of type {self.type}, whose partitions are values of "
            f"columns. {instead_of_transform(field)}"
        )

    @property
    def finds_rows(self) -> bool:
        """Whether the sink has one row for each key, in a table."""
        return "tables" in SINKS[self.type].options and self.mode != "append"

    @property
    def session_options(self) -> tuple[str, str]:
        """What sessions of tables may differ in: tables with the same options can share them."""
        return self.foreign_keys, self.keyless
