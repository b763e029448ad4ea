"""HTTP requests whose answers are bounded, and that go nowhere but to the server that they name."""

import os
from typing import Any, Final

from requests import Response, Session
from requests.exceptions import TooManyRedirects

from headgate.sinks.iceberg.bounded_answers import ANSWER_SECONDS, BoundedAdapter, check_size

__all__ = ["GuardedSession"]

CONNECT_SECONDS: Final = 5

_PIECE: Final = 1 << 16


class GuardedSession(Session):
    """``url``: what errors name.

    It uses no proxies of the machine and no ~/.netrc, whose password would replace the request's own.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.trust_env = False
        self._mount()

    def guarded(self, method: str, url: str | bytes, *arguments: Any, ca_file: str | None, **options: Any) -> Response:
        """The whole answer. ``ca_file``: whose signature the server's certificate must have. Raises SinkRefusedError.

        An answer that is too large is refused.
        """
        options |= {"timeout": (CONNECT_SECONDS, ANSWER_SECONDS), "verify": ca_file or True, "stream": True}
        if self._process != os.getpid():  # a process that was forked must not read answers to the other one
            self._mount()
        answer = super().request(method, url, *arguments, **options)
        answer._content = _read(answer, self._url)
        return answer

    def get_redirect_target(self, resp: Response) -> str | None:
        """Refuse every redirect, unread: another server may not be permitted, and must not get a secret."""
        target = super().get_redirect_target(resp)
        if target is None:
            return None
        resp.close()
        raise TooManyRedirects(f"a redirect to {target}")

    def _mount(self) -> None:
        for scheme in ("https://", "http://"):
            self.mount(scheme, BoundedAdapter())
        self._process = os.getpid()


def _read(answer: Response, url: str) -> bytes:
    """The whole answer. Raises SinkRefusedError for one that is too large."""
    with answer:
        found = bytearray()
        for piece in answer.iter_content(_PIECE):
            found += piece
            check_size(len(found), url)
    return bytes(found)
