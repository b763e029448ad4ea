"""Rows on their way from tasks to the driver, as Arrow.

Columns are numbered, ``c0`` for the table's first, because a table may have any names. Of tables with
``mode: upsert`` there are also: ``gone``, the row is deleted · ``a0``, the event does not have the first column, whose
value is then what a new row has · ``partial``, it leaves out columns that have not changed · ``at``, the offset.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from headgate.formats.change import ABSENT, Change, Operation
from headgate.sinks.lake.shape import LakeShape

__all__ = ["GONE", "PARTIAL", "GatheredRows", "Payload", "absent_column", "column", "pack", "unpack"]

GONE: Final = "gone"
PARTIAL: Final = "partial"
PARTITION: Final = "partition"
OFFSET: Final = "offset"
_ABOUT: Final = b"headgate"
NOTHING: Final[Mapping[str, object]] = {}


def column(number: int) -> str:
    """The name of the table's column with that number."""
    return f"c{number}"


def absent_column(number: int) -> str:
    """The flag that an event does not have it."""
    return f"a{number}"


class About(msgspec.Struct, frozen=True):
    """What the rows were made for."""

    types: dict[str, str]
    key: tuple[str, ...]


class Payload(msgspec.Struct, frozen=True):
    """What a task has staged."""

    rows: pa.Table
    about: About


class GatheredRows:
    """Rows that are being gathered."""

    def __init__(self, shape: LakeShape) -> None:
        self._shape = shape
        self._names = list(shape.columns)
        self._values: list[list[object]] = [[] for _ in shape.columns]
        self._absent: dict[int, list[int]] = {}
        self._gone: list[bool] = []
        self._partial: list[bool] = []
        self._places: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._gone)

    def flags(self, name: str) -> Sequence[bool]:
        """The values of ``gone`` or ``partial``."""
        return self._gone if name == GONE else self._partial

    def add(
        self, values: Sequence[object], change: Change, firsts: Mapping[str, object] = NOTHING, *, is_partial: bool
    ) -> None:
        """One row; ABSENT for columns that the event does not have. ``firsts``: what they have if the row is new."""
        number = len(self._gone)
        is_gone = change.operation is Operation.DELETE
        for at, value in enumerate(values):
            if value is ABSENT:
                if not is_gone:
                    self._absent.setdefault(at, []).append(number)
                self._values[at].append(None if is_gone else firsts.get(self._names[at]))
            else:
                self._values[at].append(value)
        self._gone.append(is_gone)
        self._partial.append(is_partial)
        self._places.append((change.partition, change.offset))

    def table(self) -> pa.Table:
        """All rows."""
        arrays = {
            column(number): pa.array(values, type_)
            for number, (values, type_) in enumerate(zip(self._values, self._shape.columns.values(), strict=True))
        }
        if self._shape.appends:
            return pa.table(arrays)
        for at, rows in sorted(self._absent.items()):
            absent = set(rows)
            arrays[absent_column(at)] = pa.array([number in absent for number in range(len(self))], pa.bool_())
        arrays[GONE] = pa.array(self._gone, pa.bool_())
        if any(self._partial):
            arrays[PARTIAL] = pa.array(self._partial, pa.bool_())
            arrays[PARTITION] = pa.array([partition for partition, _ in self._places], pa.int32())
            arrays[OFFSET] = pa.array([offset for _, offset in self._places], pa.int64())
        return pa.table(arrays)


def pack(rows: pa.Table, shape: LakeShape, key: Sequence[str]) -> bytes:
    """As it travels; nothing for no rows."""
    if not rows.num_rows:
        return b""
    about = msgspec.json.encode(About(shape.types, tuple(key)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema.with_metadata({_ABOUT: about})) as writer:
        writer.write_table(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


_ALIGNED: Final = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
"""Rust's libraries need decimals at multiples of 16 bytes. Arrow itself is content with 8, also as DataTypeSpecific."""


def unpack(payload: bytes) -> Payload:
    """What ``pack`` packed."""
    with pa.ipc.open_stream(payload, options=_ALIGNED) as reader:
        about = msgspec.json.decode(reader.schema.metadata[_ABOUT], type=About)
        return Payload(reader.read_all(), about)
