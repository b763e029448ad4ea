"""What the statements of a test cost the database: each is planned, and run, a moment before as the server explains it.

Statements are caught in the drivers, so that whatever sends one is asked, in its own session with its own settings.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import psycopg
import pymysql
from psycopg.sql import Composable

_COPY = "COPY ("


class Read(NamedTuple):
    """One statement. ``rows`` of the tables (or entries of their indexes) that the server has read for it.

    ``pages`` (PostgreSQL's): an index that is walked for one of its later columns shows only in these.
    """

    statement: str
    rows: int
    sorts: bool
    pages: int = 0


@contextmanager
def planned_reads(tables: Sequence[str]) -> Iterator[list[Read]]:
    """The statements that read one of these tables, while the block lasts."""
    found: list[Read] = []
    with _at_postgresql(tables, found), _at_mariadb(tables, found):
        yield found


# --- PostgreSQL ---


@contextmanager
def _at_postgresql(tables: Sequence[str], found: list[Read]) -> Iterator[None]:
    run, opened, copied = psycopg.Connection.execute, psycopg.ServerCursor.execute, psycopg.Cursor.copy

    def ask(connection: Any, query: Any, parameters: Any, declare: str = "") -> None:
        text = query.as_string(connection) if isinstance(query, Composable) else str(query)
        text = text.removeprefix(_COPY).removesuffix(") TO STDOUT")
        if not (text.startswith("SELECT") and any(f'"{table}"' in text for table in tables)):
            return
        with connection.transaction(force_rollback=True), connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {declare}{text}", parameters)
            ((plans,),) = cursor.fetchall()
        nodes = list(_nodes(plans[0]["Plan"]))
        sorts = any("Sort" in node["Node Type"] for node in nodes)
        pages = sum(int(nodes[0][f"Shared {what} Blocks"]) for what in ("Hit", "Read"))
        found.append(Read(text, round(sum(map(_rows_of, nodes))), sorts, pages))

    def execute(connection: Any, query: Any, params: Any = None, **more: Any) -> Any:
        ask(connection, query, params)
        return run(connection, query, params, **more)

    def open_cursor(cursor: Any, query: Any, params: Any = None, **more: Any) -> Any:
        ask(cursor.connection, query, params, "DECLARE explained CURSOR FOR ")
        return opened(cursor, query, params, **more)

    def copy(cursor: Any, statement: Any, *more: Any, **options: Any) -> Any:
        ask(cursor.connection, statement, None)
        return copied(cursor, statement, *more, **options)

    with (
        patch.object(psycopg.Connection, "execute", execute),
        patch.object(psycopg.ServerCursor, "execute", open_cursor),
        patch.object(psycopg.Cursor, "copy", copy),
    ):
        yield


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _rows_of(node: dict[str, Any]) -> float:
    """A bitmap's entries are read besides its rows. A join reads its rows again for those that it compares in vain."""
    if "Relation Name" not in node and node["Node Type"] != "Bitmap Index Scan":
        return float(node.get("Rows Removed by Join Filter", 0) * node["Actual Loops"])
    removed = (node.get(f"Rows Removed by {what}", 0) for what in ("Filter", "Index Recheck"))
    return float((node["Actual Rows"] + sum(removed)) * node["Actual Loops"])


# --- MariaDB ---


@contextmanager
def _at_mariadb(tables: Sequence[str], found: list[Read]) -> Iterator[None]:
    run = pymysql.cursors.Cursor.execute

    def execute(cursor: Any, query: Any, args: Any = None) -> int:
        if query.startswith("SELECT") and any(f"`{table}`" in query for table in tables):
            with cursor.connection.cursor(pymysql.cursors.Cursor) as other:
                run(other, f"ANALYZE FORMAT=JSON {query}", args)
                ((text,),) = other.fetchall()
            plan = json.loads(text)
            read = (each for each in _tables(plan) if each["table_name"].strip("`") in {*tables, "a", "b"})
            rows = sum((each["r_rows"] or 0) * each["r_loops"] for each in read)
            found.append(Read(query, round(rows), '"filesort"' in text))
        return run(cursor, query, args)

    with patch.object(pymysql.cursors.Cursor, "execute", execute):
        yield


def _tables(plan: Any) -> Iterator[dict[str, Any]]:
    if isinstance(plan, dict):
        if "table_name" in plan and "r_rows" in plan:
            yield plan
        for value in plan.values():
            yield from _tables(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _tables(value)
