"""PyMySQL with three differences, for which it is pinned to a minor version: they need private parts of it.

Rows of a LOAD DATA LOCAL come from memory, a silent server is not waited for, and the machine's certificates are not
read (20 ms) for each connection that does not check the server's.
"""

import io
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, Final

import pymysql
from pymysql.connections import Connection as PyMysqlConnection
from pymysql.connections import MySQLResult
from pymysql.constants import CR

from headgate.databases import network_timeouts

PACKET_BYTES: Final = 1 << 20
"""One packet of a LOAD: far below any server's limit, and large enough to cost nothing."""


class _Result(MySQLResult):
    """An answer, which may be the server's request for the rows of a LOAD."""

    def _read_load_local_packet(self, first_packet: Any) -> None:
        del first_packet  # the name of a file that is never opened
        connection: Any = self.connection
        rows: Iterator[bytes] = iter(connection.outgoing or ())
        connection.outgoing = None
        try:
            for chunk in rows:
                for start in range(0, len(chunk), PACKET_BYTES):
                    connection.write_packet(chunk[start : start + PACKET_BYTES])
        finally:
            # Also when the rows could not be made: the server waits for the end and then for the next statement.
            connection.write_packet(b"")
            self._read_ok_packet(connection._read_packet())  # type: ignore[attr-defined]


class _Answers(io.RawIOBase):
    """What the server sends. A read that takes too long asks ``wire`` whether to continue waiting."""

    def __init__(self, connection: socket.socket, wire: "WatchedConnection") -> None:
        super().__init__()
        self._connection = connection
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._wire.patiently(lambda: self._connection.recv_into(buffer))


@cache
def _unchecked_tls() -> ssl.SSLContext:
    """What PyMySQL makes if no certificate is named: encrypted if the server can, without a check of its identity."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class WatchedConnection(PyMysqlConnection):
    """A connection. Until ``is_at_work`` is set a silent server is given up at once; then that decides."""

    # PyMySQL's own.
    _sock: socket.socket
    _rfile: io.BufferedReader
    _force_close: Callable[[], None]

    outgoing: Iterable[bytes] | None = None
    is_at_work: Callable[[], bool] | None = None

    def _create_ssl_ctx(self, sslp: dict[str, Any]) -> ssl.SSLContext:
        if not sslp:
            return _unchecked_tls()
        made: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
        return made

    def connect(self, sock: Any = None) -> None:
        """Open it; whatever the server does not answer within CONNECT_SECONDS is an OperationalError."""
        self._read_timeout: float = network_timeouts.CONNECT_SECONDS
        self._write_timeout: float = network_timeouts.CONNECT_SECONDS
        super().connect(sock)
        network_timeouts.keep_alive(self._sock)
        self._rfile.close()
        self._rfile = io.BufferedReader(_Answers(self._sock, self))

    def watch(self, is_at_work: Callable[[], bool], silence_seconds: float | None = None) -> None:
        """Let statements take as long as ``is_at_work`` holds. It is asked after ``silence_seconds`` without a byte."""
        self.is_at_work = is_at_work
        self._read_timeout = self._write_timeout = silence_seconds or network_timeouts.SILENCE_SECONDS

    def patiently(self, move_bytes: Callable[[], int]) -> int:
        """Read or write as many bytes as can be; TimeoutError if what is waited for will never come."""
        while True:
            try:
                return move_bytes()
            except TimeoutError as waited:
                if self.is_at_work is not None and self.is_at_work():
                    continue
                self._sock.settimeout(network_timeouts.LAST_LOOK_SECONDS)
                try:
                    return move_bytes()
                except TimeoutError:
                    text = f"nothing for {self._read_timeout} s, and it is not working on our statement any more"
                    raise TimeoutError(text) from waited
                finally:
                    self._sock.settimeout(self._read_timeout)

    def _write_bytes(self, data: bytes) -> None:
        self._sock.settimeout(self._write_timeout)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self.patiently(partial(self._sock.send, rest)) :]
        except OSError as error:
            self._force_close()
            raise pymysql.OperationalError(CR.CR_SERVER_GONE_ERROR, f"MySQL server has gone away ({error})") from error

    def _read_query_result(self, unbuffered: bool = False) -> int:  # PyMySQL's own signature
        if unbuffered:
            return int(super()._read_query_result(unbuffered=True))  # type: ignore[misc]
        self._result = None
        result: Any = _Result(self)
        result.read()
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return int(result.affected_rows)
