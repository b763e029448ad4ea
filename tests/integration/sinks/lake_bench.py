"""A lake sink with one table, for tests: what all kinds have, and other processes that use it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.config.sink_spec import SinkSpec
from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import ChangeBatch, Claim
from headgate.sinks.lake.sink import LakeSink
from headgate.sinks.lake.tables import Lake, Stamp, position_key
from headgate.sinks.registry import open_sink
from headgate.sinks.row_copying import CopiedRows
from integration.sinks.contract import wait_until_frozen

HOLDER = Path(__file__).with_name("lake_holder.py")


class AnyLakeBench:
    """``spec``: the sink's. ``table_class``: what commits are made by."""

    table = "shop.orders"
    lake: Lake
    table_class: type

    def __init__(self, folder: Path, spec: Mapping[str, object], *, appends: bool) -> None:
        self.root = folder
        self.folder = folder / "lake"
        self.folder.mkdir(exist_ok=True)
        self.appends = appends
        self.points = ArmedPoints(folder / "points")
        self.spec = {**spec, "mode": "append" if appends else "upsert"}

    def another(self) -> LakeSink:
        return self.opened()

    def opened(self, **changes: object) -> LakeSink:
        """Another feed's sink."""
        found = open_sink(SinkSpec.model_validate({**self.spec, **changes}))
        assert isinstance(found, LakeSink)
        return found

    def records(self) -> list[dict[str, object]]:
        raise NotImplementedError

    def size(self) -> int:
        return len(self.records())

    def rows(self) -> dict[int, str | None]:
        """What the table holds; of a change log, what its changes lead to."""
        found = self.records()
        if not self.appends:
            values = {int(str(row["id"])): row["value"] for row in found}
            assert len(values) == len(found), "a key is there twice"
            return values  # type: ignore[return-value]
        rows: dict[int, str | None] = {}
        for row in sorted(
            found, key=lambda row: (row["_topic_partition"], row["_offset"], row["_operation"] != "read")
        ):
            rows.pop(int(str(row["id"])), None)
            if row["_operation"] != "delete":
                rows[int(str(row["id"]))] = row["value"]  # type: ignore[assignment]
        return rows

    def execute(self, statement: str) -> list[tuple]:
        raise NotImplementedError

    def restore(self, claim: Claim, positions: Positions, epoch: Epoch | None = None) -> None:
        """As a lake from a backup would be."""
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
        table.mark(
            Stamp({position_key(claim, holding.rows[each].incarnation, each): at for each, at in positions.items()})
        )

    def run(
        self, batch: ChangeBatch | CopiedRows, variables: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """A process that applies the batch, or copies the rows, and prints what became of it."""
        given = [msgspec.msgpack.encode(batch).hex(), type(batch).__name__]
        command = [sys.executable, str(HOLDER), json.dumps(self.spec), *given]
        environment = {**os.environ, **(variables or {})}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def freeze_at(self, point: CrashPoint, batch: ChangeBatch | CopiedRows) -> "subprocess.Popen[str]":
        self.points.arm(point)
        return wait_until_frozen(self.run(batch, self.points.variables))

    def freeze_while_applying(self, batch: ChangeBatch) -> "subprocess.Popen[str]":
        return self.freeze_at(CrashPoint.ROWS_SENT, batch)

    @contextmanager
    def answers_lost(self) -> Iterator[None]:
        def losing(name: str) -> Any:
            commit = getattr(self.table_class, name)

            def committed(*arguments: object) -> None:
                commit(*arguments)
                raise OSError("the connection was lost")

            return patch.object(self.table_class, name, committed)

        with losing("append"), losing("upsert"):
            yield
