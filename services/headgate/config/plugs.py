"""What can be added: sinks, formats, schedulers, each a line here (or another package's entry point) and a file.

A line names a *plug*: a value that describes what it adds, and creates it. A feed's allowed options depend on that, so
the names are here, in a lower layer than what they name; a plug is imported when a feed first names it, and
nothing here knows more of it than its traits. Another package adds one by an entry point of the group:

    [project.entry-points."headgate.sinks"]
    my-sink = "my_package.sink:SINK"

It has to be installed wherever feeds are read: beside coordinators, agents, Spark's workers and the command line; a
scheduler only beside coordinators.
"""

from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from headgate.config.wording import one_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["FORMATS", "SCHEDULERS", "SINKS", "FormatTraits", "PlugError", "Plugs", "SinkTraits", "Writes"]


class PlugError(ValueError):
    """A plug that is not there or cannot be used: names it, and those that are there."""


class Writes(StrEnum):
    """Where a sink's writer runs."""

    IN_TASK = "in_task"
    """Beside the rows, in many Spark tasks at once: one transaction per table and task."""
    ON_DRIVER = "on_driver"
    """On the driver, one commit per table and batch; tasks only stage what it commits (sinks/on_driver.py)."""


class SinkTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What a feed, a command and a page of the documentation need to know of a sink.

    ``options``: which of sink.commit_interval_seconds, connection, foreign_keys, format, keyless, maintenance, mode,
    partition_by, partitions, password_file, registry, rounding, store, tables, topic, types and unique_keys, and of the
    feed's snapshot, it takes; others are refused. ``partition_transforms``: partition_by may have transforms.
    ``commit_interval_seconds``: between two commits of a table, if the feed does not name it; 0: at once. ``schemes``:
    how its addresses begin, where they have a scheme. ``connectors``: Debezium's names of the connectors whose source
    is such a database, so that it may be its own source. ``alters_tables``: it takes sink.tables: evolve.
    ``takes_slices``: several sources can be written to one table (records/slices.py).
    """

    summary: str
    writes: Writes = Writes.IN_TASK
    options: frozenset[str] = frozenset()
    commit_interval_seconds: float = 0.0
    schemes: tuple[str, ...] = ()
    connectors: frozenset[str] = frozenset()
    alters_tables: bool = False
    takes_slices: bool = False
    partition_transforms: bool = False


class FormatTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What a feed, a command and a page of the documentation need to know of a format.

    ``options``: which of source.binary_handling_mode, decimal_handling_mode, output_nulls and transaction_topic it
    takes; others are refused.
    ``gives_resolved_ts``: whether the tables' topics themselves show up to which ts they are complete.
    ``needs_registry``: whether events only name their schema. ``compacted_away``: what of it compaction may take, and
    nothing shows afterwards. ``tells_origin``: whether an event names the database it is from (sources/origin.py reads
    Debezium's JSON). ``tells_types``: whether an event can describe its table's columns (sources/event_schemas.py reads
    Debezium's schemas). ``has_envelopes``: whether events can be written on as they are (sink.format: debezium).
    ``shapes_envelopes``: whether others can be written in their place where the feed's options shape rows.
    """

    summary: str
    compacted_away: str
    options: frozenset[str] = frozenset()
    gives_resolved_ts: bool = False
    needs_registry: bool = False
    tells_origin: bool = False
    tells_types: bool = False
    has_envelopes: bool = False
    shapes_envelopes: bool = False


T = TypeVar("T")


class Plugs(Generic[T]):
    """The plugs of one kind: our own, and those of other packages."""

    def __init__(self, kind: str, group: str, own: Mapping[str, str], type_: type[T]) -> None:
        """``own``: name → "module:attribute", of a plug that is a ``type_``."""
        self._kind = kind
        self._group = group
        self._own = own
        self._type = type_
        self._loaded: dict[str, T] = {}

    def names(self) -> tuple[str, ...]:
        """Our own in their order, then the others'."""
        return (*self._own, *sorted(set(self._others()) - set(self._own)))

    def __getitem__(self, name: str) -> T:
        """The plug of that name. Raises PlugError."""
        plug = self._loaded.get(name)
        if plug is None:
            plug = self._loaded[name] = self._load(name)
        return plug

    def checked(self, name: str) -> str:
        """``name``, if a plug has it. Raises ValueError for any other, and PlugError for one that cannot be used."""
        if name not in self.names():
            raise ValueError(one_of(name, self.names()))
        self[name]
        return name

    def forget(self, name: str) -> None:
        """What was loaded under that name: its package is gone."""
        self._loaded.pop(name, None)

    def load_own(self) -> None:
        """Import our own now, for a process that others are forked from."""
        for name in self._own:
            self[name]

    def _others(self) -> "dict[str, EntryPoint]":
        # Every command imports this module, and few commands need that library, which takes long to import.
        found = resolve_name("importlib.metadata:entry_points")(group=self._group)
        return {each.name: each for each in found}

    def _load(self, name: str) -> T:
        if name in self._own:
            module, _, attribute = self._own[name].partition(":")
            plug: object = getattr(import_module(module), attribute)
        else:
            found = self._others().get(name)
            if found is None:
                raise PlugError(f"{self._kind} {name!r} does not exist. Choose one of {', '.join(self.names())}")
            try:
                plug = found.load()
            except (ImportError, AttributeError) as error:
                raise PlugError(f"{self._kind} {name}: {found.value} cannot be imported: {error}") from error
        if not isinstance(plug, self._type):
            raise PlugError(
                f"plugin {self._kind} {name!r} must provide a {self._type.__name__}, got {type(plug).__name__}"
            )
        return plug


SINKS: Final = Plugs(
    "sink.type",
    "headgate.sinks",
    {
        "postgresql": "headgate.sinks.relational.postgresql.dialect:SINK",
        "mysql": "headgate.sinks.relational.mysql.dialect:SINK",
        "kafka": "headgate.sinks.kafka.sink:SINK",
        "delta": "headgate.sinks.delta.sink:SINK",
        "iceberg": "headgate.sinks.iceberg.sink:SINK",
    },
    SinkTraits,
)
"""``sink.type`` of a feed. What a plug has besides its traits: sinks/registry.py."""

FORMATS: Final = Plugs(
    "source.format",
    "headgate.formats",
    {
        "debezium-json": "headgate.formats.debezium_json:FORMAT",
        "debezium-avro": "headgate.formats.debezium_avro:FORMAT",
        "canal-json": "headgate.formats.canal_json:CANAL",
        "maxwell-json": "headgate.formats.maxwell_json:FORMAT",
        "ticdc-canal-json": "headgate.formats.canal_json:TICDC",
    },
    FormatTraits,
)
"""``source.format`` of a feed. What a plug has besides its traits: formats/registry.py."""

SCHEDULERS: Final[Plugs[object]] = Plugs(
    "scheduler",
    "headgate.schedulers",
    {
        "basic": "headgate.coordinator.schedulers.basic:BASIC",
        "drain": "headgate.coordinator.schedulers.drain:DRAIN",
        "rebalance": "headgate.coordinator.schedulers.rebalance:REBALANCE",
        "even": "headgate.coordinator.schedulers.even:EVEN",
        "split": "headgate.coordinator.schedulers.split:SPLIT",
        "balance": "headgate.coordinator.schedulers.balance:BALANCE",
    },
    object,
)
"""HEADGATE_SCHEDULERS of a coordinator. What a plug is: coordinator/schedulers/contract.py."""
