"""Who waits in vain says for whom, how far it was, and shows the end of its log; what a thawed agent says of itself."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import cast

import pytest

from headgate.eventlog.sharding import place
from headgate.records.base import Fact
from headgate.records.keys import AgentKey, OwnerKey
from headgate_lab.demo import faults
from headgate_lab.demo.faults import Faults
from headgate_lab.demo.services import Services, sessions_lost
from headgate_lab.demo.watch import Watch
from headgate_lab.memory_log.log import MemoryBroker
from headgate_lab.parts.processes import ServiceError
from support import build


class Process:
    def __init__(self, name: str) -> None:
        self.name = name

    def explain(self, what: str) -> str:
        return f"{self.name} {what}. End of {self.name}.log:\nno space left on device"


class Processes:
    agents = ("agent-1", "agent-2")
    running = {name: Process(name) for name in ("coordinator-1", "agent-1", "agent-2")}  # noqa: RUF012

    def check(self) -> None:
        """All of them run."""


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def watch(broker: MemoryBroker) -> Iterator[Watch]:
    watch = Watch(broker.client())
    yield watch
    watch.close()


def test_who_does_not_start_is_named_with_the_end_of_its_log(
    broker: MemoryBroker, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_writer = broker.client().writer("test")
    owner = Fact(OwnerKey(0), build.owner_announced(version="1"))
    starts = Fact(AgentKey("agent-1", "s"), build.agent_announced(address="here"))
    log_writer.write([place(owner, 0), place(starts, 0)], 1)
    monkeypatch.setattr(faults, "AGENT_START_SECONDS_MAX", 1.5)
    told: list[str] = []
    with pytest.raises(ServiceError) as error:
        Faults(cast("Services", Processes()), watch, "", told.append).await_services(told.append)
    assert "agent-1 does not get ready (agent-1 starting, agent-2 not there yet)" in str(error.value)
    assert "no space left on device" in str(error.value)
    assert told[-1] == "agent-1 starting, agent-2 not there yet"


def test_without_an_owner_the_coordinators_log_is_shown(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "TAKEOVER_SECONDS_MAX", 0.2)
    with pytest.raises(ServiceError, match=r"coordinator-1 owns nothing, nor does another: waited .* End of"):
        Faults(cast("Services", Processes()), watch, "", str).await_services(str)


def test_lost_sessions_are_what_the_agent_itself_counts() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"headgate_agent_sessions_total 3.0\nheadgate_agent_sessions_lost_total 2.0\n"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not of interest."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    assert sessions_lost(address) == 2
    thread.join()
    server.server_close()
    assert sessions_lost(address) is None, "it does not answer"
