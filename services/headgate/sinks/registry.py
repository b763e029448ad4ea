"""Creates sinks from a feed's sink description. config/plugs.py lists the sinks.

Importable wherever changes are applied (Spark's Python workers too): nothing here needs Spark or Kafka.
"""

from collections.abc import Callable
from pathlib import Path

from headgate.config.plugs import SINKS, PlugError, SinkTraits
from headgate.config.sink_spec import SinkSpec
from headgate.databases.address import Address, Target
from headgate.databases.connections import Use, named
from headgate.databases.errors import DatabaseRefusedError
from headgate.sinks.contract import Sink, SinkRefusedError

__all__ = [
    "Address",
    "SinkPlug",
    "open_sink",
    "plug_of",
    "same_sink",
    "server_of",
    "target_of",
]


class SinkPlug(SinkTraits, frozen=True, kw_only=True):
    """A sink: its traits, how its address is read, and how it is opened.

    ``trigger_advice``: what to do about triggers of target tables that fire on its writes.

    ``address`` raises SinkRefusedError, and never quotes what it is given, which may hold a password. ``open`` makes no
    connection yet; what it gets is permitted. Its last argument, ``keeps_session``: see open_sink.
    """

    address: Callable[[str], Address]
    open: Callable[[SinkSpec, Path | None, bool], Sink]
    trigger_advice: str = ""


def plug_of(type_: str) -> SinkPlug:
    """The sink of that ``sink.type``. Raises SinkRefusedError."""
    try:
        plug = SINKS[type_]
    except PlugError as error:
        raise SinkRefusedError(str(error)) from error
    if not isinstance(plug, SinkPlug):
        raise SinkRefusedError(f"sink.type {type_}: it has traits, but no SinkPlug to open it")
    return plug


def open_sink(spec: SinkSpec, *, keeps_session: bool = False) -> Sink:
    """The sink of a feed. No connection is made yet.

    SinkRefusedError for a type that does not exist, and for an address, a host or a file that a feed must not name.

    ``keeps_session``: for one thread that has many calls to make; where a session is dear, one then serves them all.
    """
    plug, target = plug_of(spec.type), target_of(spec)
    try:
        password_file = target.check(plug.address(target.dsn))
    except DatabaseRefusedError as error:
        raise SinkRefusedError(str(error)) from error
    return plug.open(spec, password_file, keeps_session)


def target_of(spec: SinkSpec) -> Target:
    """The sink's database, from its address or its named connection. Raises SinkRefusedError."""
    if spec.connection is None:
        return Target(spec.dsn or "", spec.password_file, store=spec.store)
    try:
        connection, target = named(spec.connection, Use.SINK, "sink.connection")
    except DatabaseRefusedError as error:
        raise SinkRefusedError(str(error)) from error
    if connection.kind != spec.type:
        raise SinkRefusedError(
            f"sink.connection: {spec.connection} is of kind {connection.kind}, and sink.type is {spec.type}. "
            "Correct one of them"
        )
    return target


def _address_of(spec: SinkSpec) -> Address:
    return plug_of(spec.type).address(target_of(spec).dsn)


def same_sink(spec: SinkSpec) -> SinkSpec:
    """``spec`` with its address in the form that every feed into the same sink has.

    Owners compare the text to refuse a second feed on a table before anything is written. Two spellings that this
    cannot recognise as one (a host's alias) are caught later, by the sink itself, which holds the table for one feed.
    Raises SinkRefusedError for an address that is not valid, or that holds a password: feeds are stored on a topic that
    every user with access to the cluster can read. A named connection stays a name.
    """
    if spec.connection is not None:
        return spec
    address = _address_of(spec)
    if address.has_password:
        raise SinkRefusedError(
            "sink.dsn must not contain a password, because feeds are stored in Kafka, where others can read them. "
            "Put it into a file on coordinators and agents, and set sink.password_file"
        )
    return spec.model_copy(update={"dsn": address.text})


def server_of(spec: SinkSpec) -> str:
    """The server that the sink is on, for people and as a key: sinks on one server stop answering together.

    Raises SinkRefusedError.
    """
    target = target_of(spec)
    address = plug_of(spec.type).address(target.dsn)
    if address.buckets and not address.server:
        try:
            return target.endpoint
        except DatabaseRefusedError as error:
            raise SinkRefusedError(str(error)) from error
    return address.server or ",".join(filter(None, address.hosts)) or spec.type
