"""The feed for the tables of a source, as commented YAML.

A table without a primary key has options of its own: the key of a unique index, or none, and then inserts only.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import yaml

from headgate.capture.connector import topic_of
from headgate.capture.excluded_columns import excluded_columns
from headgate.capture.tables import SourceTable
from headgate.databases.errors import DatabaseRefusedError
from headgate.formats.topic_names import topic_part
from headgate.records.identifiers import show_identifier, table_spelling
from headgate.tables.plan import ChosenTypes

__all__ = ["FeedAddress", "FeedEnds", "feed_file"]


class FeedAddress(msgspec.Struct, frozen=True):
    """A database as a feed names it: by a connection, or by an address with the file that has its password."""

    kind: str
    dsn: str | None = None
    connection: str | None = None
    password_file: Path | None = None


class FeedEnds(msgspec.Struct, frozen=True, kw_only=True):
    """The two databases of a feed, and the types that the user has chosen for columns at the sink."""

    source: FeedAddress
    sink: FeedAddress
    types: ChosenTypes = {}


_HEAD: Final = """\
# Feed {feed}, made by `headgate feed init`. Every option is in docs/configuration.md.
#   headgate feed create {feed}.yaml --dry-run     checks it, and writes nothing
#   headgate feed create {feed}.yaml               starts it
"""

_OF_PATTERNS: Final = frozenset("*?[]()|\\^$")
"""What makes a table's name look like a pattern."""

_SNAPSHOT: Final = """\
# For a connector without a snapshot of its own (snapshot.mode=no_data): remove `start`, and Headgate copies the rows.
# snapshot: initial
"""

_TAIL: Final = """\
# A change that cannot be applied stops its table. With `quarantine` it is set aside, and the table continues.
on_bad_change: fail
"""


def feed_file(name: str, prefix: str, tables: Sequence[SourceTable], ends: FeedEnds) -> str:
    """The file's text. Raises DatabaseRefusedError where two tables have one topic."""
    _check_topics(prefix, tables)
    lines = [_HEAD.format(feed=name), f"feed: {_scalar(name)}\n", "source:\n"]
    lines += ["  topics:                  # of the connector: <topic.prefix>.<schema>.<table>\n"]
    lines += [f"    - {_scalar(topic_of(prefix, table))}\n" for table in tables]
    lines += ["  format: debezium-json\n", "  start: earliest          # the connector's snapshot comes first\n"]
    odd = [table for table in tables if not _is_plain(table)]
    if odd:
        lines += ["  topic_tables:            # the topic is not named like its table\n"]
        lines += [f"    {_scalar(topic_of(prefix, table))}: {_scalar(_exactly(table))}\n" for table in odd]
    lines += ["  database:                # coordinators and agents read the tables' definitions here\n"]
    lines += [f"  {line}" for line in _address(ends.source)]
    copied = _SNAPSHOT if all(table.row_key for table in tables) else ""
    return "".join([*lines, *_sink(tables, ends), *_tables(tables, ends.sink.kind), copied, _TAIL])


def _check_topics(prefix: str, tables: Sequence[SourceTable]) -> None:
    named: defaultdict[str, list[str]] = defaultdict(list)
    for table in tables:
        named[topic_of(prefix, table)].append(table.name)
    for topic, names in named.items():
        if len(names) > 1:
            raise DatabaseRefusedError(
                f"{' and '.join(names)} would share topic {topic}, because Debezium replaces what a topic's name may "
                "not contain. Capture them by two connectors: choose the tables of each with --tables"
            )


def _is_plain(table: SourceTable) -> bool:
    """Whether the last two parts of its topic's name are its own."""
    names = (table.schema, table.table)
    return all(topic_part(name) == name and "." not in name for name in names)


def _address(given: FeedAddress) -> Iterator[str]:
    if given.connection is not None:
        yield f"  connection: {_scalar(given.connection)}    # of the file HEADGATE_CONNECTIONS\n"
    else:
        yield f"  dsn: {_scalar(given.dsn or '')}    # without a password: feeds are stored on a topic\n"
    if given.password_file is not None:
        yield f"  password_file: {_scalar(str(given.password_file))}    # in HEADGATE_SECRETS_DIR of the services\n"


def _sink(tables: Sequence[SourceTable], ends: FeedEnds) -> Iterator[str]:
    yield f"sink:\n  type: {ends.sink.kind}\n"
    yield from _address(ends.sink)
    yield '  table: "{schema}.{table}"    # as at the source\n'
    yield "  tables: create           # creates missing tables. `evolve` also alters tables, `existing` does neither\n"
    yield from _types(tables, ends.types)
    yield "  foreign_keys: enforce    # `ignore` if rows may arrive before those that they refer to\n"


def _tables(tables: Sequence[SourceTable], sink: str) -> Iterator[str]:
    """Those that are not like most: by their name, their key, or a column."""
    own = [(table, options) for table in tables if (options := list(_options(table, sink)))]
    if own:
        yield "tables:                    # options of single tables\n"
    for table, options in own:
        yield f"  {_scalar(_exactly(table))}:\n"
        yield from (f"    {option}\n" for option in options)


def _options(table: SourceTable, sink: str) -> Iterator[str]:
    if not _is_plain(table):
        name = table_spelling(table.schema, table.table).replace("{", "{{").replace("}", "}}")
        yield f"table: {_scalar(name)}"
    if not table.row_key:
        yield "keyless: append        # it has no key: inserts only"
    elif not table.key:
        yield f"key: [{', '.join(map(_scalar, table.row_key))}]    # of a unique index: it has no primary key"
    if excluded := excluded_columns(table, sink):
        why = " and ".join(dict.fromkeys(excluded.values()))
        yield f"columns: {{exclude: [{', '.join(map(_scalar, excluded))}]}}    # {why}"


def _exactly(table: SourceTable) -> str:
    """The table's name where patterns are taken, too: within double quotes a star is a star."""
    if _OF_PATTERNS.isdisjoint(table.name):
        return table.name
    return ".".join('"' + part.replace('"', '""') + '"' for part in (table.schema, table.table))


def _types(tables: Sequence[SourceTable], types: ChosenTypes) -> Iterator[str]:
    """Those of the feed's own tables: it refuses others."""
    own = [(table.schema, table.table) for table in tables if types.get((table.schema, table.table))]
    if own:
        yield "  types:                   # of columns in tables that Headgate creates\n"
    for place in own:
        for column, chosen in types[place].items():
            yield f"    {_scalar(show_identifier((*place, column)))}: {_scalar(chosen)}\n"


def _scalar(text: str) -> str:
    """As YAML reads it back: plain where that is safe, else in the quotes of JSON."""
    is_safe = text.isascii() and text.replace("_", "").replace("-", "").replace(".", "").replace("/", "").isalnum()
    return text if is_safe and yaml.safe_load(text) == text else json.dumps(text, ensure_ascii=False)
