"""A schema registry as a feed describes it, of its source's events or of its sink's records."""

from pathlib import Path
from typing import NamedTuple

from pydantic import field_validator, model_validator

from headgate.config.server_url import ServerUrlError, server_url
from headgate.config.strict import Strict

__all__ = ["RegistryOptions", "RegistrySpec", "registry_options"]


class RegistryOptions(NamedTuple):
    """What a registry is described by, so that errors can name what to change.

    ``whole``: the registry's own option. ``login``: those of user and password.
    ``client``: those of the client's certificate and key.
    """

    whole: str
    url: str
    login: str
    ca_file: str
    client: str


def registry_options(whole: str) -> RegistryOptions:
    """Those of a registry that ``whole`` describes, such as ``source.registry`` of a feed."""
    return RegistryOptions(
        whole,
        url=f"{whole}.url",
        login=f"{whole}.user and {whole}.password_file",
        ca_file=f"{whole}.ca_file",
        client=f"{whole}.certificate_file and key_file",
    )


class RegistrySpec(Strict):
    """Where the schemas of Avro records are. The password comes from ``password_file``, never from the log.

    ``ca_file``: whose signature the registry's certificate must have, instead of those the machine trusts.
    ``certificate_file`` and ``key_file``: the client's own certificate, for a registry that asks for one.
    """

    url: str
    user: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    """The client's private key: a name in the folder for secrets, or a whole path in it."""
    allow_plain_http: bool = False
    """User and password are sent over http, where they can be read on the way."""

    @field_validator("url")
    @classmethod
    def _address(cls, given: str) -> str:
        try:
            server_url(given)
        except ServerUrlError as error:
            if error.has_credentials:
                raise ValueError(
                    "it must not contain credentials, because feeds are stored in Kafka. Use user and password_file"
                ) from None
            raise ValueError(
                "it is not the URL of a server. Write it as https://registry.example:8081, without a query (?)"
            ) from None
        return given

    @model_validator(mode="after")
    def _fit_together(self) -> "RegistrySpec":
        if (self.user is None) != (self.password_file is None):
            raise ValueError("user and password_file: give both or neither")
        if self.user is not None and ":" in self.user:
            raise ValueError("user: HTTP basic authentication does not allow a colon in it")
        is_plain = not self.url.startswith("https:")
        if self.user is not None and is_plain and not self.allow_plain_http:
            raise ValueError(
                "http sends user and password in plain text. Use an https address, or set allow_plain_http: true"
            )
        if self.allow_plain_http and (self.user is None or not is_plain):
            raise ValueError("allow_plain_http needs an http address, user and password_file. Remove it")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file: give both or neither")
        file = next((name for name in ("ca_file", "certificate_file") if getattr(self, name) is not None), None)
        if file is not None and is_plain:
            raise ValueError(f"{file} needs an https address, because http has no certificates")
        return self
