"""HTTP requests whose answers are bounded, and that go nowhere but to the server that they name.

What a server sends may repeat the request, with its secret. So errors are fixed phrases, without a cause, and a secret
is struck out of answers.
"""

import html
import os
import ssl
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote

from requests import Response, Session
from requests.exceptions import ConnectionError as UnconnectedError
from requests.exceptions import ConnectTimeout, RequestException, SSLError, Timeout, TooManyRedirects
from urllib3.exceptions import HTTPError

from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.iceberg.bounded_answers import ANSWER_SECONDS, AnswerTooLargeError, BoundedAdapter, check_size

__all__ = ["GuardedSession"]

CONNECT_SECONDS: Final = 5

SECRET_LENGTH_MIN: Final = 8
"""Shorter ones are not struck out of answers, because they would be found in other words."""

_PIECE: Final = 1 << 16
_STRUCK: Final = "***"


class GuardedSession(Session):
    """``url``: what errors name. ``if_large``: what to do about an answer that is too large, as a sentence.

    It uses no proxies of the machine and no ~/.netrc, whose password would replace the request's own.
    """

    def __init__(self, url: str, if_large: str) -> None:
        super().__init__()
        self._url = url
        self._if_large = if_large
        self.trust_env = False
        self._mount()

    def guarded(
        self,
        method: str,
        url: str | bytes,
        *arguments: Any,
        ca_file: str | None,
        secrets: tuple[str | None, ...],
        **options: Any,
    ) -> Response:
        """The whole answer. ``ca_file``: whose signature the server's certificate must have. Raises SinkRefusedError.

        An answer that is too large is refused. ``secrets``: what the request has; they are not in the answer, and in no
        error. Raises RequestException, which has neither a request nor a cause.
        """
        options |= {"timeout": (CONNECT_SECONDS, ANSWER_SECONDS), "verify": ca_file or True, "stream": True}
        if self._process != os.getpid():  # a process that was forked must not read answers to the other one
            self._mount()
        answer = self._answer(method, url, *arguments, **options)
        if isinstance(answer, Exception):  # raised here, where it gets no context
            raise answer
        _strike(answer, secrets)
        return answer

    def get_redirect_target(self, resp: Response) -> str | None:
        """Refuse every redirect, unread: another server may not be permitted, and must not get a secret."""
        if not resp.is_redirect:
            return None
        resp.close()
        raise TooManyRedirects

    def _answer(self, *arguments: Any, **options: Any) -> Response | RequestException | SinkRefusedError:
        try:
            answer = super().request(*arguments, **options)
            answer._content = _read(answer)
        except AnswerTooLargeError as error:
            return SinkRefusedError(f"an answer of {self._url} has more than {error.size_max} bytes. {self._if_large}")
        except (RequestException, HTTPError) as error:  # requests passes some of urllib3's as they are
            return _in_fixed_words(error)
        return answer

    def _mount(self) -> None:
        for scheme in ("https://", "http://"):
            self.mount(scheme, BoundedAdapter())
        self._process = os.getpid()


def _read(answer: Response) -> bytes:
    """The whole answer. Raises AnswerTooLargeError."""
    with answer:
        found = bytearray()
        for piece in answer.iter_content(_PIECE):
            found += piece
            check_size(len(found))
    return bytes(found)


def _in_fixed_words(error: Exception) -> RequestException:
    """An error of the same kind. Of its texts only those of the system and of OpenSSL are kept."""
    reasons = list(_reasons(error))
    if isinstance(error, TooManyRedirects):
        return TooManyRedirects("a redirect")
    if isinstance(error, SSLError):
        return SSLError(_of_tls(reasons) or "TLS failed")
    if isinstance(error, ConnectTimeout):
        return ConnectTimeout("no connection in time")
    if isinstance(error, Timeout) or any(isinstance(each, TimeoutError) and each.errno is None for each in reasons):
        return Timeout("its answer was not complete in time")
    if isinstance(error, UnconnectedError) or not isinstance(error, RequestException):
        ended = "the connection has ended before an answer, or the answer is not HTTP"
        return UnconnectedError(_of_the_system(reasons) or ended)
    return RequestException("its answer cannot be read")


def _of_tls(reasons: Iterable[BaseException]) -> str | None:
    for each in reasons:
        if isinstance(each, ssl.SSLCertVerificationError):
            return each.verify_message
        if isinstance(each, ssl.SSLError) and each.reason:
            return each.reason
    return None


def _of_the_system(reasons: Iterable[BaseException]) -> str | None:
    return next((each.strerror for each in reasons if isinstance(each, OSError) and each.errno is not None), None)


def _reasons(error: BaseException | None) -> Iterator[BaseException]:
    """It and what has caused it, the outermost first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _strike(answer: Response, secrets: tuple[str | None, ...]) -> None:
    """Replace the secrets, as texts, URLs, JSON and HTML have them, in what errors quote of an answer."""
    for secret in secrets:
        if secret is None or len(secret) < SECRET_LENGTH_MIN:
            continue
        for spelling in {secret, quote(secret, safe=""), secret.replace("/", r"\/"), html.escape(secret)}:
            answer._content = answer.content.replace(spelling.encode(), _STRUCK.encode())
            answer.reason = str(answer.reason or "").replace(spelling, _STRUCK)
