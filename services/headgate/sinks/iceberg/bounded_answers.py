"""HTTP connections whose answers end within a time and a size, from their first line to their last byte.

requests and urllib3 limit the time until the next bytes only, and read lines of any length. So the limits are where the
bytes are read from the socket.
"""

import io
import time
from http.client import HTTPResponse
from socket import socket
from typing import Any, Final

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

__all__ = ["ANSWER_SECONDS", "AnswerTooLargeError", "BoundedAdapter", "check_size"]

ANSWER_SECONDS: Final = 30
"""For a whole answer: the metadata of a table with thousands of snapshots has some megabytes."""

ANSWER_BYTES_MAX: Final = 256 << 20
"""The answer is held in memory. Metadata of 100 000 snapshots has about 100 MB."""


class AnswerTooLargeError(Exception):
    """``size_max``: how many bytes it may have."""

    def __init__(self, size_max: int) -> None:
        super().__init__(f"an answer has more than {size_max} bytes")
        self.size_max = size_max


def check_size(size: int) -> None:
    """Raise AnswerTooLargeError."""
    if size > ANSWER_BYTES_MAX:
        raise AnswerTooLargeError(ANSWER_BYTES_MAX)


class _Bounded(io.RawIOBase):
    """The bytes of one answer. ``raw`` keeps the socket open until it is closed itself."""

    def __init__(self, connected: socket, raw: io.RawIOBase) -> None:
        self._socket = connected
        self._raw = raw
        self._end = time.monotonic() + ANSWER_SECONDS
        self._size = 0

    def readable(self) -> bool:
        """See RawIOBase."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """See RawIOBase. Raises TimeoutError, AnswerTooLargeError."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the answer was not complete after {ANSWER_SECONDS} s")
        self._socket.settimeout(left)
        found: int | None = self._raw.readinto(buffer)
        self._size += found or 0
        check_size(self._size)
        return found

    def close(self) -> None:
        """See RawIOBase."""
        self._raw.close()
        super().close()


class _Answer(HTTPResponse):
    def __init__(self, sock: socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Bounded(sock, sock.makefile("rb", buffering=0)))


class _Connection(HTTPConnection):
    response_class = _Answer


class _TlsConnection(HTTPSConnection):
    response_class = _Answer


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class BoundedAdapter(HTTPAdapter):
    """See the module."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """See HTTPAdapter."""
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
