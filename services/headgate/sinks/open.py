"""From a feed's sink description to a sink: the only place that knows all kinds.

Importable wherever changes are applied (Spark's Python workers too): nothing here needs Spark or Kafka.
"""

from pathlib import Path

from headgate.config.feed import SinkSpec
from headgate.config.secrets import NotPermittedError, check_hosts, secret
from headgate.sinks.contract import Sink, SinkRefusedError
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.mysql.address import parse_address
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.postgresql.address import KEY_FILE, hosts_of, parse_parameters
from headgate.sinks.relational.session import RelationalSettings

__all__ = ["open_sink", "permitted_password_file"]


def open_sink(spec: SinkSpec, *, keeps_session: bool = False) -> Sink:
    """The sink of a feed. No connection is made yet.

    SinkRefusedError for a type that does not exist, and for an address, a host or a file that a feed must not name.

    ``keeps_session``: for one thread that has many calls to make; where a session is dear, one then serves them all.
    """
    password_file = permitted_password_file(spec)
    match spec.type:
        case "postgresql":
            return PostgresSink(
                RelationalSettings(
                    dsn=spec.dsn,
                    password_file=password_file,
                    foreign_keys=spec.foreign_keys == "enforce",
                    keyless=spec.keyless == "append",
                ),
                keeps_session=keeps_session,
            )
        case "mysql":
            return MysqlSink(
                RelationalSettings(
                    dsn=spec.dsn,
                    password_file=password_file,
                    foreign_keys=spec.foreign_keys == "enforce",
                    keyless=spec.keyless == "append",
                )
            )
        case _:
            raise SinkRefusedError(f"sink.type {spec.type!r} is not known; there are: postgresql, mysql")


def permitted_password_file(spec: SinkSpec) -> Path | None:
    """The password's file, once all that ``spec`` names is permitted to this process. Raises SinkRefusedError."""
    hosts: list[str] = []
    key: str | None = None
    if spec.type == "postgresql":
        parameters = parse_parameters(spec.dsn)
        hosts, key = hosts_of(parameters), parameters.get(KEY_FILE)
    elif spec.type == "mysql":
        address = parse_address(spec.dsn)
        hosts = [address.options.get("unix_socket") or address.host]
        key = address.options.get("ssl_key")
    try:
        check_hosts(hosts, "sink.dsn")
        if key is not None:
            secret(Path(key).absolute(), "the private key of sink.dsn,")
        return None if spec.password_file is None else secret(spec.password_file, "sink.password_file")
    except NotPermittedError as error:
        raise SinkRefusedError(str(error)) from error
