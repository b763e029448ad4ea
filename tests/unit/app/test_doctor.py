"""What ``headgate doctor`` makes of a machine and of Kafka's answers."""

import json
import socket
from pathlib import Path

import pytest

from headgate.app.doctor import machine
from headgate.app.doctor.kafka import judged_clock, lacking
from headgate.app.doctor.machine import machine_findings
from headgate.capture.finding import CaptureFinding, FixIn, State, is_wrong
from headgate.cli.checks import show_findings
from headgate.cli.output import Output
from headgate.config.rights import grants
from headgate.config.settings import Settings, load_settings
from headgate.provisioning.errors import NoJavaError


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    return load_settings({"http": {"port": 0}, "views": {"port": 0}, "spark": {"scratch": str(tmp_path)}})


def found(settings: Settings, check: str) -> CaptureFinding:
    return next(finding for finding in machine_findings(settings) if finding.check == check)


def test_jars_that_were_not_fetched(settings: Settings) -> None:
    jars = found(settings, "Spark jars")
    assert (jars.state, jars.fix, jars.fix_in) == (State.PENDING, ("headgate jars fetch",), FixIn.SHELL)
    assert "not fetched yet. The first start of an agent fetches them" in jars.says
    assert not is_wrong([jars])


def test_jars_that_are_incomplete_are_wrong(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "problem_of", lambda _name: "one.jar is missing")
    monkeypatch.setattr(machine, "is_fetched", lambda _name: True)
    assert found(settings, "Spark jars").state is State.WRONG


def test_jars_of_a_folder_that_has_none(settings: Settings, tmp_path: Path) -> None:
    jars = found(load_settings({"spark": {"jars": str(tmp_path)}}), "Spark jars")
    assert (jars.state, "holds no jar" in jars.says) == (State.WRONG, True)
    (tmp_path / "one.jar").touch()
    assert found(load_settings({"spark": {"jars": str(tmp_path)}}), "Spark jars").state is State.OK


def test_no_java(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise NoJavaError("no Java 17 or newer")

    monkeypatch.setattr(machine, "find_java", none)
    java = found(settings, "Java")
    assert (java.state, java.says) == (State.WRONG, "no Java 17 or newer")
    assert java.fix == ("apt-get install --yes openjdk-17-jre-headless",)


def test_a_python_that_is_too_new(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(settings, "Python").state is State.OK
    monkeypatch.setattr(machine.sys, "version_info", (3, 14, 0))
    assert found(settings, "Python").state is State.WRONG


def test_a_disk_that_is_full(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 2**20

    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _folder: Usage)
    assert found(settings, "scratch space").state is State.WRONG


def test_a_scratch_folder_that_is_not_there(settings: Settings) -> None:
    missing = load_settings({"spark": {"scratch": "/nowhere/at/all"}})
    space = found(missing, "scratch space")
    assert (space.state, "No such file" in space.says) == (State.WRONG, True)


def test_a_port_that_is_taken(settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = found(load_settings({"http": {"port": taken.getsockname()[1]}}), "HTTP port")
    assert (port.state, "HEADGATE_HTTP__PORT" in port.then) == (State.WARNING, True)


@pytest.mark.parametrize(
    ("ahead_ms", "state"), [(0, State.OK), (-1500, State.OK), (9000, State.WRONG), (-9000, State.WRONG)]
)
def test_a_clock(ahead_ms: int, state: State) -> None:
    assert judged_clock(ahead_ms).state is state


def test_rights_that_a_user_lacks() -> None:
    needed = grants("hg", {}, ["agent"])
    every = frozenset({"Read", "Write", "Describe", "DescribeConfigs"})
    allowed = dict.fromkeys(("hg.announce", "hg.sync", "hg.checkpoint", "hg.deadletter", "hg.dispatch"), every)
    assert lacking(needed, allowed) == []
    allowed["hg.sync"] = frozenset({"Read", "Describe", "DescribeConfigs"})
    allowed["hg.dispatch"] = frozenset({"Describe", "DescribeConfigs"})
    assert lacking(needed, allowed) == ["Read on hg.dispatch", "Write on hg.sync"]


def test_programs_get_the_number_of_checks_by_state(capsys: pytest.CaptureFixture[str]) -> None:
    states = (State.OK, State.PENDING, State.WARNING, State.PENDING)
    show_findings([CaptureFinding("x", state, "said") for state in states], Output.JSON)
    counts = json.loads(capsys.readouterr().out)
    assert [counts[name] for name in ("wrong", "warnings", "pending")] == [0, 1, 2]
