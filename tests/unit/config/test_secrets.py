"""Feeds name secrets in one folder only, and hosts from a list."""

from pathlib import Path

import pytest

from headgate.config.secrets import NotPermittedError, check_hosts, rules, secret
from headgate.config.sink_spec import SinkSpec
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.registry import open_sink, same_sink


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for secrets, with one in it, and one beside it."""
    inside = tmp_path / "secrets"
    (inside / "kubernetes.io").mkdir(parents=True)
    (inside / "db").write_text("right", encoding="utf-8")
    (inside / "kubernetes.io" / "token").write_text("the pod's", encoding="utf-8")
    (tmp_path / "other").write_text("somebody's", encoding="utf-8")
    (inside / "out").symlink_to(tmp_path / "other")
    (inside / "..data").mkdir()
    (inside / "..data" / "new").write_text("rotated", encoding="utf-8")
    (inside / "rotated").symlink_to("..data/new")
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(inside))
    monkeypatch.delenv("HEADGATE_ALLOWED_HOSTS", raising=False)
    return inside


def test_a_name_and_a_path_in_the_folder_are_taken(folder: Path) -> None:
    assert secret(Path("db"), "x") == secret(folder / "db", "x") == folder / "db"
    assert secret(folder / "rotated", "x").read_text(encoding="utf-8") == "rotated"
    assert secret(folder / "not-there-yet", "x") == folder / "not-there-yet"


@pytest.mark.parametrize("name", ["../other", "/etc/passwd", "out", "", ".", "a/../../other", "kubernetes.io/token"])
def test_whatever_is_elsewhere_is_refused_with_the_way_out(folder: Path, name: str) -> None:
    with pytest.raises(NotPermittedError, match=f"is not in {folder}, .* HEADGATE_SECRETS_DIR"):
        secret(Path(name), "sink.password_file")
    with pytest.raises(SinkRefusedError, match=r"sink\.password_file .* is not in"):
        open_sink(SinkSpec(type="postgresql", dsn="host=db", password_file=Path(name)))


@pytest.mark.parametrize(
    ("kind", "dsn"),
    [("postgresql", "host=db sslkey=/etc/ssl/key"), ("mysql", "mysql://u@db/x?ssl_key=/etc/ssl/key")],
)
def test_private_keys_are_secrets_too(folder: Path, kind: str, dsn: str) -> None:
    with pytest.raises(SinkRefusedError, match="private key"):
        open_sink(SinkSpec.model_validate({"type": kind, "dsn": dsn}))
    open_sink(SinkSpec.model_validate({"type": kind, "dsn": dsn.replace("/etc/ssl", str(folder))})).close()


def test_the_setting_may_stand_in_a_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "said"
    said.write_text(f"{folder}\n", encoding="utf-8")
    monkeypatch.delenv("HEADGATE_SECRETS_DIR")
    monkeypatch.delenv("HEADGATE_CONNECTIONS")
    monkeypatch.delenv("HEADGATE_ALLOWED_FOLDERS")
    with pytest.raises(NotPermittedError, match="not in /run/secrets"):
        secret(folder / "db", "x")
    monkeypatch.setenv("HEADGATE_SECRETS_DIR_FILE", str(said))
    assert secret(Path("db"), "x") == folder / "db"
    assert rules() == {"HEADGATE_SECRETS_DIR": str(folder)}


def test_hosts_are_anybodys_unless_there_is_a_list(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_hosts(["evil.example", ""], "sink.dsn")
    monkeypatch.setenv("HEADGATE_ALLOWED_HOSTS", "DB.example, 10.0.0.7")
    check_hosts(["db.EXAMPLE", "10.0.0.7"], "sink.dsn")
    for kind, dsn in (
        ("postgresql", "host=db.example,evil.example"),
        ("postgresql", "host=db.example hostaddr=10.0.0.8"),
        ("postgresql", "dbname=x"),
        ("mysql", "mysql://u@evil.example/x"),
        ("mysql", "mysql://u@db.example/x?unix_socket=/tmp/s"),
    ):
        with pytest.raises(SinkRefusedError, match="HEADGATE_ALLOWED_HOSTS"):
            open_sink(SinkSpec.model_validate({"type": kind, "dsn": dsn}))
    open_sink(SinkSpec(type="postgresql", dsn="host=db.example hostaddr=10.0.0.7")).close()


@pytest.mark.parametrize(
    ("parameter", "way"),
    [
        ("sslpassword=s3cret", "only the service may read"),
        ("passfile=/root/.pgpass", "sink.password_file"),
        ("service=x", "write its values into the address"),
        ("oauth_client_secret=s3cret", "sink.password_file"),
        ("scram_client_key=s3cret", "sink.password_file"),
        ("application_name=x", "report their feed"),
        ("sslkeylogfile=/tmp/x", "keys of every session"),
    ],
)
def test_what_cannot_stand_on_a_topic_is_refused_by_name(parameter: str, way: str) -> None:
    spec = SinkSpec(type="postgresql", dsn=f"host=db {parameter}")
    for take in (same_sink, open_sink):
        # A libpq that is older than a parameter refuses it as unknown, which is a refusal by name as well.
        with pytest.raises(SinkRefusedError, match=f"{way}|invalid connection option") as refused:
            take(spec)
        assert parameter.partition("=")[0] in str(refused.value)
        assert "s3cret" not in str(refused.value)


def test_the_keyword_that_was_perhaps_meant() -> None:
    """The one that was written is not quoted: it may be a part of a password with a space in it."""
    with pytest.raises(SinkRefusedError, match=r"connection string\. Did you mean 'host'\?"):
        open_sink(SinkSpec(type="postgresql", dsn="hst=db"))


@pytest.mark.parametrize("option", ["password", "ssl_key_password", "read_default_file"])
def test_the_same_of_mysqls_options(option: str) -> None:
    with pytest.raises(SinkRefusedError, match=f"{option} is refused") as refused:
        same_sink(SinkSpec(type="mysql", dsn=f"mysql://u@db/x?{option}=s3cret"))
    assert "s3cret" not in str(refused.value)
