"""HTTP requests to an Iceberg REST catalog: only to the address that the feed names, with a token.

The token is in a file, or is issued for the client's secret in that file (oauth2.py).
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
from requests import PreparedRequest, Response
from requests.auth import AuthBase

from headgate.config.ca_files import why_not_ca
from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.iceberg.address import CatalogLocation, address_of, place_of
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.iceberg.credentials import check_credentials
from headgate.sinks.iceberg.guarded_session import GuardedSession
from headgate.sinks.iceberg.oauth2 import TokenSource

__all__ = ["CatalogSession", "leaves_its_folder"]

TOKENS: Final = TokenSource()
"""Of all catalogs of this process."""

_EXPIRED: Final = frozenset({401, 419})
"""419 is of Iceberg's protocol."""

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_LEAVES: Final = frozenset({".", ".."})


class CatalogSession(GuardedSession):
    """``find`` is asked for each request, because the token, and what is permitted, may change at any time.

    ``url``: the catalog's, below which all requests are.
    """

    def __init__(self, find: Callable[[], Target], url: str) -> None:
        super().__init__(url, "Expire snapshots of the table, or correct the address")
        self._find = find
        self.headers["Content-Type"] = "application/json"

    def request(self, method: str, url: str | bytes, *arguments: Any, **options: Any) -> Response:
        """See Session. Raises SinkRefusedError for an address that is not permitted, or a file that cannot be used.

        A token that was issued, and that the catalog does not take any more, is renewed once.
        """
        given = self._given()

        def answered(token: str | None) -> Response:
            options["auth"] = _Token(token)
            secrets = token, given.secret
            return self.guarded(method, url, *arguments, ca_file=given.place.ca_file, secrets=secrets, **options)

        token = given.token()
        answer = answered(token)
        if given.place.client is None or answer.status_code not in _EXPIRED:
            return answer
        renewed = given.token(refused=token)
        return answer if renewed == token else answered(renewed)

    def send(self, request: PreparedRequest, **options: Any) -> Response:
        """See Session. The address is as it is sent: libraries resolve ``..`` in it."""
        url = str(request.url)
        if not url.startswith(f"{self._url}/v1/") or leaves_its_folder(urlsplit(url).path):
            raise SinkRefusedError(
                f"a request to {url} was not sent, because it is not below the address {self._url}. Correct the prefix "
                "of paths, or the separator of namespaces, in the configuration of the server"
            )
        return super().send(request, **options)

    def _given(self) -> "_Given":
        """What is given now. Raises SinkRefusedError."""
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
        check_credentials(place, target.password_file, target.options)
        what = "token" if place.client is None else "client's secret"
        if token is not None and not _TOKEN.fullmatch(token):  # not quoted: it may be a token
            raise SinkRefusedError(
                f"{target.options.password_file} does not name a file with a {what}: it must contain one word of "
                "printable ASCII characters, without spaces and other lines"
            )
        why = None if place.ca_file is None else why_not_ca(Path(place.ca_file))
        if why is not None:
            raise SinkRefusedError(
                f"{target.options.address}: ca_file: {why}. Put the file with the CA's certificate wherever "
                "coordinators and agents run, or correct ca_file"
            )
        return _Given(place, target.password_file, token)


class _Given(msgspec.Struct, frozen=True):
    """An address, the password's file, and its content: a token, or the secret of the address's client."""

    place: CatalogLocation
    file: Path | None
    secret: str | None

    def token(self, refused: str | None = None) -> str | None:
        """What a request has to have. ``refused``: see TokenSource. Raises SinkError."""
        client = self.place.client
        if client is None or self.file is None or self.secret is None:
            return self.secret
        return TOKENS.token(client, self.file, self.secret, self.place.ca_file, refused)


def leaves_its_folder(path: str) -> bool:
    """Whether a path has ``.`` or ``..`` as a name, also if a server would only find it by decoding the path twice."""
    return bool(_LEAVES & set(re.split(r"[/\\]", unquote(unquote(path)))))


class _Token(AuthBase):
    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers.pop("Authorization", None)
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request
