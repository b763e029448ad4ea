"""Keep a SQLite table in step with a change log: each change is applied once, whatever is killed.

    python examples/follow_change_log.py localhost:9092 orders orders.sqlite

The positions are stored in the transaction that applies the changes. So a process that is killed between the two
repeats nothing, and the next one continues behind the last change that was applied.
"""

import argparse
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing

from headgate.generation import ChangeReader, ReadChange

TABLES = """
CREATE TABLE IF NOT EXISTS changes (key BLOB PRIMARY KEY, value BLOB);
CREATE TABLE IF NOT EXISTS positions (stream TEXT PRIMARY KEY, next_offset INTEGER NOT NULL);
"""


def load_positions(database: sqlite3.Connection) -> dict[str, int]:
    """Where the process before this one was; empty at the first start."""
    return dict(database.execute("SELECT stream, next_offset FROM positions"))


def apply(database: sqlite3.Connection, changes: Sequence[ReadChange], positions: Mapping[str, int]) -> None:
    """Apply changes and store positions, both or neither."""
    with database:
        for change in changes:
            if change.value is None:
                database.execute("DELETE FROM changes WHERE key = ?", (change.key,))
            else:
                database.execute("REPLACE INTO changes VALUES (?, ?)", (change.key, change.value))
        database.executemany("REPLACE INTO positions VALUES (?, ?)", positions.items())


def main() -> None:
    """Follow until interrupted, or for a number of changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", help="host:port of a broker")
    parser.add_argument("change_log", help="name of the change log")
    parser.add_argument("file", help="SQLite database, created if it does not exist")
    parser.add_argument("--cluster", default="headgate", help="prefix of the control topics' names")
    parser.add_argument("--reader", default="sqlite", help="name of this reader")
    parser.add_argument("--changes", type=int, help="stop after so many changes")
    given = parser.parse_args()
    left = given.changes
    with closing(sqlite3.connect(given.file)) as database:
        database.executescript(TABLES)
        with ChangeReader.open(
            given.change_log,
            given.reader,
            bootstrap=given.bootstrap,
            cluster=given.cluster,
            positions=load_positions(database),
        ) as reader:
            while left is None or left > 0:
                changes = reader.poll(1.0)
                apply(database, changes, reader.moved)
                reader.commit()
                if left is not None:
                    left -= len(changes)
            for gap in reader.gaps:
                print(
                    f"not read, because it was {gap.what}: stream {gap.stream}, offsets {gap.first} to {gap.last - 1}"
                )


if __name__ == "__main__":
    main()
