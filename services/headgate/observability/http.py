"""The operations endpoints of a process: ``/livez``, ``/readyz``, ``/metrics``, ``/version``.

Live means that every loop has turned lately; ready means that every role has replayed to its captured end and knows
what it is. Neither ever asks Kafka or a sink: a probe that fails because a broker is away would have the platform
restart every service at once. Served by aiohttp, with an event loop on a thread of its own, on loopback by
default; a service may add routes of its own.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from headgate import SCHEMA_VERSION, __version__
from headgate.observability.probes import PortTakenError, Probes
from headgate.supervision.threads import BackgroundThread

KEEP_ALIVE_SECONDS: Final = 75.0
"""An idle connection is closed after this long: beyond the period of any probe or scrape, so that these keep theirs."""

END_SECONDS_MAX: Final = 2.0
"""How long requests under way may take once the process ends."""

REQUEST_BYTES_MAX: Final = 64 * 1024
"""Largest body of a request: requests to services have a few fields."""


class OpsServer:
    """Answers on ``bind``:``port`` from a thread of its own; port 0 takes a free one, see ``port``."""

    def __init__(
        self,
        bind: str,
        port: int,
        probes: Probes,
        registry: CollectorRegistry,
        routes: Sequence[web.RouteDef] = (),
    ) -> None:
        """Listens from now on, and answers from ``start`` on. Raises PortTakenError."""
        self._loop = asyncio.new_event_loop()
        app = web.Application(client_max_size=REQUEST_BYTES_MAX)
        known = [*_routes(probes, registry), *routes]
        app.add_routes([*known, web.get("/{unknown:.*}", _unknown(sorted({each.path for each in known})))])
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=KEEP_ALIVE_SECONDS, shutdown_timeout=END_SECONDS_MAX
        )
        self._loop.run_until_complete(self._runner.setup())
        try:
            self._loop.run_until_complete(web.TCPSite(self._runner, bind, port).start())
        except OSError as error:
            self._loop.run_until_complete(self._runner.cleanup())
            self._loop.close()
            raise PortTakenError(
                f"cannot listen on {bind}:{port}: {_reason(error)}; choose another with --http-port or "
                "HEADGATE_HTTP__PORT (0 takes any free one)"
            ) from error
        self._thread = BackgroundThread(self._loop.run_forever, name="http")

    @property
    def port(self) -> int:
        """The port really listened on."""
        return int(self._runner.addresses[0][1])

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._runner.cleanup())
            self._loop.close()


def _reason(error: OSError) -> str:
    """The system's own words; asyncio puts the address into the text as well."""
    if isinstance(error, socket.gaierror) or error.errno is None:
        return str(error)
    return os.strerror(error.errno)


def _unknown(paths: list[str]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=404, text=f"known paths: {' '.join(paths)}\n")

    return answer


def _routes(probes: Probes, registry: CollectorRegistry) -> list[web.RouteDef]:
    async def livez(_request: web.Request) -> web.Response:
        return _verdict(probes.hung())

    async def readyz(_request: web.Request) -> web.Response:
        return _verdict(probes.hung() + probes.waiting())

    async def metrics(_request: web.Request) -> web.Response:
        # Collecting asks processes for their memory: not on the loop that answers probes.
        body = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def version(_request: web.Request) -> web.Response:
        return web.json_response({"version": __version__, "schema_version": SCHEMA_VERSION})

    return [
        web.get("/livez", livez),
        web.get("/readyz", readyz),
        web.get("/metrics", metrics),
        web.get("/version", version),
    ]


def _verdict(problems: list[str]) -> web.Response:
    return web.Response(status=503 if problems else 200, text="\n".join(problems or ["ok"]) + "\n")
