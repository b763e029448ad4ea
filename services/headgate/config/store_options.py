"""Where an object store is, and the files that have the keys to it."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from headgate.config.strict import Strict

__all__ = ["StoreOptions"]

NAMES: Final = r"[a-z0-9][a-z0-9-]{0,62}"
"""Of regions. They become a part of the server's name."""

_FORM: Final = "https://host:port"


class StoreOptions(Strict):
    """A feed's ``sink.store``, for tables at an address that begins with ``s3://``.

    Without files, keys come from where the machine keeps them (environment variables or a role).
    """

    endpoint: str | None = None
    """The server's URL. By default that of AWS in ``region``."""
    region: str | None = Field(default=None, pattern=f"^{NAMES}$")
    access_key_id_file: Path | None = None
    """In the folder for secrets, as the two others, read again for each commit."""
    secret_access_key_file: Path | None = None
    session_token_file: Path | None = None
    allow_plain_http: bool = False
    """Rows, and a session token, are sent over http, where they can be read on the way."""

    @field_validator("endpoint")
    @classmethod
    def _one_spelling(cls, given: str | None) -> str | None:
        if given is None:
            return None
        try:
            parts = urlsplit(given)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if parts.username is not None or parts.password is not None:  # not quoted: it may be a secret
            raise ValueError(
                "it must not contain keys, because feeds are stored in Kafka. Use access_key_id_file and "
                "secret_access_key_file"
            )
        if parts.scheme not in ("http", "https") or not host or parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError(f"it is not the URL of a server. Write it as {_FORM}, without a path")
        shown = f"[{host}]" if ":" in host else host
        usual = {"http": 80, "https": 443}[parts.scheme]
        return f"{parts.scheme}://{shown}" + ("" if port in (None, usual) else f":{port}")

    @model_validator(mode="after")
    def _fit_together(self) -> "StoreOptions":
        if (self.access_key_id_file is None) != (self.secret_access_key_file is None):
            raise ValueError("access_key_id_file and secret_access_key_file: give both or neither")
        if self.session_token_file is not None and self.access_key_id_file is None:
            raise ValueError("session_token_file needs access_key_id_file and secret_access_key_file")
        is_plain = self.endpoint is not None and self.endpoint.startswith("http:")
        if is_plain and not self.allow_plain_http:
            raise ValueError("http sends rows in plain text. Use an https endpoint, or set allow_plain_http: true")
        if self.allow_plain_http and not is_plain:
            raise ValueError("allow_plain_http needs an http endpoint. Remove it")
        return self
