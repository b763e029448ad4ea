"""HTTP requests to an Iceberg REST catalog: only to the address that the feed names, with the token in its file now."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from requests import PreparedRequest, Response, Session
from requests.auth import AuthBase
from requests.exceptions import TooManyRedirects

from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.iceberg.address import Place, address_of, place_of
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.iceberg.bounded_answers import ANSWER_SECONDS, BoundedAdapter, check_size

__all__ = ["CatalogSession", "leaves_its_folder"]

CONNECT_SECONDS: Final = 5

_PIECE: Final = 1 << 16
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_LEAVES: Final = frozenset({".", ".."})


class CatalogSession(Session):
    """``find`` is asked for each request, because the token, and what is permitted, may change at any time.

    ``url``: the catalog's, below which all requests are.
    """

    def __init__(self, find: Callable[[], Target], url: str) -> None:
        super().__init__()
        self._find = find
        self._url = url
        self.trust_env = False  # no proxies, and no ~/.netrc, whose password would replace the token
        self.headers["Content-Type"] = "application/json"
        self._mount()

    def request(self, method: str, url: str | bytes, *arguments: Any, **options: Any) -> Response:
        """See Session. Raises SinkRefusedError for an address that is not permitted, or a file that cannot be used."""
        place, token = self._given()
        options |= {
            "auth": _Token(token),
            "timeout": (CONNECT_SECONDS, ANSWER_SECONDS),
            "verify": place.ca_file or True,
            "stream": True,
        }
        if self._process != os.getpid():  # a process that was forked must not read answers to the other one
            self._mount()
        answer = super().request(method, url, *arguments, **options)
        answer._content = _read(answer, self._url)
        return answer

    def send(self, request: PreparedRequest, **options: Any) -> Response:
        """See Session. The address is as it is sent: libraries resolve ``..`` in it."""
        url = str(request.url)
        if not url.startswith(f"{self._url}/v1/") or leaves_its_folder(urlsplit(url).path):
            raise SinkRefusedError(
                f"a request to {url} was not sent, because it is not below the address {self._url}. Correct the prefix "
                "of paths, or the separator of namespaces, in the configuration of the server"
            )
        return super().send(request, **options)

    def get_redirect_target(self, resp: Response) -> str | None:
        """Refuse every redirect, unread: another server may not be permitted, and must not get the token."""
        target = super().get_redirect_target(resp)
        if target is None:
            return None
        resp.close()
        raise TooManyRedirects(f"a redirect to {target}")

    def _given(self) -> tuple[Place, str | None]:
        """The address and the token now. Raises SinkRefusedError."""
        target = self._find()
        try:
            place = place_of(target.dsn, target.options)
            token = target.password(address_of(target.dsn, target.options))
        except DatabaseRefusedError as error:
            raise SinkRefusedError(str(error)) from error
        if place.rest != self._url:
            raise SinkRefusedError(
                f"{target.options.address} names {place.rest or 'a SQL catalog'} now, and named the REST catalog at "
                f"{self._url} before. Restart"
            )
        if token is not None and not _TOKEN.fullmatch(token):  # not quoted: it may be a token
            raise SinkRefusedError(
                f"{target.options.password_file} does not name a file with a token: it must contain one word of "
                "printable ASCII characters, without spaces and other lines"
            )
        if place.ca_file is not None and not _is_file(place.ca_file):
            raise SinkRefusedError(
                f"{target.options.address}: the CA's file {place.ca_file} is not on this machine. Put it wherever "
                "coordinators and agents run, or correct ca_file"
            )
        return place, token

    def _mount(self) -> None:
        for scheme in ("https://", "http://"):
            self.mount(scheme, BoundedAdapter())
        self._process = os.getpid()


def leaves_its_folder(path: str) -> bool:
    """Whether a path has ``.`` or ``..`` as a name, also if a server would only find it by decoding the path twice."""
    return bool(_LEAVES & set(re.split(r"[/\\]", unquote(unquote(path)))))


def _read(answer: Response, url: str) -> bytes:
    """The whole answer. Raises SinkRefusedError for one that is too large."""
    with answer:
        found = bytearray()
        for piece in answer.iter_content(_PIECE):
            found += piece
            check_size(len(found), url)
    return bytes(found)


class _Token(AuthBase):
    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers.pop("Authorization", None)
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # its folder cannot be entered
        return False
