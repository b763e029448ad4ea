"""A Delta sink with one table, for tests: what it has, and other processes that use it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import ChangeBatch, Claim
from headgate.sinks.delta.appended import OWN_COLUMNS
from headgate.sinks.delta.engine import Stamp, create
from headgate.sinks.delta.lake import Lake, position_key
from headgate.sinks.delta.sink import DeltaSink
from integration.sinks.contract import wait_until_frozen

HOLDER = Path(__file__).with_name("delta_holder.py")
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])


class DeltaBench:
    table = "shop.orders"

    def __init__(self, folder: Path, *, appends: bool) -> None:
        self.folder = folder / "lake"
        self.appends = appends
        self.points = ArmedPoints(folder / "points")
        self.lake = Lake(self.folder)
        schema = COLUMNS
        for name, type_ in OWN_COLUMNS.items() if appends else ():
            schema = schema.append(pa.field(name, type_))
        create(self.path, schema, {"headgate.key": '["id"]'})
        self.sink = self.another()

    @property
    def path(self) -> Path:
        return self.folder / "shop" / "orders"

    def another(self) -> DeltaSink:
        """The same sink as another process has it."""
        return DeltaSink(self.folder, appends=self.appends)

    def records(self) -> list[dict[str, object]]:
        """Every row, as Polars reads it."""
        import polars

        return polars.read_delta(str(self.path)).to_dicts()

    def rows(self) -> dict[int, str | None]:
        if not self.path.exists():
            return {}
        if not self.appends:
            found = [(int(str(row["id"])), row["value"]) for row in self.records()]
            assert len(dict(found)) == len(found), "a key is there twice"
            return dict(found)  # type: ignore[arg-type]
        rows: dict[int, str | None] = {}
        places = []
        order = sorted(self.records(), key=lambda row: (row["_partition"], row["_offset"]))
        for row in order:
            places.append((row["_partition"], row["_offset"], row["id"]))
            rows.pop(int(str(row["id"])), None)
            if row["_operation"] == "upsert":
                rows[int(str(row["id"]))] = row["value"]  # type: ignore[assignment]
        return rows

    def version(self) -> int:
        return DeltaTable(self.path).version()

    def execute(self, statement: str) -> list[tuple]:
        raise NotImplementedError

    def drop(self) -> None:
        shutil.rmtree(self.path)

    def restore(self, claim: Claim, positions: Positions, epoch: Epoch | None = None) -> None:
        """As a folder from a backup would be."""
        to = epoch or claim.epoch
        ledger, holdings = self.lake.ledger(self.table).read()
        holding = holdings.of(claim.identity.cluster_id, claim.identity.feed_id, claim.topic)
        assert holding is not None
        rows = {
            partition: msgspec.structs.replace(holding.rows[partition], epoch=(to.owner_rev, to.n))
            for partition in positions
        }
        restored = msgspec.structs.replace(holding, rows=holding.rows | rows)
        self.lake.ledger(self.table).write(ledger, holdings.with_(restored))
        table = self.lake.table(self.table)
        assert table is not None
        keys = {position_key(claim, holding.rows[each].incarnation, each): at for each, at in positions.items()}
        table.mark(Stamp(keys))

    def run(self, batch: ChangeBatch, variables: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """A process that applies the batch and prints what became of it."""
        packed = msgspec.msgpack.encode(batch).hex()
        command = [sys.executable, str(HOLDER), str(self.folder), "append" if self.appends else "upsert", packed]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(variables or {})})

    def freeze_at(self, point: CrashPoint, batch: ChangeBatch) -> "subprocess.Popen[str]":
        self.points.arm(point)
        return wait_until_frozen(self.run(batch, self.points.variables))

    def freeze_while_applying(self, batch: ChangeBatch) -> "subprocess.Popen[str]":
        return self.freeze_at(CrashPoint.ROWS_SENT, batch)
