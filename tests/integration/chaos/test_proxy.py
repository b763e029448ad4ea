"""What a client sees of a link that is cut, silent, deaf or slow."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.chaos.proxy import SLOW_SECONDS, SOCKET_PATH_BYTES_MAX, Link, Proxies, Proxy
from headgate_lab.embedded.ports import HOST
from headgate_lab.parts.processes import ServiceError

pytestmark = pytest.mark.integration

ANSWER_SECONDS_MAX = scaled_seconds(40)


class Echo:
    """A server that answers each line with itself, and remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.arrived = threading.Condition()
        self._server = socket.create_server((HOST, 0))
        self.port = self._server.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with closing(connection):
            try:
                while data := connection.recv(100):
                    with self.arrived:
                        self.heard.append(data)
                        self.arrived.notify_all()
                    connection.sendall(data)
            except OSError:
                return

    def await_heard(self, what: bytes) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: what in self.heard, ANSWER_SECONDS_MAX)

    def close(self) -> None:
        if self._server.fileno() < 0:
            return
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS_MAX)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with closing(Echo()) as server:
        yield server


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    with closing(Proxies()) as made:
        yield made


@pytest.fixture
def proxy(proxies: Proxies, echo: Echo) -> Proxy:
    return proxies.open(echo.port)


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with closing(connected(proxy)) as connection:
        assert asked(connection, b"hello") == b"hello"
        yield connection


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout=ANSWER_SECONDS_MAX)


def asked(client: socket.socket, what: bytes) -> bytes:
    client.sendall(what)
    return client.recv(100)


def is_reset(client: socket.socket) -> bool:
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True


def says_nothing(client: socket.socket) -> bool:
    client.settimeout(0.2)
    try:
        client.recv(100)
    except TimeoutError:
        client.settimeout(ANSWER_SECONDS_MAX)
        return True
    return False


def test_a_cut_link_resets_old_connections_and_refuses_new_ones(
    proxies: Proxies, proxy: Proxy, client: socket.socket
) -> None:
    proxies.change(proxy, Link.CUT)
    assert is_reset(client)
    with closing(connected(proxy)) as late:
        assert is_reset(late)
    proxies.change(proxy, Link.OPEN)
    with closing(connected(proxy)) as again:
        assert asked(again, b"back") == b"back"


def test_a_silent_link_tells_nobody_and_delivers_when_it_is_mended(
    proxies: Proxies, proxy: Proxy, echo: Echo, client: socket.socket
) -> None:
    proxies.change(proxy, Link.SILENT)
    client.sendall(b"late")
    with closing(connected(proxy)) as other:
        other.sendall(b"other")
        assert says_nothing(client)
        assert says_nothing(other)
        assert echo.heard == [b"hello"]
        proxies.change(proxy, Link.OPEN)
        assert client.recv(100) == b"late"
        assert other.recv(100) == b"other"


def test_a_deaf_client_is_heard_and_never_answered(
    proxies: Proxies, proxy: Proxy, echo: Echo, client: socket.socket
) -> None:
    proxies.change(proxy, Link.DEAF)
    client.sendall(b"commit")
    echo.await_heard(b"commit")
    assert says_nothing(client)
    proxies.change(proxy, Link.OPEN)
    assert is_reset(client), "an answer is missing in it: it must not go on"
    with closing(connected(proxy)) as again:
        assert asked(again, b"again") == b"again"


def test_a_slow_link_delivers_late(proxies: Proxies, proxy: Proxy, client: socket.socket) -> None:
    proxies.change(proxy, Link.SLOW)
    began = time.monotonic()
    assert asked(client, b"slow") == b"slow"
    assert time.monotonic() - began >= 2 * SLOW_SECONDS


def test_a_link_at_a_socket_is_cut_as_one_at_a_port(proxies: Proxies, echo: Echo, tmp_path: Path) -> None:
    path = tmp_path / "s"
    proxy = proxies.open_at(echo.port, path)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(ANSWER_SECONDS_MAX)
        client.connect(str(path))
        assert asked(client, b"hello") == b"hello"
        proxies.change(proxy, Link.CUT)
        assert is_reset(client)


def test_a_path_too_long_for_a_socket_is_refused_with_the_way_out(proxies: Proxies, echo: Echo, tmp_path: Path) -> None:
    room = SOCKET_PATH_BYTES_MAX - len(str(tmp_path)) - 1
    proxies.open_at(echo.port, tmp_path / ("s" * room))
    with pytest.raises(ServiceError, match="TMPDIR"):
        proxies.open_at(echo.port, tmp_path / ("s" * (room + 1)))


def test_a_server_that_is_gone_is_seen_as_gone(proxies: Proxies, proxy: Proxy, echo: Echo) -> None:
    echo.close()
    with closing(connected(proxy)) as client:
        assert is_reset(client)
