"""The operations endpoints of a process: ``/livez``, ``/readyz``, ``/metrics``, ``/version``.

Live means that every loop has turned lately; ready means that every role has replayed to its captured end and knows
what it is. Neither ever asks Kafka or a sink: a probe that fails because a broker is away would have the platform
restart every service at once. Served by one thread of the standard library, on loopback unless told otherwise.
"""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from headgate import SCHEMA_VERSION, __version__

__all__ = ["OpsServer", "PortTakenError", "Probes"]

REQUEST_SECONDS_MAX: Final = 5.0
"""A client that sends nothing for this long is dropped: it would hold a thread for ever."""


class PortTakenError(OSError):
    """The HTTP port cannot be had; the message says which and how to choose another."""


class Probes:
    """What the loops of a process say about themselves; safe to call from any thread.

    ``silence_seconds`` is how long a loop may go without a turn before the process counts as hung; ``clock`` is
    monotonic seconds.
    """

    def __init__(self, silence_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._silence_seconds = silence_seconds
        self._clock = clock
        self._turned: dict[str, float] = {}
        self._unready: dict[str, str] = {}
        self._lock = threading.Lock()

    def expect(self, loop: str, unready: str = "starting") -> None:
        """A loop exists from now on, and is not ready, for the reason given."""
        with self._lock:
            self._turned[loop] = self._clock()
            self._unready[loop] = unready

    def turned(self, loop: str) -> None:
        """The loop has turned now."""
        with self._lock:
            self._turned[loop] = self._clock()

    def ready(self, loop: str) -> None:
        """The loop has replayed and knows its role."""
        with self._lock:
            self._unready.pop(loop, None)

    def unready(self, loop: str, reason: str) -> None:
        """The loop cannot serve now."""
        with self._lock:
            self._unready[loop] = reason

    def forget(self, loop: str) -> None:
        """The loop has ended as it should."""
        with self._lock:
            self._turned.pop(loop, None)
            self._unready.pop(loop, None)

    def hung(self) -> list[str]:
        """One line per loop that has not turned in time."""
        now = self._clock()
        with self._lock:
            silent = {loop: now - at for loop, at in sorted(self._turned.items())}
        return [
            f"{loop}: no turn for {seconds:.1f} s, allowed are {self._silence_seconds:g}"
            for loop, seconds in silent.items()
            if seconds > self._silence_seconds
        ]

    def waiting(self) -> list[str]:
        """One line per loop that is not ready; a process without any loop is not ready either."""
        with self._lock:
            if not self._turned:
                return ["no loop has been started"]
            return [f"{loop}: {reason}" for loop, reason in sorted(self._unready.items())]


class OpsServer:
    """Answers on ``bind``:``port`` from a thread of its own; port 0 takes a free one, see ``port``."""

    def __init__(self, bind: str, port: int, probes: Probes, registry: CollectorRegistry) -> None:
        handler = _handler(probes, registry)
        try:
            self._server = ThreadingHTTPServer((bind, port), handler)
        except OSError as error:
            raise PortTakenError(
                f"cannot listen on {bind}:{port}: {error.strerror}; choose another with --http-port or "
                "HEADGATE_HTTP__PORT (0 takes any free one)"
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port really listened on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def _handler(probes: Probes, registry: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = f"headgate/{__version__}"
        sys_version = ""
        timeout = REQUEST_SECONDS_MAX

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/livez":
                self._verdict(probes.hung())
            elif path == "/readyz":
                self._verdict(probes.hung() + probes.waiting())
            elif path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
            elif path == "/version":
                body = {"version": __version__, "schema_version": SCHEMA_VERSION}
                self._answer(200, "application/json", json.dumps(body).encode())
            else:
                self._answer(404, "text/plain", b"known are /livez /readyz /metrics /version\n")

        def _verdict(self, problems: list[str]) -> None:
            text = "\n".join(problems or ["ok"]) + "\n"
            self._answer(503 if problems else 200, "text/plain; charset=utf-8", text.encode())

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Probes come every second: not logged."""

    return Handler
