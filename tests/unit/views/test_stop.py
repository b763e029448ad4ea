"""Views that are told to stop leave nothing open, however far their start has come."""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from aiohttp import ClientSession

from headgate.config.settings import load_settings
from headgate.observability.probes import PortTakenError
from headgate.views.service import listening
from headgate.views.stream import make_app, stop_app

SETTINGS = load_settings({"shards": 1, "bootstrap": "127.0.0.1:1"})


@pytest.mark.parametrize("turns", [0, 3])
def test_an_application_that_is_stopped_while_it_starts_closes_its_event_loop(tmp_path: Path, turns: int) -> None:
    async def stopped(listener: socket.socket) -> asyncio.AbstractEventLoop:
        app = make_app(SETTINGS, "views", listener, str(tmp_path))
        starting = asyncio.create_task(app.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        await stop_app(app)
        loop: asyncio.AbstractEventLoop = app.consumer._thread.thread_loop
        return loop

    with listening("127.0.0.1", 0) as listener:
        assert asyncio.run(stopped(listener)).is_closed()


@pytest.mark.parametrize("turns", range(8))
def test_a_web_server_that_is_stopped_while_it_starts_leaves_no_socket(tmp_path: Path, turns: int) -> None:
    async def stopped(listener: socket.socket) -> None:
        app = make_app(SETTINGS, "views", listener, str(tmp_path))
        starting = asyncio.create_task(app.web.start_server())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        await app.web.stop_server()
        await stop_app(app)

    with listening("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        asyncio.run(stopped(listener))
    assert [each for each in psutil.Process().net_connections("tcp") if each.laddr.port == port] == []


def test_what_is_listened_on_answers(tmp_path: Path) -> None:
    async def asked(listener: socket.socket) -> int:
        app = make_app(SETTINGS, "views", listener, str(tmp_path))
        await app.web.start_server()
        page = f"http://127.0.0.1:{listener.getsockname()[1]}/no"
        async with ClientSession() as session, session.get(page) as answer:
            status = answer.status
        await app.web.stop_server()
        await stop_app(app)
        return status

    with listening("127.0.0.1", 0) as listener:
        assert asyncio.run(asked(listener)) == 404


def test_a_port_that_is_taken_is_refused() -> None:
    with listening("127.0.0.1", 0) as listener:
        listener.listen()
        with pytest.raises(PortTakenError, match="HEADGATE_VIEWS__PORT"):
            listening("127.0.0.1", listener.getsockname()[1])
