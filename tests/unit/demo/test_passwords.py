"""Where ``headgate up`` finds a password that no file has. What libpq finds is in tests/integration/demo."""

import stat
import sys
from pathlib import Path

import pytest

from headgate.databases.address import AddressOptions, Target
from headgate.databases.errors import DatabaseRefusedError
from headgate_lab.demo.evaluation import passwords
from headgate_lab.demo.evaluation.passwords import password_of, write_secret

SOURCE = AddressOptions("--source", "--source-password-file", "source")
MARIADB = Target("mysql://debezium@127.0.0.1/shop", None, SOURCE)


def test_a_file_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("MYSQL_PWD", "another")
    (tmp_path / "source").write_text("a secret\n")
    assert password_of(Target(MARIADB.dsn, Path("source"), SOURCE)) == "a secret"


def test_the_variable_of_mariadbs_own_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_PWD", "a secret")
    assert password_of(MARIADB) == "a secret"


def test_it_is_asked_for_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MYSQL_PWD", raising=False)
    asked: list[str] = []

    def typed(prompt: str) -> str:
        asked.append(prompt)
        return "typed"

    monkeypatch.setattr(passwords.getpass, "getpass", typed)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    with pytest.raises(DatabaseRefusedError, match=r"the source needs a password.*--source-password-file.*MYSQL_PWD"):
        password_of(MARIADB)
    assert asked == []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert password_of(MARIADB) == "typed"
    assert asked == [f"Password of {MARIADB.dsn}: "]


def test_one_in_the_address_is_refused() -> None:
    with pytest.raises(DatabaseRefusedError, match="--source has a password in it") as refused:
        password_of(Target("mysql://me:a-secret@127.0.0.1/shop", None, SOURCE))
    assert "a-secret" not in str(refused.value)


def test_only_this_user_can_read_what_is_written(tmp_path: Path) -> None:
    file = tmp_path / "source"
    file.write_text("before")
    file.chmod(0o644)
    write_secret(file, "a secret")
    assert (stat.S_IMODE(file.stat().st_mode), file.read_text()) == (0o600, "a secret")
