"""From a feed's sink description to a sink: the only place that knows all kinds.

Importable wherever changes are applied (Spark's Python workers too): nothing here needs Spark or Kafka.
"""

from headgate.config.feed import SinkSpec
from headgate.sinks.contract import Sink, SinkRefusedError
from headgate.sinks.mysql import MysqlSettings, MysqlSink
from headgate.sinks.postgresql import PostgresSettings, PostgresSink

__all__ = ["open_sink"]


def open_sink(spec: SinkSpec, *, keeps_session: bool = False) -> Sink:
    """The sink of a feed. No connection is made yet. SinkRefusedError for a type that does not exist.

    ``keeps_session``: for one thread that has many calls to make; where a session is dear, one then serves them all.
    """
    match spec.type:
        case "postgresql":
            return PostgresSink(
                PostgresSettings(
                    dsn=spec.dsn,
                    password_file=spec.password_file,
                    foreign_keys=spec.foreign_keys == "enforce",
                    keyless=spec.keyless == "append",
                ),
                keeps_session=keeps_session,
            )
        case "mysql":
            return MysqlSink(
                MysqlSettings(
                    dsn=spec.dsn,
                    password_file=spec.password_file,
                    foreign_keys=spec.foreign_keys == "enforce",
                    keyless=spec.keyless == "append",
                )
            )
        case _:
            raise SinkRefusedError(f"sink.type {spec.type!r} is not known; there are: postgresql, mysql")
