"""Where a feed may have Iceberg tables written."""

from pathlib import Path

import pytest

from headgate.config.feed import SinkSpec
from headgate.config.secrets import ALLOWED_FOLDERS
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.iceberg.address import address_of, place_of
from headgate.sinks.registry import open_sink


@pytest.mark.parametrize(
    ("dsn", "why"),
    [
        ("", "Write it as sqlite:////folder/catalog.db"),
        ("postgresql://user:secret@db/lake", "only SQL catalogs in a SQLite file are supported"),
        ("http://catalog:8181", "only SQL catalogs in a SQLite file are supported"),
        ("sqlite:///lake/catalog.db", "with four slashes"),
        ("sqlite://lake/catalog.db", "with four slashes"),
        ("sqlite:////lake/../catalog.db", "not an absolute path"),
        ("sqlite:////lake/catalog.db?warehouse=lake", "warehouse is not an absolute path"),
        ("sqlite:////lake/catalog.db?catalog=a/b", "catalog must be a name"),
        ("sqlite:////lake/catalog.db?catalogue=x", "did you mean catalog"),
    ],
)
def test_an_address_that_is_not_valid_is_refused_and_not_quoted(dsn: str, why: str) -> None:
    with pytest.raises(SinkRefusedError, match=why) as refused:
        address_of(dsn)
    assert "secret" not in str(refused.value)


def test_one_catalog_has_one_spelling() -> None:
    short, long = "sqlite:////lake/catalog.db", "sqlite:////lake/catalog.db?warehouse=/lake/&catalog=default"
    assert address_of(short).text == address_of(long).text
    assert place_of(address_of(short).text) == place_of(short)


def test_only_folders_of_the_operators_list_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, other = tmp_path / "lake", tmp_path / "other"
    monkeypatch.setenv(ALLOWED_FOLDERS, str(allowed))
    open_sink(SinkSpec(type="iceberg", dsn=f"sqlite:///{allowed}/c.db"))
    for dsn in (f"sqlite:///{other}/c.db", f"sqlite:///{allowed}/c.db?warehouse={other}"):
        with pytest.raises(SinkRefusedError, match=rf"is not below a folder in {ALLOWED_FOLDERS}"):
            open_sink(SinkSpec(type="iceberg", dsn=dsn))
