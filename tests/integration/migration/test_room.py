"""Room on the disk is looked at where the table's file is on this machine, as a real server names it."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headgate.migration.core import effects as fx
from headgate.migration.shell.work import open_strategy
from headgate.migration.strategies.contract import RefusedError, Stored
from headgate.migration.strategies.room import check_room
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.records.migration import MigrationStrategy
from integration.migration.test_instant import table
from integration.migration.test_under_a_feed import SAME, Table

__all__ = ["table"]

pytestmark = pytest.mark.integration


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize("free", [0, 1 << 40])
def test_a_copy_that_has_no_room_is_refused(table: Table, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    looked: list[Path] = []

    def told(path: Any) -> Usage:
        looked.append(Path(path))
        return Usage(1 << 40, 0, free)

    monkeypatch.setattr(shutil, "disk_usage", told)
    if table.kind == "postgresql":
        table.run("CREATE PUBLICATION captured FOR TABLE items")
    spec = table.spec(MigrationStrategy.ONLINE, SAME[table.kind])
    with closing(open_strategy("m", spec, cluster_id=NO_CLUSTER)) as strategy:
        examined = strategy.examine(spec, None)
    if not looked:
        pytest.skip("the server is elsewhere: it does not say how much room it has")
    assert looked[0].is_file()
    if free:
        assert isinstance(examined, fx.Examined)
    else:
        assert isinstance(examined, fx.ExamineRefused)
        assert "make room" in examined.reason
        assert str(looked[0]) in examined.reason


def test_what_cannot_be_known_is_not_refused(tmp_path: Path) -> None:
    file = tmp_path / "items.ibd"
    file.write_bytes(b"")
    with pytest.raises(RefusedError, match="make room"):
        check_room("items", Stored("127.0.0.1", str(file), 1 << 60))
    check_room("items", None)
    check_room("items", Stored("db.example", str(file), 1 << 60))
    check_room("items", Stored("localhost", str(tmp_path / "elsewhere"), 1 << 60))
