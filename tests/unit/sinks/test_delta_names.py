"""Where a feed may have Delta tables written."""

from pathlib import Path

import pytest

from headgate.config.secrets import ALLOWED_FOLDERS
from headgate.config.sink_spec import SinkSpec
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.delta.address import address_of
from headgate.sinks.lake.names import path_of
from headgate.sinks.registry import open_sink


@pytest.mark.parametrize(
    "dsn", ["/lake", "file://lake", "file:///a/../b", "file:///", "file:///a?b=c", "file:///a%2fb", ""]
)
def test_an_address_that_is_not_a_folder_is_refused(dsn: str) -> None:
    with pytest.raises(SinkRefusedError, match=r"Write it as file:///folder"):
        address_of(dsn)


@pytest.mark.parametrize("dsn", ["s3a://bucket/x", "abfss://c@a/x", "gs://b", "hdfs://n/x"])
def test_an_object_store_of_another_protocol_is_refused(dsn: str) -> None:
    with pytest.raises(SinkRefusedError, match=r"that speak S3's protocol\. Write such a place as s3://bucket/prefix"):
        address_of(dsn)


@pytest.mark.parametrize(
    "dsn",
    [
        "s3://",
        "s3://Bucket",
        "s3://b",
        "s3://bucket/a b",
        "s3://bucket//a",
        "s3://bucket/../x",
        "s3://k:hunter2@bucket/x",
    ],
)
def test_a_place_that_is_not_one_in_a_store_is_refused_and_not_quoted(dsn: str) -> None:
    with pytest.raises(SinkRefusedError, match=r"not a place in an object store\. Write it as") as found:
        address_of(dsn)
    assert "hunter2" not in str(found.value)


def test_one_place_in_a_store_has_one_spelling() -> None:
    assert address_of("s3://lake/tables/").text == address_of("s3://lake/tables").text == "s3://lake/tables"
    assert address_of("s3://lake/").buckets == ("s3://lake",)


def test_the_store_of_a_folder_is_refused(tmp_path: Path) -> None:
    spec = {"type": "delta", "dsn": f"file://{tmp_path}", "store": {"region": "eu-central-1"}}
    with pytest.raises(SinkRefusedError, match=r"sink\.store is for tables in an object store.*Remove sink\.store"):
        open_sink(SinkSpec.model_validate(spec))


def test_one_folder_has_one_spelling() -> None:
    assert address_of("file:///srv/lake/").text == address_of("file:///srv/lake").text == "file:///srv/lake"


@pytest.mark.parametrize("table", ['"..".x', "_headgate.x", '"a/b".x', "a._b", '"a."', f"a.{'b' * 129}"])
def test_a_name_that_leads_elsewhere_is_refused(table: str) -> None:
    with pytest.raises(SinkRefusedError, match="not a valid name"):
        path_of(table)


def test_only_folders_of_the_operators_list_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, other = tmp_path / "lake", tmp_path / "other"
    allowed.mkdir()
    other.mkdir()
    (allowed / "link").symlink_to(other)
    monkeypatch.setenv(ALLOWED_FOLDERS, str(allowed))
    open_sink(SinkSpec(type="delta", dsn=f"file://{allowed}/shop"))
    for folder in (other, allowed / "link", tmp_path, tmp_path / "lakes"):
        with pytest.raises(SinkRefusedError, match=rf"is not below a folder in {ALLOWED_FOLDERS}"):
            open_sink(SinkSpec(type="delta", dsn=f"file://{folder}"))
    monkeypatch.delenv(ALLOWED_FOLDERS)
    with pytest.raises(SinkRefusedError, match=rf"{ALLOWED_FOLDERS} is not set"):
        open_sink(SinkSpec(type="delta", dsn=f"file://{allowed}"))
