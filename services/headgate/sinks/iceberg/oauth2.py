"""Tokens of an OAuth2 server by client credentials (RFC 6749, 4.4), as Iceberg REST catalogs want them.

A token is kept by the process until shortly before it expires, whichever sink uses it: else each sink would ask for one
of its own. The secret is in the request's body only, so no URL, error or log
can have it.
"""

import re
import time
from typing import Final

import msgspec
from requests import Response
from requests.exceptions import RequestException, SSLError, TooManyRedirects

from headgate.databases.iceberg.address import ClientCredentials
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.iceberg.guarded_session import GuardedSession
from headgate.sinks.lake.files import ERROR_LENGTH_MAX

__all__ = ["TokenSource"]

MARGIN_SECONDS: Final = 60.0
"""A token is renewed so long before it expires, so that a request which takes its time still has a valid one."""

FRESH_SECONDS: Final = 10.0
"""A token that a catalog refuses so soon is not renewed: the client lacks a right. pyiceberg repeats requests, too."""

TOKENS_MAX: Final = 16
"""Clients of a process at once, those before the last change of a secret included."""

_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,65536}")
_CODES: Final = frozenset(
    {
        "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
        "invalid_scope", "invalid_target", "access_denied",
    }
)  # fmt: skip
"""Errors of RFC 6749 and 8707. Others, and descriptions, are texts of the server's, which may have what was sent."""


class _Answer(msgspec.Struct):
    access_token: str
    token_type: str = "bearer"  # noqa: S105 - the name of a kind
    expires_in: float | None = None


class _Error(msgspec.Struct):
    error: str


class _Kept(msgspec.Struct, frozen=True):
    """``asked``, ``until``: by the monotonic clock, seconds; None: until a catalog refuses it."""

    token: str
    asked: float
    until: float | None

    def is_valid(self, refused: str | None) -> bool:
        """Whether it has not expired, and is not the refused one, unless that is fresh."""
        now = _now()
        is_refused = self.token == refused and now - self.asked >= FRESH_SECONDS
        return not is_refused and (self.until is None or now < self.until)


_Client = tuple[ClientCredentials, str, str | None]


class TokenSource:
    """Used by all threads, and after a fork. Two threads that find no token both ask for one."""

    def __init__(self) -> None:
        self._kept: dict[_Client, _Kept] = {}

    def token(self, client: ClientCredentials, secret: str, ca_file: str | None, refused: str | None = None) -> str:
        """A token that has not expired. ``refused``: one that the catalog does not take. Raises SinkError.

        The refused one again, if it is fresh.
        """
        key = client, secret, ca_file
        kept = self._kept.get(key)
        if kept is not None and kept.is_valid(refused):
            return kept.token
        made = _fetched(client, secret, ca_file)
        self._kept.pop(key, None)
        self._kept[key] = made
        for oldest in list(self._kept)[:-TOKENS_MAX]:
            self._kept.pop(oldest, None)
        return made.token


def _now() -> float:
    return time.monotonic()


def _fetched(client: ClientCredentials, secret: str, ca_file: str | None) -> _Kept:
    asked = _now()
    optional = {"scope": client.scope, "audience": client.audience, "resource": client.resource}
    body = {"grant_type": "client_credentials", "client_id": client.id, "client_secret": secret}
    body |= {name: value for name, value in optional.items() if value is not None}
    try:
        with GuardedSession(client.server) as session:
            answer = session.guarded(
                "POST", client.server, data=body, headers={"Accept": "application/json"}, ca_file=ca_file
            )
    except RequestException as error:
        raise _not_answered(client, error) from error
    if not answer.ok:
        raise _refused(client, answer)
    try:
        found = msgspec.json.decode(answer.content, type=_Answer, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise _nonsense(client) from None  # its text may have the token
    if found.token_type.lower() != "bearer" or not _TOKEN.fullmatch(found.access_token):
        raise _nonsense(client)
    seconds = found.expires_in
    if seconds is None:
        return _Kept(found.access_token, asked, None)
    return _Kept(found.access_token, asked, asked + max(seconds - MARGIN_SECONDS, seconds / 2))


def _not_answered(client: ClientCredentials, error: RequestException) -> SinkError:
    at, text = f"the token server at {client.server}", str(error)[:ERROR_LENGTH_MAX]
    if isinstance(error, TooManyRedirects):
        return SinkRefusedError(f"{at} redirects to another address. Give that one in oauth2_server_uri")
    if isinstance(error, SSLError):
        return SinkRefusedError(f"{at} has a certificate that is not trusted: {text}. Name the CA's file in ca_file")
    return SinkSilentError(f"{at} does not answer: {text}. It is retried")


def _refused(client: ClientCredentials, answer: Response) -> SinkError:
    at, status = f"the token server at {client.server}", answer.status_code
    try:
        code = msgspec.json.decode(answer.content, type=_Error).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        code = ""
    shown = f"{status}, {code}" if code in _CODES else str(status)
    if status >= 500 or status == 429:
        return SinkUnavailableError(f"{at} has not issued a token ({shown}). It is retried")
    if status in (400, 401, 403):
        return SinkRefusedError(
            f"{at} does not issue a token for client_id {client.id} ({shown}). Correct the client's secret in its "
            "file, which is read again for each request, or client_id, scope, audience and resource in the address"
        )
    return SinkRefusedError(f"{at} is none ({shown}). Correct oauth2_server_uri")


def _nonsense(client: ClientCredentials) -> SinkError:
    return SinkRefusedError(
        f"the token server at {client.server} answers with something else than a bearer token. Correct "
        "oauth2_server_uri"
    )
