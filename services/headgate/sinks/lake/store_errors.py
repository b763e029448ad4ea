"""What errors of an object store mean to a sink. Libraries put S3's code, or AWS's name of it, into their text.

The text itself is not shown: where a signature is wrong, S3 answers with all that was signed, a token included.
"""

import re
from typing import Final

import msgspec

from headgate.sinks.contract import SinkError, SinkRefusedError, SinkSilentError, SinkUnavailableError

__all__ = ["Told", "code_in", "store_error"]

_CODE: Final = re.compile(r"<Code>(?P<s3>\w+)</Code>|ExceptionName: (?P<unknown>\w+)|AWS Error (?P<aws>[A-Z_0-9]+)")
"""S3's own code as a server has sent it, as AWS's library names one that it does not know, and its name of others."""

_STATUS: Final = re.compile(r"status code\W+(?:\[\d+m)?\W*(?:\[0m)?\W*(?P<rust>\d{3})\b|HTTP status (?P<aws>\d{3})")
_SILENT: Final = (
    "error sending request",
    "operation timed out",
    "NETWORK_CONNECTION",
    "REQUEST_TIMEOUT",
    "connection closed before message completed",
)

_UNTRUSTED: Final = ("InvalidCertificate(", "invalid peer certificate", "curlCode: 51", "curlCode: 60")
"""Where the server's certificate has expired, is for another host, or is signed by a CA that is not trusted: texts of
obstore, of delta-rs, and two of Arrow."""

_KEYS: Final = "Correct the files in {store}. They are read again for each attempt"
_CHAIN: Final = "Correct the keys of this machine (environment or role), or name files in {store}"
_REFUSED: Final = {
    "NoSuchBucket": ("bucket {bucket} does not exist there", "Create it, or correct {address} or {store}.endpoint"),
    "InvalidAccessKeyId": ("it does not know the access key", "{keys}"),
    "SignatureDoesNotMatch": ("the secret access key is not that of the access key", "{keys}"),
    "ExpiredToken": ("the session token has expired", "{keys}"),
    "InvalidToken": ("it does not accept the session token", "{keys}"),
    "TokenRefreshRequired": ("the session token has expired", "{keys}"),
    "AccessDenied": (
        "the access key lacks a right",
        "Permit it s3:ListBucket on bucket {bucket}, and s3:GetObject, s3:PutObject and s3:DeleteObject on {place}/*",
    ),
    "PermanentRedirect": ("bucket {bucket} is in another region", "Correct {store}.region or {store}.endpoint"),
    "AuthorizationHeaderMalformed": (
        "bucket {bucket} is in another region",
        "Correct {store}.region or {store}.endpoint",
    ),
    "IllegalLocationConstraintException": (
        "bucket {bucket} is in another region",
        "Correct {store}.region or {store}.endpoint",
    ),
    "RequestTimeTooSkewed": ("its clock and this machine's differ too much", "Synchronise this machine's clock"),
    "NotImplemented": (
        "it does not implement a request that Headgate needs",
        "Upgrade the store, or use another one",
    ),
    "QuotaExceeded": ("its quota is used up", "Raise the quota, or remove what is not needed"),
}
"""S3's code → why, and what to do. Other codes are of passing states."""

_NO_ANSWER_TO_HEAD: Final = {"401": "AccessDenied", "403": "AccessDenied", "301": "PermanentRedirect"}
"""What a status alone means: answers to HEAD have no code."""


class Told(msgspec.Struct, frozen=True):
    """What errors name. ``place``: of the tables. ``store``, ``address``: options. ``has_files``: keys are in files."""

    endpoint: str
    place: str
    bucket: str
    store: str
    address: str
    has_files: bool


def code_in(text: str) -> str | None:
    """S3's code of the error that a library describes; None if it does not contain it."""
    found = _codes(text)
    own = found.get("s3") or found.get("unknown")
    name = "".join(part.capitalize() for part in found.get("aws", "").split("_"))
    return own or (None if name in ("", "Unknown", "NetworkConnection") else name)


def is_certain(text: str) -> bool:
    """Whether the text has S3's own code, and not only what AWS's library makes of a status without one."""
    return bool(_codes(text).keys() & {"s3", "unknown"}) or "during HeadObject" not in text


def _codes(text: str) -> dict[str, str]:
    """The first code of each kind. AWS's library writes its own name before that of S3."""
    found: dict[str, str] = {}
    for each in _CODE.finditer(text):
        found = {kind: code for kind, code in each.groupdict().items() if code} | found
    return found


def store_error(text: str, doing: str, told: Told) -> SinkError:
    """The error of a sink that ``text``, a library's, stands for."""
    at = f"{doing}: the object store at {told.endpoint}"
    if any(words in text for words in _UNTRUSTED):
        return SinkRefusedError(
            f"{at} has a certificate that is not trusted. Name the file with its CA's certificate in {told.store}"
            ".ca_file, or renew a certificate that has expired or is for another host"
        )
    status = _STATUS.search(text)
    number = None if status is None else status["rust"] or status["aws"]
    code = code_in(text) or _NO_ANSWER_TO_HEAD.get(number or "")
    if code is None and any(words in text for words in _SILENT):
        return SinkSilentError(f"{at} does not answer. It is retried; check the server, and {told.store}.endpoint")
    if code in _REFUSED:
        why, remedy = _REFUSED[code]
        keys = (_KEYS if told.has_files else _CHAIN).format(store=told.store)
        names = {name: getattr(told, name) for name in ("place", "bucket", "store", "address")}
        return SinkRefusedError(
            f"{at} has refused a request ({code}): {why.format(**names)}. {remedy.format(keys=keys, **names)}"
        )
    if code is None and number is None:
        return SinkUnavailableError(f"{at} could not be used, and the library gave no reason. It is retried")
    what = code or f"status {number}"
    return SinkUnavailableError(f"{at} has not done a request ({what}). It is retried")
