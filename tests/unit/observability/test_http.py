"""The operations endpoints, asked over HTTP."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from aiohttp import web

from headgate import SCHEMA_VERSION, __version__
from headgate.observability.http import OpsServer
from headgate.observability.metrics import new_registry
from headgate.observability.probes import PortTakenError, Probes
from headgate.runtime.metrics import RoleMetrics
from headgate.runtime.role import RoleState, RoleStatus
from headgate.runtime.settings import RoleCounters


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def probes(clock: _Clock) -> Probes:
    return Probes(silence_seconds=5.0, clock=clock)


@pytest.fixture
def server(probes: Probes) -> Iterator[OpsServer]:
    registry = new_registry()
    status = RoleStatus(
        state=RoleState.SERVING, owner_rev=7, replayed=True, owner_id="me", turned_at=1.0, last_error=None
    )
    RoleMetrics(registry).watch(3, lambda: status, RoleCounters(commits=12, garbage={"sync": 2}))
    server = OpsServer("127.0.0.1", 0, probes, registry)
    server.start()
    yield server
    server.close()


def _get(server: OpsServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_ready_only_after_replay_and_role(server: OpsServer, probes: Probes) -> None:
    assert _get(server, "/readyz") == (503, "no loop has been started\n")
    probes.expect("shard 0", "replaying")
    assert _get(server, "/readyz") == (503, "shard 0: replaying\n")
    assert _get(server, "/livez") == (200, "ok\n")
    probes.ready("shard 0")
    assert _get(server, "/readyz") == (200, "ok\n")
    probes.unready("shard 0", "replaying again")
    assert _get(server, "/readyz")[0] == 503


def test_a_loop_that_does_not_turn_is_not_live(server: OpsServer, probes: Probes, clock: _Clock) -> None:
    probes.expect("shard 0")
    probes.ready("shard 0")
    clock.now += 5.1
    status, text = _get(server, "/livez")
    assert (status, text) == (503, "shard 0: no turn for 5.1 s, allowed are 5\n")
    assert _get(server, "/readyz")[0] == 503
    probes.turned("shard 0")
    assert _get(server, "/livez")[0] == 200


def test_metrics_and_version(server: OpsServer) -> None:
    status, text = _get(server, "/metrics")
    assert status == 200
    assert 'headgate_role_owner{shard="3"} 1.0' in text
    assert 'headgate_role_owner_rev{shard="3"} 7.0' in text
    assert 'headgate_role_commits_total{shard="3"} 12.0' in text
    assert 'headgate_role_garbage_total{shard="3",topic="sync"} 2.0' in text
    assert "process_resident_memory_bytes" in text
    assert json.loads(_get(server, "/version")[1]) == {"version": __version__, "schema_version": SCHEMA_VERSION}
    assert _get(server, "/nowhere") == (404, "known paths: /livez /metrics /readyz /version\n")


def test_port_taken_says_which_and_what_to_do(server: OpsServer, probes: Probes) -> None:
    with pytest.raises(PortTakenError, match=rf"127.0.0.1:{server.port}: Address already in use; .*--http-port"):
        OpsServer("127.0.0.1", server.port, probes, new_registry())


def test_port_is_free_again_after_close(probes: Probes) -> None:
    first = OpsServer("127.0.0.1", 0, probes, new_registry())
    first.start()
    port = first.port
    first.close()
    second = OpsServer("127.0.0.1", port, probes, new_registry())
    second.close()


def test_an_address_that_is_not_ours_says_so(probes: Probes) -> None:
    with pytest.raises(PortTakenError, match=r"192.0.2.1:0: Cannot assign requested address"):
        OpsServer("192.0.2.1", 0, probes, new_registry())


def test_a_service_adds_routes_of_its_own(probes: Probes) -> None:
    async def told(request: web.Request) -> web.Response:
        return web.json_response({"told": await request.json()})

    server = OpsServer("127.0.0.1", 0, probes, new_registry(), [web.post("/tell", told)])
    server.start()
    asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/tell", data=b'{"a": 1}', method="POST")
    with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 - our own server
        assert json.loads(answer.read()) == {"told": {"a": 1}}
    server.close()
