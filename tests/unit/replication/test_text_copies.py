"""Which tables are copied as the source's own texts."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.databases.key_ranges import Chunk
from headgate.databases.row_source import KeyForm
from headgate.records.row_copies import RowCopy
from headgate.replication.row_copy import declared_texts
from headgate.tables.paired_tables import PairedTable

WHOLE = RowCopy(keys=None)
PAIRED = PairedTable(
    columns={"v": "varchar", "id": "int8"}, computed=(), key=("id",), source_key=("id",), forms=(KeyForm.INTEGER,)
)


class Lines:
    """A source that gives lines."""

    sink_type = "postgresql"

    def declared(self, _table: str) -> dict[str, str]:
        return {"v": "character varying(9)", "id": "bigint", "unpublished": "text"}

    def lines_within(self, _table: str, _columns: Sequence[str], _key: Sequence[str], _chunk: Chunk) -> Iterator[bytes]:
        raise NotImplementedError


def texts(
    *,
    sink: str = "postgresql",
    shapes: bool = False,
    source: Any = None,
    table: str = "public.t",
    paired: PairedTable = PAIRED,
    rows: RowCopy = WHOLE,
) -> dict[str, str]:
    feed: Any = SimpleNamespace(shapes=shapes, sink=SimpleNamespace(type=sink))
    return declared_texts(feed, Lines() if source is None else source, table, paired, rows)


def test_a_whole_table_is_copied_by_its_types_with_the_key_first() -> None:
    assert list(texts().items()) == [("id", "bigint"), ("v", "character varying(9)")]


@pytest.mark.parametrize(
    "other",
    [
        {"sink": "mysql"},
        {"shapes": True},
        {"source": SimpleNamespace()},
        {"table": "public.t@tenant=1"},
        {"rows": replace(WHOLE, where="id > 3")},
        {"rows": replace(WHOLE, keys=(("1",),))},
        {"paired": replace(PAIRED, computed=("w",))},
        {"paired": replace(PAIRED, forms=(KeyForm.TEXT,))},
        {"paired": replace(PAIRED, columns={"id": "int8", "v": "bytea"})},
        {"paired": replace(PAIRED, columns={"v": "varchar"})},
        {"paired": replace(PAIRED, columns={"v": "varchar", "id": "int8", "in no line": "point"})},
    ],
    ids=str,
)
def test_everything_else_is_copied_as_rows(other: dict[str, Any]) -> None:
    assert texts(**other) == {}
