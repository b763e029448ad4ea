"""Neighbours of the cases: inputs of their kinds that were not reported, one per line of a file in ``neighbours/``.

A line has records, the columns of a table in each sink, and what is right there: the rows, and which records are
refused and why.
"""

import itertools
import json
import re
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from headgate.replication.task_run import kept
from support.cases import CASES, Player

NEIGHBOURS: Final = CASES / "neighbours"
OMITTED: Final = " … "
"""Between parts of an expected error. They must be in the error, in this order."""

Kind = Literal["pg", "my"]
Execute = Callable[[str], list[tuple[Any, ...]]]
Rows = tuple[tuple[str | None, ...], ...]

_tables = itertools.count(1)


class Outcome(msgspec.Struct, frozen=True):
    """What a sink has in the end, and number of a refused record → its error, or what is expected of that."""

    rows: Rows = ()
    refused: dict[int, str] = {}


class Neighbour(msgspec.Struct, frozen=True):
    """One line. ``columns``: as in CREATE TABLE, for the sinks that have such types.

    ``shown`` are the columns to compare, those in ``hexed`` in hexadecimal digits. ``source``, ``sink``, ``feed`` are
    options. ``before``: statements that the columns need.
    """

    name: str
    records: tuple[tuple[str | None, str | None], ...]
    columns: dict[Kind, str]
    want: dict[Kind, Outcome] = {}
    shown: tuple[str, ...] = ("id", "v")
    hexed: tuple[str, ...] = ()
    source: dict[str, Any] = {}
    sink: dict[str, Any] = {}
    feed: dict[str, Any] = {}
    before: dict[Kind, tuple[str, ...]] = {}

    def play(self, kind: Kind, dsn: str, execute: Execute, *, at_once: bool) -> Outcome:
        """Apply the records to a new table, in one batch or each in a batch of its own, without those refused."""
        schema = "public" if kind == "pg" else dsn.rsplit("/", 1)[1]
        table = f"n{next(_tables)}"
        execute(f"CREATE TABLE {table} ({self.columns[kind]})")
        sink = {"type": "postgresql" if kind == "pg" else "mysql", "dsn": dsn, **self.sink}
        spec = {"feed": "shop", "source": {"topics": ["t"], **self.source}, "sink": sink, **self.feed}
        player = Player(spec, f"{schema}.{table}")
        try:
            refused = self._applied_at_once(player) if at_once else self._applied_one_by_one(player)
        finally:
            kept.purge(0.0, live=())  # a session of each feed would be one too many for the server
        return Outcome(tuple(map(tuple, execute(self._query(kind, table)))), refused)

    def _applied_at_once(self, player: Player) -> dict[int, str]:
        result = player.apply([(offset, *as_bytes(record)) for offset, record in enumerate(self.records)])
        return {} if result.error is None else {result.positions.get(0, 0): f"{result.error_code}: {result.error}"}

    def _applied_one_by_one(self, player: Player) -> dict[int, str]:
        refused: dict[int, str] = {}
        position = 0
        for number, record in enumerate(self.records):
            result = player.apply([(position, *as_bytes(record))])
            if result.error is None:
                position += 1
            else:
                refused[number] = f"{result.error_code}: {result.error}"
        return refused

    def _query(self, kind: Kind, table: str) -> str:
        texts = []
        for name in self.shown:
            if kind == "pg":
                texts.append(f'"{name}"::text')
            else:
                texts.append(f"HEX(`{name}`)" if name in self.hexed else f"CAST(`{name}` AS CHAR)")
        order = ", ".join(map(str, range(1, len(texts) + 1)))
        return f"SELECT {', '.join(texts)} FROM {table} ORDER BY {order}"


def as_bytes(record: tuple[str | None, str | None]) -> tuple[bytes | None, bytes | None]:
    """A record's key and value. Half a surrogate pair stands for a byte that is not UTF-8."""
    key, value = (None if part is None else part.encode(errors="surrogateescape") for part in record)
    return key, value


def neighbours() -> dict[str, Neighbour]:
    """All of them, by file and name."""
    return {
        f"{file.stem}: {each.name}": each
        for file in sorted(NEIGHBOURS.glob("*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
        for each in [msgspec.convert(json.loads(line), Neighbour, strict=False)]
    }


def differences(found: Outcome, right: Outcome) -> list[str]:
    """What is not right, for people."""
    wrong = [] if found.rows == right.rows else [f"rows are {found.rows}, not {right.rows}"]
    if found.refused.keys() != right.refused.keys():
        wrong.append(f"refused are {found.refused}, not {sorted(right.refused)}")
    return wrong + [
        f"record {number} is refused by {found.refused[number]!r}, not {expected!r}"
        for number, expected in right.refused.items()
        if number in found.refused and not _is_said(expected, found.refused[number])
    ]


def _is_said(expected: str, error: str) -> bool:
    return re.search(".*".join(map(re.escape, expected.split(OMITTED))), error, re.DOTALL) is not None
