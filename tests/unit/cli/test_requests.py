"""A request that a command makes can always be written."""

import getpass

import pytest

from headgate.cli.exit_codes import CommandError, ExitCode
from headgate.cli.requests import operation
from headgate.eventlog.codec import encode
from headgate.records.base import Fact
from headgate.records.control import OperationKind
from headgate.records.fitting import TEXT_LENGTH_MAX
from headgate.records.keys import RequestKey


@pytest.mark.parametrize("user", ["x" * 2_000_000, "odd\udcff", "é" * TEXT_LENGTH_MAX])
def test_whoever_asks_may_have_any_name(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: user)
    request = operation(OperationKind.PAUSE_FEED, "shop")
    _, value = encode(Fact(RequestKey("r1"), request))
    assert value is not None
    assert len(value) < 5 * TEXT_LENGTH_MAX


@pytest.mark.parametrize("names", [("\udcff", "t", "a"), ("f", "\udcff", "a"), ("f", "t", "\ud800")])
def test_a_name_that_nothing_can_write_is_refused(names: tuple[str, str, str]) -> None:
    feed, table, agent = names
    with pytest.raises(CommandError, match="no text in UTF-8") as refused:
        operation(OperationKind.MOVE_TABLE, feed, table=table, agent=agent)
    assert refused.value.code is ExitCode.NOT_FOUND
