"""Where an object store is, and the files that have the keys to it."""

from pathlib import Path
from typing import Final

from pydantic import Field, field_validator, model_validator

from headgate.config.server_url import ServerUrlError, server_url
from headgate.config.strict import Strict

__all__ = ["StoreOptions"]

NAMES: Final = r"[a-z0-9][a-z0-9-]{0,62}"
"""Of regions. They become a part of the server's name."""

_NO_SERVER: Final = "it is not the URL of a server. Write it as https://host:port, without a path"


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
    ca_file: Path | None = None
    """Whose signature the server's certificate must have, where the machine does not trust it already."""
    allow_plain_http: bool = False
    """Rows, and a session token, are sent over http, where they can be read on the way."""

    @field_validator("endpoint")
    @classmethod
    def _one_spelling(cls, given: str | None) -> str | None:
        if given is None:
            return None
        try:
            url = server_url(given)
        except ServerUrlError as error:
            if error.has_credentials:
                raise ValueError(
                    "it must not contain keys, because feeds are stored in Kafka. Use access_key_id_file and "
                    "secret_access_key_file"
                ) from None
            raise ValueError(_NO_SERVER) from None
        if url.path.strip("/"):
            raise ValueError(_NO_SERVER)
        return url._replace(path="").text

    @model_validator(mode="after")
    def _fit_together(self) -> "StoreOptions":
        if (self.access_key_id_file is None) != (self.secret_access_key_file is None):
            raise ValueError("access_key_id_file and secret_access_key_file: give both or neither")
        if self.session_token_file is not None and self.access_key_id_file is None:
            raise ValueError("session_token_file needs access_key_id_file and secret_access_key_file")
        is_plain = self.endpoint is not None and self.endpoint.startswith("http:")
        if is_plain and not self.allow_plain_http:
            raise ValueError("http sends rows in plain text. Use an https endpoint, or set allow_plain_http: true")
        if self.ca_file is not None and is_plain:
            raise ValueError("ca_file needs an https endpoint, because http has no certificates")
        if self.allow_plain_http and not is_plain:
            raise ValueError("allow_plain_http needs an http endpoint. Remove it")
        return self
