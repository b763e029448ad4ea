"""A proxy before a broker that makes lookups of offsets (ListOffsets) fail for as long as it is told to.

Nothing else is changed, but the broker's port in its answers, so that clients stay with the proxy. This is what a
client sees while a leader moves or restarts: fetches work, and the first question for an offset gets an error.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

HOST: Final = "127.0.0.1"
LIST_OFFSETS: Final = 2
FLEXIBLE_SINCE: Final = 6
"""Of ListOffsets, as the protocol numbers its versions."""

UNKNOWN_SERVER_ERROR: Final = -1
"""librdkafka does not try again after it."""


class LookupProxy:
    """One listening port. ``failing`` may be set at any time; ``failed`` counts the answers that were changed."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server((HOST, 0))
        self._sockets: list[socket.socket] = [self._listener]
        self.failing = False
        self.failed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._port}"

    @property
    def _port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets += [client, server]
            asked: dict[int, int] = {}
            for source, target, change in ((client, server, self._note), (server, client, self._change)):
                threading.Thread(target=self._pump, args=(source, target, change, asked), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, change: object, asked: dict[int, int]) -> None:
        assert callable(change)
        try:
            while head := _exactly(source, 4):
                frame = _exactly(source, struct.unpack(">i", head)[0])
                target.sendall(head + change(frame, asked))
        except OSError:
            pass
        finally:
            for each in (source, target):
                each.close()

    def _note(self, frame: bytes, asked: dict[int, int]) -> bytes:
        """Remember the questions for offsets: correlation id → version."""
        key, version, correlation = struct.unpack_from(">hhi", frame)
        if key == LIST_OFFSETS:
            asked[correlation] = version
        return frame

    def _change(self, frame: bytes, asked: dict[int, int]) -> bytes:
        version = asked.pop(struct.unpack_from(">i", frame)[0], None)
        if version is not None and self.failing:
            self.failed += 1
            return _with_errors(frame, version)
        mine, theirs = (HOST.encode() + struct.pack(">i", port) for port in (self._port, self._target[1]))
        return frame.replace(theirs, mine)


def _exactly(source: socket.socket, count: int) -> bytes:
    """So many bytes; none at the end of the connection."""
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            return b""
        data += more
    return data


def _with_errors(frame: bytes, version: int) -> bytes:
    """An answer to ListOffsets with the error in place of each partition's."""
    answer, at = bytearray(frame), 4
    is_flexible = version >= FLEXIBLE_SINCE

    def length(size: str) -> int:
        nonlocal at
        if is_flexible:
            assert answer[at] < 128, "longer than any name or list here"
            at += 1
            return int(answer[at - 1]) - 1
        (found,) = struct.unpack_from(size, answer, at)
        at += struct.calcsize(size)
        return int(found)

    at += is_flexible  # the header's tags
    at += 4  # how long to slow down
    for _ in range(length(">i")):
        name = length(">h")
        at += name
        for _ in range(length(">i")):
            struct.pack_into(">h", answer, at + 4, UNKNOWN_SERVER_ERROR)
            at += 4 + 2 + 8 + 8 + (4 if version >= 4 else 0) + is_flexible
        at += is_flexible
    return bytes(answer)


@contextmanager
def lookups_of(bootstrap: str) -> Iterator[LookupProxy]:
    proxy = LookupProxy(bootstrap)
    yield proxy
    proxy.close()
