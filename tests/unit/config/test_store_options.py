"""What a feed may say of an object store, and what is refused with a reason."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.config.secrets import ALLOWED_FOLDERS, NotPermittedError, check_bucket, check_folder
from headgate.config.store_options import StoreOptions

KEYS = {"access_key_id_file": "id", "secret_access_key_file": "secret"}


def parsed(store: dict[str, Any], type_: str = "delta", **sink: Any) -> FeedSpec:
    dsn = {"delta": "s3://lake/tables", "postgresql": "host=db dbname=shop"}[type_]
    given = {"type": type_, "store": store, **({} if "connection" in sink else {"dsn": dsn}), **sink}
    spec = {"feed": "shop", "source": {"topics": ["shop.public.orders"]}, "sink": given}
    return parse_feed(msgspec.json.encode(spec).decode())


def test_a_store_is_kept_with_names_of_files_only() -> None:
    given = parsed({"region": "eu-central-1", **KEYS, "session_token_file": "token"})
    assert parse_feed(given.to_json()).sink.store == given.sink.store
    assert given.sink.store.access_key_id_file == Path("id")
    assert "store" not in parsed({}).to_json()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://S3.example", "https://s3.example"),
        ("https://s3.example:443/", "https://s3.example"),
        ("https://s3.example:9000/", "https://s3.example:9000"),
        ("https://[::1]:9000", "https://[::1]:9000"),
    ],
)
def test_a_server_has_one_spelling(given: str, kept: str) -> None:
    assert parsed({"endpoint": given}).sink.store.endpoint == kept


@pytest.mark.parametrize(
    ("store", "why"),
    [
        ({"endpoint": "s3.example:9000"}, r"not the URL of a server\. Write it as https://host:port"),
        ({"endpoint": "https://s3.example/bucket"}, r"not the URL of a server"),
        ({"endpoint": "https://s3.example:port"}, r"not the URL of a server"),
        ({"endpoint": "http://s3.example"}, r"plain text\. Use an https endpoint, or set allow_plain_http"),
        ({"endpoint": "https://s3.example", "allow_plain_http": True}, r"needs an http endpoint\. Remove it"),
        ({"allow_plain_http": True}, r"needs an http endpoint\. Remove it"),
        (
            {"endpoint": "http://s3.example", "allow_plain_http": True, "ca_file": "/ca.pem"},
            r"ca_file needs an https endpoint",
        ),
        ({"region": "eu central"}, r"region"),
        ({"region": "evil.example/"}, r"region"),
        ({"access_key_id_file": "id"}, r"give both or neither"),
        ({"session_token_file": "token"}, r"session_token_file needs access_key_id_file"),
        ({"access_key_id": "AK"}, r"did you mean 'access_key_id_file'"),
        ({"secret_access_key": "x"}, r"did you mean 'secret_access_key_file'"),
        ({"bucket": "x"}, r"unknown option 'bucket'"),
    ],
)
def test_another_store_is_refused(store: dict[str, Any], why: str) -> None:
    with pytest.raises(FeedSpecError, match=rf"sink\.store.*{why}"):
        parsed(store)


def test_keys_in_a_url_are_refused_and_not_quoted() -> None:
    with pytest.raises(FeedSpecError, match="must not contain keys") as found:
        parsed({"endpoint": "https://AKID:sesame@s3.example"})
    assert "sesame" not in str(found.value)
    assert "AKID" not in str(found.value)


def test_other_sinks_have_no_store() -> None:
    with pytest.raises(FeedSpecError, match=r"sink\.store cannot be used with sinks of type postgresql"):
        parsed({"region": "eu-central-1"}, "postgresql")
    with pytest.raises(FeedSpecError, match=r"sink\.connection has a store of its own\. Remove sink\.store"):
        parsed({"region": "eu-central-1"}, type="iceberg", connection="lake")


def test_an_option_of_its_own_is_what_a_connection_and_a_feed_have() -> None:
    assert StoreOptions() == StoreOptions.model_validate({})


@pytest.mark.parametrize(
    ("place", "is_listed"),
    [
        ("s3://lake/a", True),
        ("s3://lake/a/b/c", True),
        ("s3://whole/any", True),
        ("s3://lake", False),
        ("s3://lake/ab", False),
        ("s3://lake/a/../b", False),
        ("s3://lakes/a", False),
        ("s3://other", False),
    ],
)
def test_buckets_are_listed_as_folders_are(place: str, is_listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED_FOLDERS, "/lake, s3://lake/a/ ,s3://whole")
    if is_listed:
        check_bucket(place, "sink.dsn")
        return
    with pytest.raises(NotPermittedError, match=rf"{place} is not below a folder in {ALLOWED_FOLDERS} \(/lake, s3://"):
        check_bucket(place, "sink.dsn")


def test_a_listed_bucket_is_no_local_folder_and_the_other_way_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ALLOWED_FOLDERS, "s3://lake")
    with pytest.raises(NotPermittedError, match="not below a folder"):
        check_folder(tmp_path / "s3:" / "lake", "sink.dsn")
    monkeypatch.setenv(ALLOWED_FOLDERS, "/")
    with pytest.raises(NotPermittedError, match="not below a folder"):
        check_bucket("s3://lake", "sink.dsn")
    monkeypatch.delenv(ALLOWED_FOLDERS)
    with pytest.raises(NotPermittedError, match=f"{ALLOWED_FOLDERS} is not set"):
        check_bucket("s3://lake", "sink.dsn")
