"""HTTP requests to an Iceberg REST catalog: only to the address that the feed names, with the token in its file now."""

import os
import time
from collections.abc import Callable
from typing import Any, Final

from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.exceptions import InvalidURL, Timeout

from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.iceberg.address import address_of, place_of
from headgate.sinks.contract import SinkRefusedError

__all__ = ["CatalogSession"]

CONNECT_SECONDS: Final = 5
ANSWER_SECONDS: Final = 30
"""For a whole answer: the metadata of a table with thousands of snapshots has some megabytes."""

ANSWER_BYTES_MAX: Final = 256 << 20
"""The answer is held in memory. Metadata of 100 000 snapshots has about 100 MB."""

_PIECE: Final = 1 << 16


class CatalogSession(Session):
    """``find`` is asked for each request, because the token, and what is permitted, may change at any time."""

    def __init__(self, find: Callable[[], Target]) -> None:
        super().__init__()
        self._find = find
        self.trust_env = False  # no proxies, and no ~/.netrc, whose password would replace the token
        self.max_redirects = 0  # another server may not be permitted, and must not get the token
        self._process = os.getpid()

    def request(self, method: str, url: str | bytes, *arguments: Any, **options: Any) -> Response:
        """See Session. Raises SinkRefusedError for an address that is not permitted."""
        target = self._find()
        try:
            place = place_of(target.dsn, target.options)
            token = target.password(address_of(target.dsn, target.options))
        except DatabaseRefusedError as error:
            raise SinkRefusedError(str(error)) from error
        if place.rest is None or not str(url).startswith(f"{place.rest}/"):
            raise InvalidURL(f"{url!r} is not below {place.rest}")
        options |= {
            "auth": _Token(token),
            "timeout": (CONNECT_SECONDS, ANSWER_SECONDS),
            "verify": place.ca_file or True,
            "stream": True,
        }
        self._leave_connections_of_a_parent()
        end = time.monotonic() + ANSWER_SECONDS
        answer = super().request(method, url, *arguments, **options)
        answer._content = _read(answer, end)
        return answer

    def _leave_connections_of_a_parent(self) -> None:
        """A process that was forked must not read answers to the other one."""
        if self._process != os.getpid():
            for scheme in ("https://", "http://"):
                self.mount(scheme, HTTPAdapter())
            self._process = os.getpid()


def _read(answer: Response, end: float) -> bytes:
    """The whole answer. Raises Timeout for one that is too slow or too large."""
    with answer:
        found = bytearray()
        for piece in answer.iter_content(_PIECE):
            found += piece
            if len(found) > ANSWER_BYTES_MAX:
                raise Timeout(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
            if time.monotonic() > end:
                raise Timeout(f"the answer was not complete after {ANSWER_SECONDS} s")
    return bytes(found)


class _Token(AuthBase):
    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers.pop("Authorization", None)
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request
