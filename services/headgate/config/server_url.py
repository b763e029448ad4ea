"""URLs of servers that are asked over HTTP: a schema registry, an object store, a server that gives tokens.

Errors never quote a URL, because one that is refused may contain a secret.
"""

from typing import Final, NamedTuple
from urllib.parse import urlsplit

__all__ = ["ServerUrl", "ServerUrlError", "server_url"]

_USUAL_PORTS: Final = {"http": 80, "https": 443}


class ServerUrlError(ValueError):
    """The text is not such a URL. ``has_credentials``: the reason is a user or a password in it."""

    def __init__(self, *, has_credentials: bool = False) -> None:
        super().__init__("it has a user or a password" if has_credentials else "it is not the URL of a server")
        self.has_credentials = has_credentials


class ServerUrl(NamedTuple):
    """``port``: None where the scheme's usual one is meant. ``path``: as it was written, empty without one."""

    scheme: str
    host: str
    port: int | None
    path: str

    @property
    def text(self) -> str:
        """Its one spelling."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port is None else f":{self.port}") + self.path

    @property
    def is_plain(self) -> bool:
        """Whether all that is sent can be read on the way."""
        return self.scheme == "http"


def server_url(given: str) -> ServerUrl:
    """The parts of a URL that begins with http or https and has no query. Raises ServerUrlError."""
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError:
        raise ServerUrlError(has_credentials="@" in given) from None
    if "@" in parts.netloc:
        raise ServerUrlError(has_credentials=True)
    if parts.scheme not in _USUAL_PORTS or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise ServerUrlError
    return ServerUrl(parts.scheme, parts.hostname, None if port == _USUAL_PORTS[parts.scheme] else port, parts.path)
