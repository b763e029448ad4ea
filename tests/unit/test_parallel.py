"""What the workers of a parallel run share, without a server: started when asked for, once, stopped with the rest."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Client
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures import parallel
from fixtures.parallel import Servers, TogetherScheduling, address_of
from headgate.provisioning.errors import EmbeddedError

events: list[str] = []


@contextmanager
def _sound() -> Iterator[str]:
    events.append("started")
    yield "here:1"
    events.append("stopped")


@contextmanager
def _broken() -> Iterator[str]:
    raise EmbeddedError("no Java")
    yield


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    events.clear()
    monkeypatch.setattr(parallel, "SHARED", {"sound": _sound, "broken": _broken})
    with closing(Servers()) as servers:
        yield servers


def _worker(servers: Servers) -> Any:
    return SimpleNamespace(workerinput={"headgate_servers": servers.asked_at})


def test_a_server_is_started_when_a_worker_asks_and_lives_as_long_as_the_controller(servers: Servers) -> None:
    assert events == []
    for _ in range(2):
        with address_of("sound", _worker(servers)) as address:
            assert address == "here:1"
        assert events == ["started"]
    servers.close()
    assert events == ["started", "stopped"]


def test_without_a_controller_a_session_has_servers_of_its_own(servers: Servers) -> None:
    with address_of("sound", SimpleNamespace()) as address:  # type: ignore[arg-type]
        assert (address, events) == ("here:1", ["started"])
    assert events == ["started", "stopped"]


def test_a_server_that_does_not_start_says_why_to_each_who_asks(servers: Servers) -> None:
    for _ in range(2):
        with pytest.raises(EmbeddedError, match="no Java"), address_of("broken", _worker(servers)):
            pass


def test_a_worker_that_dies_while_it_asks_is_not_missed(servers: Servers) -> None:
    socket, key = servers.asked_at
    Client(socket, authkey=bytes.fromhex(key)).close()
    with address_of("sound", _worker(servers)) as address:
        assert address == "here:1"


def test_files_that_stand_on_one_thing_go_to_one_worker() -> None:
    scope = TogetherScheduling._split_scope
    nodes = ["tests/integration/agent/test_captured.py::a", "tests/integration/sinks/test_types.py::b[x]"]
    nodes += [f"tests/integration/agent/test_{name}.py::c" for name in ("lane", "agent")]
    nodes.append("tests/unit/test_parallel.py::c")
    apart = "tests/e2e/test_demo.py::d[1]"
    scheduling = TogetherScheduling.__new__(TogetherScheduling)
    alone = ["tests/unit/test_parallel.py", apart]
    assert [scope(scheduling, node) for node in [*nodes, apart]] == ["capture", "capture", "spark", "spark", *alone]


@pytest.mark.parametrize("file", sorted({*parallel.TOGETHER, *parallel.APART}))
def test_what_is_kept_together_or_apart_is_there(file: str, pytestconfig: pytest.Config) -> None:
    assert (pytestconfig.rootpath / file).exists()
