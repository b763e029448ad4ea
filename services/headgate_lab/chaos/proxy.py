"""A TCP proxy per client and server, so that one client's way to one server can be cut, silenced, deafened or slowed.

Network namespaces would do the same for whole processes, but need root and leave interfaces behind when the run is
killed. A proxy works wherever the tests do, and can lose just the answers, so that a commit happens without the client
knowing. It does not inspect what goes through. How a client reaches its own proxy: Kafka's get the proxy's port from a
listener of their own (``EmbeddedKafka.further_listeners``), those of a database as ``targets`` describe.

All proxies share one thread with an event loop.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.embedded.ports import HOST
from headgate_lab.parts.processes import ServiceError

CHUNK_BYTES: Final = 1 << 16
SLOW_SECONDS: Final = 0.2
"""For each chunk in each direction, on a slow link: a hundred times what a data centre takes, far below any lease."""

CALL_SECONDS_MAX: Final = 60.0
"""The loop only copies bytes; one that takes longer hangs."""

SOCKET_PATH_BYTES_MAX: Final = 107
"""Linux's 108, less the zero at its end."""

T = TypeVar("T")


class Link(StrEnum):
    """How a client's way to its server is."""

    OPEN = "open"
    CUT = "cut"
    """Connections are reset, new ones too: a process or a switch is gone, and all its peers know."""
    SILENT = "silent"
    """Nothing goes through, without an error: a cable was pulled. What was under way arrives when it is mended."""
    DEAF = "deaf"
    """What the client sends arrives, the answers are lost. When it is mended, those connections are reset."""
    SLOW = "slow"


class Proxy:
    """One listening port or socket and the server behind it. Made and changed by ``Proxies``."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.link = Link.OPEN
        self._target_port = target_port
        self._moved = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._lossy: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        """Listen on ``port`` of a loopback address, 0 for any free one."""
        self._server = await asyncio.start_server(self._serve, host, port)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def listen_at(self, socket: Path) -> None:
        """Listen on a socket in the file system."""
        self._server = await asyncio.start_unix_server(self._serve, socket)

    async def close(self) -> None:
        """Stop listening and reset every connection."""
        if self._server is not None:
            self._server.close()
        await self.change(Link.CUT)

    async def change(self, link: Link) -> None:
        """From now on the link is so."""
        self.link = link
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        for writer in self._writers if link is Link.CUT else self._lossy:
            writer.transport.abort()
        if link is not Link.DEAF:
            self._lossy.clear()

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self._writers.add(to_client)
        to_server: asyncio.StreamWriter | None = None
        try:
            if self.link is Link.CUT:
                return
            from_server, to_server = await asyncio.open_connection(HOST, self._target_port)
            self._writers.add(to_server)
            tasks = [
                asyncio.create_task(self._pump(from_client, to_server, to_client, answers=False)),
                asyncio.create_task(self._pump(from_server, to_client, to_client, answers=True)),
            ]
            # One end closed is both closed: no client or server here half-closes a connection in order.
            _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        except OSError:
            pass  # the server is not there: the client sees its connection closed, as it would without us
        finally:
            for writer in (to_client, to_server):
                if writer is not None:
                    writer.transport.abort()
                    self._writers.discard(writer)
                    self._lossy.discard(writer)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                while self.link is Link.SILENT:
                    await self._moved.wait()
                if self.link is Link.SLOW:
                    await asyncio.sleep(SLOW_SECONDS)
                if self.link is Link.DEAF and answers:
                    self._lossy.add(client)
                    continue
                writer.write(data)
                await writer.drain()
            while self.link is Link.SILENT:
                await self._moved.wait()  # a silent link does not show that the other end has gone
        except OSError:
            return  # reset by either end: the other pump is ended with this one


class Proxies:
    """All proxies of a run, on a thread of their own. Raises TimeoutError if that hangs."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxies", daemon=True)
        self._thread.start()
        self._all: list[Proxy] = []

    def open(self, target_port: int, *, host: str = HOST, port: int = 0) -> Proxy:
        """A proxy to ``target_port`` of this machine, listening on ``host`` and ``port`` (0: any free one)."""
        return self._opened(target_port, lambda proxy: proxy.listen(host, port))

    def open_at(self, target_port: int, socket: Path) -> Proxy:
        """A proxy to ``target_port`` of this machine, listening on a new socket in the file system.

        Raises ServiceError if the path is too long for one.
        """
        if (length := len(os.fsencode(socket))) > SOCKET_PATH_BYTES_MAX:
            raise ServiceError(
                f"{socket} has {length} bytes, and a socket's path may have {SOCKET_PATH_BYTES_MAX}: "
                "set TMPDIR to a shorter folder"
            )
        return self._opened(target_port, lambda proxy: proxy.listen_at(socket))

    def _opened(self, target_port: int, listen: Callable[[Proxy], Coroutine[Any, Any, None]]) -> Proxy:
        async def made() -> Proxy:
            proxy = Proxy(target_port)
            await listen(proxy)
            return proxy

        self._all.append(self._call(made()))
        return self._all[-1]

    def change(self, proxy: Proxy, link: Link) -> None:
        """From now on the proxy's link is so."""
        self._call(proxy.change(link))

    def close(self) -> None:
        """Close every connection and port. Idempotent."""
        if not self._thread.is_alive():
            return
        for proxy in self._all:
            self._call(proxy.close())
        self._call(_settled())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(scaled_seconds(CALL_SECONDS_MAX))
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(scaled_seconds(CALL_SECONDS_MAX))


async def _settled() -> None:
    """Wait for the connections' tasks, whose transports were aborted."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
