"""Pinned jars: what is not exactly what the list says is never used."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from headgate.provisioning import artifacts, ivy
from headgate.provisioning.errors import ArtifactError, EmbeddedError
from headgate.provisioning.ivy import Coordinate

JAR = Coordinate("org.example", "thing", "1.0")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def registry(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A jar, the pins that list it, and an Ivy that hands out this file instead of the registry's."""
    jar = tmp_path / "fetched.jar"
    jar.write_bytes(b"as pinned")
    pins = tmp_path / "pins.json"
    pins.write_text(json.dumps({"kafka": {str(JAR): hashlib.sha256(b"as pinned").hexdigest()}}))

    def fetch(wanted: Sequence[Coordinate], work: Path, arrived: Callable[[], None]) -> dict[Coordinate, Path]:
        arrived()
        return dict.fromkeys(wanted, jar)

    monkeypatch.setattr(artifacts, "_PINS_FILE", pins)
    monkeypatch.setattr(ivy, "fetch", fetch)
    return jar


def test_a_set_is_fetched_once_and_progress_is_told(registry: Path) -> None:
    told: list[tuple[str, int, int]] = []
    (jar,) = artifacts.ensure("kafka", lambda *progress: told.append(progress))
    assert jar.name == "thing-1.0.jar"
    assert jar.read_bytes() == b"as pinned"
    assert told == [("kafka", 0, 1), ("kafka", 1, 1), ("kafka", 1, 1)]
    registry.unlink()
    assert artifacts.ensure("kafka") == (jar,)


def test_what_arrives_with_another_content_is_refused_and_not_kept(registry: Path, cache: Path) -> None:
    registry.write_bytes(b"something else")
    found, pinned = (hashlib.sha256(content).hexdigest() for content in (b"something else", b"as pinned"))
    with pytest.raises(ArtifactError, match=rf"thing-1\.0\.jar has sha256 {found}, expected is {pinned}"):
        artifacts.ensure("kafka")
    assert not list(cache.rglob("*.jar"))


def test_a_file_altered_in_the_cache_is_refused(registry: Path) -> None:
    (jar,) = artifacts.ensure("kafka")
    jar.write_bytes(b"altered")
    with pytest.raises(ArtifactError, match=r"thing-1\.0\.jar has sha256 .*Remove"):
        artifacts.ensure("kafka")


def test_a_file_that_nobody_pinned_is_refused(registry: Path) -> None:
    (jar,) = artifacts.ensure("kafka")
    (jar.parent / "stowaway.jar").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"stowaway\.jar is not in the pinned list"):
        artifacts.ensure("kafka")


def test_a_missing_file_is_named(registry: Path) -> None:
    (jar,) = artifacts.ensure("kafka")
    jar.unlink()
    with pytest.raises(ArtifactError, match=r"thing-1\.0\.jar is missing"):
        artifacts.ensure("kafka")


def test_a_cache_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EmbeddedError, match="HEADGATE_CACHE"):
        artifacts.ensure("kafka")


@pytest.mark.integration
def test_an_unreachable_registry_is_said_with_the_ways_out(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody listens on port 1: every request of this JVM is refused at once.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1")
    with pytest.raises(ArtifactError, match=r"Is the registry reachable.*https\.proxyHost.*SSL_CERT_FILE"):
        artifacts.ensure("spark-kafka")


@pytest.mark.integration
def test_two_processes_may_ask_at_once(tmp_path: Path, cache: Path, spark_jars: tuple[Path, ...]) -> None:
    # `spark_jars` has filled the user's cache or proved the registry reachable; these two start from nothing.
    ask = "from headgate.provisioning import artifacts; print(*artifacts.ensure('spark-kafka'))"
    asking = [
        subprocess.Popen([sys.executable, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=120) for process in asking]
    assert [process.returncode for process in asking] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert len(answers[0][0].split()) == 4


def test_problems_are_read_without_the_iterator_whose_end_pyspark_looks_up_in_an_ended_jvm() -> None:
    java, problems = MagicMock(), MagicMock()
    report = java.org.apache.ivy.Ivy.newInstance().resolve.return_value
    report.getAllArtifactsReports.return_value = []
    report.getAllProblemMessages.return_value = problems
    problems.__iter__.side_effect = ConnectionRefusedError
    problems.toArray.return_value = [" unresolved "]
    assert ivy._resolve_in(java, Path("settings"), Path("module"), "jar") == ({}, ["unresolved"])
