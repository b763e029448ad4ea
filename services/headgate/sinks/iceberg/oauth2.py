"""Tokens of an OAuth2 server by client credentials (RFC 6749, 4.4), as Iceberg REST catalogs want them.

A token is kept by the process until shortly before it expires, whichever sink uses it: else each sink would ask for one
of its own. The secret is in the request's body only, so no URL has it, and nothing that the server answers is quoted.
"""

import math
import re
import time
from pathlib import Path
from typing import Final

import msgspec
from requests import Response
from requests.exceptions import RequestException, SSLError, TooManyRedirects

from headgate.databases.iceberg.address import ClientCredentials
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError
from headgate.sinks.iceberg.guarded_session import GuardedSession

__all__ = ["TokenSource"]

MARGIN_SECONDS: Final = 60.0
"""A token is renewed so long before it expires, so that a request which takes its time still has a valid one."""

FRESH_SECONDS: Final = 10.0
"""A token that a catalog refuses so soon is not renewed: the client lacks a right. pyiceberg repeats requests, too."""

RETRY_SECONDS: Final = 10.0
"""After a renewal that failed, while the token is still valid: a silent server would delay each request."""

TOKENS_MAX: Final = 1024
"""Clients of a process at once, more than it has feeds: beyond that each request could need a token. One has 2 kB."""

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
    """A token that was issued for ``secret``. The others are seconds, by the monotonic clock.

    ``renew``: when the next one is asked for. ``expires``: inf: not before a catalog refuses it.
    """

    token: str
    secret: str
    asked: float
    renew: float = math.inf
    expires: float = math.inf

    def is_refused(self, refused: str | None) -> bool:
        """Whether it is the refused one, and is not fresh."""
        return self.token == refused and _now() - self.asked >= FRESH_SECONDS


_Client = tuple[ClientCredentials, Path, str | None]
"""With the file of the secret, so that a new secret in it takes the place of the former one."""


class TokenSource:
    """Used by all threads, and after a fork. Two threads that find no token both ask for one."""

    def __init__(self) -> None:
        self._kept: dict[_Client, _Kept] = {}

    def token(
        self, client: ClientCredentials, file: Path, secret: str, ca_file: str | None, refused: str | None = None
    ) -> str:
        """A token that has not expired. ``file``: which has the secret. Raises SinkError.

        ``refused``: one that the catalog does not take. It is given again if it is fresh.
        """
        key = client, file, ca_file
        kept = self._kept.get(key)
        if kept is not None and (kept.secret != secret or kept.is_refused(refused)):
            kept = None
        if kept is not None and _now() < kept.renew:
            return kept.token
        try:
            made = _fetched(client, secret, ca_file)
        except SinkError:
            if kept is None or _now() >= kept.expires:
                raise
            made = msgspec.structs.replace(kept, renew=min(_now() + RETRY_SECONDS, kept.expires))
        self._keep(key, made)
        return made.token

    def _keep(self, key: _Client, made: _Kept) -> None:
        self._kept.pop(key, None)
        self._kept[key] = made
        for each, kept in list(self._kept.items()):
            if _now() >= kept.expires:
                self._kept.pop(each, None)
        for oldest in list(self._kept)[:-TOKENS_MAX]:
            self._kept.pop(oldest, None)


def _now() -> float:
    return time.monotonic()


def _fetched(client: ClientCredentials, secret: str, ca_file: str | None) -> _Kept:
    asked = _now()
    optional = {"scope": client.scope, "audience": client.audience, "resource": client.resource}
    body = {"grant_type": "client_credentials", "client_id": client.id, "client_secret": secret}
    body |= {name: value for name, value in optional.items() if value is not None}
    try:
        with GuardedSession(client.server, "Correct oauth2_server_uri") as session:
            accept = {"Accept": "application/json"}
            answer = session.guarded(
                "POST", client.server, data=body, headers=accept, ca_file=ca_file, secrets=(secret,)
            )
    except RequestException as error:
        raise _not_answered(client, error) from None
    if not answer.ok:
        raise _refused(client, answer)
    found = _decoded(answer.content)
    if found is None or found.token_type.lower() != "bearer" or not _TOKEN.fullmatch(found.access_token):
        raise _nonsense(client)
    seconds = found.expires_in
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:  # the token's life is not known
        return _Kept(found.access_token, secret, asked)
    renew = asked + max(seconds - MARGIN_SECONDS, seconds / 2)
    return _Kept(found.access_token, secret, asked, renew, asked + seconds)


def _decoded(content: bytes) -> _Answer | None:
    try:
        return msgspec.json.decode(content, type=_Answer, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # not chained: its text may have the token
        return None


def _not_answered(client: ClientCredentials, error: RequestException) -> SinkError:
    at, text = f"the token server at {client.server}", str(error)
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
