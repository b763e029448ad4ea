"""The configuration of a Debezium connector for a source, as Kafka Connect's REST interface takes it.

JSON has no comments, so they are entries whose names begin with ``//``. Connect ignores what it does not know.
"""

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headgate.capture.place import DatabaseEndpoint
from headgate.capture.tables import SourceTable
from headgate.formats.topic_names import topic_part

__all__ = ["ConnectorNames", "connector_json", "topic_of"]

_SERVER_IDS: Final = (5_400, 2**31)
"""Above the ids that people give their servers. Every reader of a binary log needs one of its own."""

_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"

_DIRECTORY: Final = (
    "Its worker needs config.providers=directory and "
    "config.providers.directory.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider"
)

_NOT_IN_KEYS: Final = re.compile(r"[\s:;,]")
_SEPARATORS: Final = re.compile(r"\\?[ \t\n\r\f\v:;]")

Line = tuple[str, str, str]
"""Setting, value, and the comment before it, which may be empty."""


class ConnectorNames(msgspec.Struct, frozen=True, kw_only=True):
    """What a connector is called, and what it uses. ``password_file`` is on the machines of Kafka Connect."""

    prefix: str
    slot: str
    publication: str
    bootstrap: str
    password_file: Path | None
    is_mariadb: bool = False


def topic_of(prefix: str, table: SourceTable) -> str:
    """The topic that the connector writes the table's changes to."""
    return f"{prefix}.{topic_part(table.schema)}.{topic_part(table.table)}"


def connector_json(place: DatabaseEndpoint, names: ConnectorNames, tables: Sequence[SourceTable]) -> str:
    """The whole file, with a line end."""
    own = _postgresql if place.kind == "postgresql" else _mysql
    settings: dict[str, str] = {}
    for name, value, comment in (*own(place, names), *_common(names, tables)):
        if comment:
            settings[f"// {name}"] = comment
        settings[name] = value
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _login(place: DatabaseEndpoint, names: ConnectorNames) -> Iterator[Line]:
    yield "database.hostname", place.host, ""
    yield "database.port", str(place.port), ""
    yield "database.user", place.user, ""
    file = names.password_file or Path("/run/secrets/source_password")
    yield (
        "database.password",
        f"${{directory:{file.parent}:{file.name}}}",
        f"Connect reads the password from {file}. {_DIRECTORY}",
    )


def _postgresql(place: DatabaseEndpoint, names: ConnectorNames) -> Iterator[Line]:
    yield "connector.class", "io.debezium.connector.postgresql.PostgresConnector", ""
    yield from _login(place, names)
    yield "database.dbname", place.database, ""
    for name, value in place.options.items():
        yield f"database.{name}", value, ""
    yield "plugin.name", "pgoutput", ""
    yield "slot.name", names.slot, "PostgreSQL keeps WAL for this slot until it is dropped, also while Connect is down"
    yield "publication.name", names.publication, "Made by an administrator: `headgate source check` has the statement"
    yield "publication.autocreate.mode", "disabled", ""
    yield "interval.handling.mode", "string", "By default months become 30.4375 days"


def _mysql(place: DatabaseEndpoint, names: ConnectorNames) -> Iterator[Line]:
    kind = "mariadb.MariaDbConnector" if names.is_mariadb else "mysql.MySqlConnector"
    yield "connector.class", f"io.debezium.connector.{kind}", ""
    yield from _login(place, names)
    low, high = _SERVER_IDS
    server_id = low + zlib.crc32(names.prefix.encode()) % (high - low)
    yield "database.server.id", str(server_id), "No other server or reader of the binary log may have this id"
    yield "database.include.list", re.escape(place.database), ""
    yield "schema.history.internal.kafka.bootstrap.servers", names.bootstrap, ""
    yield (
        "schema.history.internal.kafka.topic",
        f"{names.prefix}.schema-history",
        "The connector's own. It must never lose a record, and has one partition",
    )
    yield "bigint.unsigned.handling.mode", "precise", "By default numbers above 9223372036854775807 become negative"
    yield "enable.time.adjuster", "false", "By default the years 1 to 99 become 1970 to 2069"
    if place.options:
        yield (
            "database.ssl.mode",
            "verify-full" if names.is_mariadb else "verify_identity",
            "The address has TLS options. Java reads them from database.ssl.truststore and database.ssl.keystore",
        )


def _common(names: ConnectorNames, tables: Sequence[SourceTable]) -> Iterator[Line]:
    yield "topic.prefix", names.prefix, "Topics are <topic.prefix>.<schema>.<table>. It must never change"
    listed = ",".join(f"{re.escape(table.schema)}\\.{re.escape(table.table)}" for table in tables)
    yield "table.include.list", listed, "Regular expressions"
    keys = ";".join(f"{_in_keys(table)}:{','.join(table.row_key)}" for table in tables if _is_keyed(table))
    if keys:
        yield "message.key.columns", keys, "Of tables without a primary key. By default their first unique index counts"
    yield "snapshot.mode", "initial", "All rows first, then changes"
    yield "skipped.operations", "none", "By default TRUNCATE is left out, and the rows stay at the sink"
    yield "decimal.handling.mode", "string", "Keeps every digit, NaN and the infinities"
    yield "heartbeat.interval.ms", "10000", "Lets the database discard log while these tables do not change"
    for side in ("key", "value"):
        yield f"{side}.converter", _JSON, ""
        yield (
            f"{side}.converter.schemas.enable",
            "true",
            "With the columns' types in the events, no value is ambiguous (docs/types.md)" if side == "key" else "",
        )
        yield (
            f"{side}.converter.replace.null.with.default",
            "false",
            "By default NULL in a column that has a DEFAULT arrives as the default" if side == "key" else "",
        )
    yield "topic.creation.default.partitions", "1", "More need topics that are created by hand. Changes go by key"
    yield "topic.creation.default.replication.factor", "-1", "The brokers' default"
    yield "topic.creation.default.cleanup.policy", "delete", "Changes must stay until they are applied"


def _is_keyed(table: SourceTable) -> bool:
    """Whether the records' key is that of a unique index, and can be named: the setting has no quotes.

    By default the connector takes the unique index whose name comes first, whether its columns may be NULL or not.
    """
    return bool(not table.key and table.row_key) and not any(map(_NOT_IN_KEYS.search, table.row_key))


def _in_keys(table: SourceTable) -> str:
    """The table as a regular expression without what separates the setting's parts."""
    names = (re.escape(table.schema), re.escape(table.table))
    return _SEPARATORS.sub(lambda found: f"\\x{ord(found[0][-1]):02x}", r"\.".join(names))
