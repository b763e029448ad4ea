"""Whether a catalog may be given the content of the password's file: a password, a token or a client's secret."""

from pathlib import Path
from urllib.parse import urlsplit

from headgate.databases.address import THIS_MACHINE, AddressOptions
from headgate.databases.iceberg.address import CatalogLocation
from headgate.sinks.contract import SinkRefusedError

__all__ = ["check_credentials"]


def check_credentials(place: CatalogLocation, password_file: Path | None, options: AddressOptions) -> None:
    """Raise SinkRefusedError for a file that is missing or of no use, or that others could read on the way.

    Asked for each request, because a named connection may change at any time.
    """
    if password_file is None:
        if place.client is not None:
            raise SinkRefusedError(
                f"{options.address} has a client_id, and no file has its secret. Name one in {options.password_file}"
            )
        return
    if place.file is not None:
        raise SinkRefusedError(f"{options.password_file}: a SQLite file has no password. Remove it")
    for url in (place.rest, None if place.client is None else place.client.server):
        at = urlsplit(url or "")
        if at.scheme == "http" and at.hostname not in THIS_MACHINE:
            what, write = ("token", "rest+https") if url == place.rest else ("secret", "oauth2_server_uri=https")
            raise SinkRefusedError(
                f"{options.address}: others could read the {what} on the way to {url}. Write {write}://"
            )
