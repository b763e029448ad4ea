"""Whatever takes an address of a database shows what one looks like, in the same words."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import typer
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.cli.source import target_at
from headgate.config.source_spec import SourceDatabase
from headgate.databases.address import FORMS, AddressOptions, Target
from headgate.databases.connections import Use
from headgate.databases.errors import DatabaseError
from headgate.databases.kinds import kind_of
from headgate.sources.database import source_target
from headgate.verify.sides import open_side

OPTIONS: Final = AddressOptions("--source", "--source-password-file", "source")


@pytest.mark.parametrize("given", ["nonsense", "http://x", "oracle://me@db/shop", "mysq://me@db/shop"])
@pytest.mark.parametrize("connections", [None, "connections: {shop: {kind: mysql, address: mysql://m@h/d, use: []}}"])
def test_what_is_not_an_address(
    given: str, connections: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADGATE_CONNECTIONS", raising=False)
    if connections is not None:
        (tmp_path / "connections.yaml").write_text(connections)
        monkeypatch.setenv("HEADGATE_CONNECTIONS", str(tmp_path / "connections.yaml"))
    for command in (["source", "check", given], ["feed", "init", "--source", given, "--sink", "mysql://me@h/d"]):
        done = CliRunner().invoke(app, command)
        assert (FORMS in done.output, done.exit_code) == (True, 33), done.output


@pytest.mark.parametrize("given", ["mysql:/x", "me@db/shop", "me:secret@db"])
def test_what_may_hold_a_password_is_not_repeated(given: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        target_at(given, None, OPTIONS, Use.SOURCE)
    assert FORMS in str(refused.value)
    assert given not in str(refused.value)


ADDRESS_TAKERS: Final[dict[str, Callable[[str], object]]] = {
    "verify --source-dsn": lambda dsn: open_side(Target(dsn, None, OPTIONS)),
    "source.database.dsn": lambda dsn: open_side(source_target(SourceDatabase(dsn=dsn))),
    "any other": lambda dsn: kind_of(dsn, OPTIONS),
}


@pytest.mark.parametrize("taker", ADDRESS_TAKERS)
def test_addresses_that_cannot_be_names(taker: str) -> None:
    for dsn in ("nonsense", "me@db/shop", "ftp://me@db/shop"):
        with pytest.raises(DatabaseError) as refused:
            ADDRESS_TAKERS[taker](dsn)
        assert FORMS in str(refused.value)


def test_a_scheme_that_is_far_from_all() -> None:
    for dsn, is_near in (("oracle://me@db/shop", False), ("mysq://me@db/shop", True)):
        with pytest.raises(DatabaseError) as refused:
            kind_of(dsn, OPTIONS)
        assert ("Did you mean" in str(refused.value)) is is_near
