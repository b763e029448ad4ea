"""Views that are told to stop leave nothing open, however far their start has come."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from headgate.config.settings import load_settings
from headgate.views.stream import make_app, stop_app
from headgate_lab.embedded.ports import free_ports


@pytest.mark.parametrize("turns", [0, 3])
def test_an_application_that_is_stopped_while_it_starts_closes_its_event_loop(tmp_path: Path, turns: int) -> None:
    (port,) = free_ports(1)
    settings = load_settings({"shards": 1, "bootstrap": "127.0.0.1:1"})

    async def stopped() -> asyncio.AbstractEventLoop:
        app = make_app(settings, "views", port, str(tmp_path))
        starting = asyncio.create_task(app.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        await stop_app(app)
        loop: asyncio.AbstractEventLoop = app.consumer._thread.thread_loop
        return loop

    assert asyncio.run(stopped()).is_closed()
