"""Jars are fetched ahead of time, or before an agent starts at a terminal."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.app.exit_codes import ExitCode
from headgate.cli import jars
from headgate.cli.main import app


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Sets that were fetched, by their names."""
    asked: list[str] = []
    jar = tmp_path / "one.jar"
    jar.write_bytes(b"jar")

    def ensure(name: str, _progress: object) -> tuple[Path, ...]:
        asked.append(name)
        return (jar,)

    monkeypatch.setattr(jars, "ensure", ensure)
    monkeypatch.setattr(jars, "problem_of", lambda _name: None if asked else "not fetched yet")
    return asked


def test_they_are_copied_to_a_folder(fetched: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["jars", "fetch", "--folder", str(tmp_path / "copy")])
    assert (done.exit_code, fetched) == (0, ["spark-kafka"])
    assert (tmp_path / "copy" / "one.jar").read_bytes() == b"jar"
    assert f"HEADGATE_SPARK__JARS={tmp_path}/copy" in " ".join(done.stderr.split())


def test_a_folder_that_cannot_be_written(fetched: list[str]) -> None:
    done = CliRunner().invoke(app, ["jars", "fetch", "--folder", "/proc/none"])
    assert (done.exit_code, "cannot copy the jars to /proc/none" in done.stderr) == (ExitCode.EMBEDDED, True)


def test_an_agent_at_a_terminal_fetches_them_first_and_once(
    fetched: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jars.fetch_before_start({})
    assert fetched == [], "a service without a terminal fetches them as it starts Spark"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    jars.fetch_before_start({"spark": {"jars": str(tmp_path)}})
    assert fetched == [], "it has its own"
    jars.fetch_before_start({})
    jars.fetch_before_start({})
    assert fetched == ["spark-kafka"]
