"""``headgate topic show``: garbage that is not shown any more is counted."""

from contextlib import contextmanager
from typing import Any

import pytest

from headgate.cli import topic as command
from headgate.cli.output import Output
from headgate.eventlog.log import Garbage, Partition
from headgate.eventlog.snapshot import GARBAGE_KEPT_MAX, Snapshot


@pytest.mark.parametrize(("count", "said"), [(GARBAGE_KEPT_MAX, ""), (GARBAGE_KEPT_MAX + 7, "7 older records")])
def test_garbage_beyond_what_is_kept_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], count: int, said: str
) -> None:
    snapshot = Snapshot()
    for offset in range(count):
        snapshot.take(Garbage(Partition("dispatch", 0), offset, "no record"))

    @contextmanager
    def connected(_cluster: Any) -> Any:
        yield None, None

    monkeypatch.setattr(command, "connected", connected)
    monkeypatch.setattr(command, "all_partitions", lambda *_: [])
    monkeypatch.setattr(command, "read_snapshot", lambda *_: snapshot)
    command.show("dispatch", output=Output.JSON, cluster=None)
    shown = capsys.readouterr()
    assert shown.out.count("no record") == GARBAGE_KEPT_MAX
    told = " ".join(shown.err.split())
    assert (said in told, "headgate topic tail dispatch --from-beginning" in told) == (True, bool(said))
