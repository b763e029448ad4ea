"""Addresses of Iceberg's catalogs: SQL catalogs in PostgreSQL or in a SQLite file, and REST catalogs.

``postgresql://user@host:port/database?warehouse=/folder&catalog=name``, with libpq's own options as well,
``sqlite:////folder/catalog.db?catalog=name&warehouse=/folder``, and
``rest+https://host:port/path?catalog=name&warehouse=/folder``, with ``client_id=name`` where tokens are issued by an
OAuth2 server. The warehouse is a folder, or ``s3://bucket/prefix``.
"""

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from headgate.config.server_url import ServerUrlError, server_url
from headgate.config.wording import did_you_mean, nearest
from headgate.databases import buckets
from headgate.databases.address import SINK, Address, AddressOptions, tls_refused
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.postgresql import address as postgresql

__all__ = ["CATALOG", "SCHEMES", "SQLITE", "CatalogLocation", "ClientCredentials", "address_of", "place_of", "with_tls"]

SQLITE: Final = "sqlite://"
REST: Final = ("rest+https://", "rest+http://")
SCHEMES: Final = (SQLITE, *postgresql.SCHEMES, *REST)
"""How an address of this kind begins."""

_FILE_FORM: Final = f"{SQLITE}//folder/catalog.db"
_SERVER_FORM: Final = "postgresql://user@host:port/database?warehouse=/folder"
_REST_FORM: Final = f"{REST[0]}host:port/path?warehouse=/folder"
CATALOG: Final = "default"
"""pyiceberg's name for a catalog that has none."""

_NAME_OPTION: Final = "catalog"
_FOLDER_OPTION: Final = "warehouse"
_CA_OPTION: Final = "ca_file"
_TOKENS_OPTION: Final = "oauth2_server_uri"
_CLIENT_OPTION: Final = "client_id"
_FOR_TOKENS: Final = (_CLIENT_OPTION, _TOKENS_OPTION, "scope", "audience", "resource")
"""Names of Iceberg's own options. The secret is in the password's file."""

_SECRETS: Final = frozenset({"client_secret", "credential", "token", "password"})
"""What people may write from other engines' settings."""

_TOKENS_PATH: Final = "/v1/oauth/tokens"
"""Of a REST catalog that issues tokens itself, as Polaris does."""

_WORD: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_WORDS: Final = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*")
_OPTIONS: Final = (_NAME_OPTION, _FOLDER_OPTION)
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._ -]+)+")
_REST_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)*/?")
_PORTS: Final = {"https": 443, "http": 80}
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}")


class ClientCredentials(msgspec.Struct, frozen=True):
    """Who asks an OAuth2 server for a token, and for what. ``server``: its URL, ``id``: the client's."""

    server: str
    id: str
    scope: str | None = None
    audience: str | None = None
    resource: str | None = None


class CatalogLocation(msgspec.Struct, frozen=True):
    """A catalog: its name among the catalogs of its database, that database, and where Headgate puts tables.

    ``catalog``: None at a REST server that is not asked for one of its catalogs by name.
    ``warehouse``: the path of a folder, or a place in an object store.
    ``file``: of SQLite. ``dsn``: libpq's URL of a database at PostgreSQL. ``rest``: a URL. One of them is given.
    ``ca_file``: of the certificate of ``rest``, and of the server that issues tokens to ``client``. Without ``client``
    the password is a token itself.
    """

    catalog: str | None
    warehouse: str
    file: Path | None = None
    dsn: str | None = None
    rest: str | None = None
    ca_file: str | None = None
    client: ClientCredentials | None = None

    @property
    def text(self) -> str:
        """The address in its one spelling; a password in it stays."""
        given = {} if self.catalog is None else {_NAME_OPTION: self.catalog}
        given |= {_FOLDER_OPTION: self.warehouse}
        given |= {} if self.ca_file is None else {_CA_OPTION: self.ca_file}
        if self.client is not None:
            asked = {
                _CLIENT_OPTION: self.client.id,
                _TOKENS_OPTION: self.client.server,
                "scope": self.client.scope,
                "audience": self.client.audience,
                "resource": self.client.resource,
            }
            given |= {name: value for name, value in asked.items() if value is not None}
        own = urlencode(given, safe="/:", quote_via=quote)
        if self.rest is not None:
            return f"rest+{self.rest}?{own}"
        if self.dsn is None:
            return f"{SQLITE}/{self.file}?{own}"
        return f"{self.dsn}{'&' if '?' in self.dsn else '?'}{own}"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Local ones that are written to."""
        file = () if self.file is None else (self.file.parent,)
        return file if self.buckets else (*file, Path(self.warehouse))

    @property
    def buckets(self) -> tuple[str, ...]:
        """The place in an object store, if the warehouse is there."""
        return (self.warehouse,) if buckets.is_store(self.warehouse) else ()

    @property
    def url(self) -> str:
        """The warehouse as Iceberg names it."""
        return self.warehouse if self.buckets else f"file://{self.warehouse}"


def place_of(dsn: str, options: AddressOptions = SINK) -> CatalogLocation:
    """The address, taken apart. Raises DatabaseRefusedError, which does not quote it: it may hold a password."""
    if dsn.startswith(postgresql.SCHEMES):
        return _at_postgresql(dsn, options)
    if dsn.startswith(SQLITE):
        return _in_file(dsn, options)
    if dsn.startswith(REST):
        return _at_rest(dsn, options)
    raise DatabaseRefusedError(
        f"{options.address} is not the address of an Iceberg catalog that Headgate can use: a SQL catalog in "
        f"PostgreSQL or in a SQLite file, or a REST catalog. Write it as {_SERVER_FORM}, or as {_FILE_FORM}, or as "
        f"{_REST_FORM}"
    )


def address_of(dsn: str, options: AddressOptions = SINK) -> Address:
    """See Address. Raises DatabaseRefusedError, which never quotes the address."""
    place = place_of(dsn, options)
    if place.rest is not None:
        at = urlsplit(place.rest)
        issuer = () if place.client is None else (urlsplit(place.client.server).hostname or "",)
        return Address(
            place.text,
            tuple(dict.fromkeys((at.hostname or "", *issuer))),
            server=at.netloc,
            folders=place.folders,
            buckets=place.buckets,
        )
    if place.dsn is None:
        assert place.file is not None  # noqa: S101 - one of them is given
        return Address(place.text, (), server=str(place.file), folders=place.folders, buckets=place.buckets)
    database = postgresql.address_of(place.dsn, options)
    url, _ = postgresql.url_of(database.text, options)
    return Address(
        msgspec.structs.replace(place, dsn=url).text,
        database.hosts,
        database.key_file,
        has_password=database.has_password,
        server=database.server,
        folders=place.folders,
        buckets=place.buckets,
    )


def with_tls(dsn: str, files: Mapping[str, str], options: AddressOptions) -> str:
    """See Kind."""
    place = place_of(dsn, options)
    if place.rest is not None:
        return _with_ca(place, files, options).text
    if place.dsn is None:
        raise DatabaseRefusedError(f"{options.address} names a SQLite file, and tls is for servers. Remove tls")
    url, _ = postgresql.url_of(postgresql.with_tls(place.dsn, files, options), options)
    return msgspec.structs.replace(place, dsn=url).text


def _at_postgresql(dsn: str, options: AddressOptions) -> CatalogLocation:
    head, _, query = dsn.partition("?")
    pairs = [(unquote(each.partition("=")[0]), each) for each in query.split("&") if each]
    for name, _ in pairs:
        near = nearest(name, _OPTIONS)
        if near and name not in _OPTIONS and name not in postgresql.ALLOWED:
            raise DatabaseRefusedError(f"{options.address} has an option that is not known; {did_you_mean(near)}")
    own = _once("&".join(each for name, each in pairs if name in _OPTIONS), options)
    rest = "&".join(each for name, each in pairs if name not in _OPTIONS)
    postgresql.url_of(url := f"{head}?{rest}" if rest else head, options)
    if _FOLDER_OPTION not in own:
        raise DatabaseRefusedError(
            f"{options.address} does not name the folder of the tables. Write it as {_SERVER_FORM}"
        )
    warehouse = _warehouse(own[_FOLDER_OPTION], options, _SERVER_FORM)
    return CatalogLocation(_name(own, options), warehouse, dsn=url)


def _at_rest(dsn: str, options: AddressOptions) -> CatalogLocation:
    parts = _split(dsn.removeprefix("rest+"), options, _REST_FORM)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError:
        port = 0
    path = parts.path.rstrip("/")
    names = set(path.split("/"))
    if not parts.hostname or not port or "@" in parts.netloc or parts.fragment or {".", ".."} & names:
        raise DatabaseRefusedError(
            f"{options.address} is not valid. Write it as {_REST_FORM}, without a user in it, and %23 for # in a value"
        )
    if _REST_PATH.fullmatch(path) is None:
        raise DatabaseRefusedError(f"{options.address}: the path has other characters than letters, digits and ._~-/")
    own = _own_options(parts.query, (*_OPTIONS, _CA_OPTION, *_FOR_TOKENS), options)
    if _FOLDER_OPTION not in own:
        raise DatabaseRefusedError(
            f"{options.address} does not name the folder of the tables. Write it as {_REST_FORM}"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    ca_file = own.get(_CA_OPTION)
    rest = f"{parts.scheme}://{host}:{port}{path}"
    return CatalogLocation(
        _name(own, options) if _NAME_OPTION in own else None,
        _warehouse(own[_FOLDER_OPTION], options, _REST_FORM),
        rest=rest,
        client=_client(own, rest, options),
        ca_file=None if ca_file is None else str(_path(ca_file, f"{options.address}: {_CA_OPTION}", _REST_FORM)),
    )


def _split(dsn: str, options: AddressOptions, form: str) -> SplitResult:
    try:
        return urlsplit(dsn)
    except ValueError:
        raise DatabaseRefusedError(f"{options.address} is not valid. Write it as {form}") from None


def _client(own: Mapping[str, str], rest: str, options: AddressOptions) -> ClientCredentials | None:
    """Who asks for tokens, None if the password is one. Raises DatabaseRefusedError."""
    given = {name: own[name] for name in _FOR_TOKENS if name in own}
    if not given:
        return None
    if _CLIENT_OPTION not in given:
        raise DatabaseRefusedError(
            f"{options.address} has {', '.join(given)} and no {_CLIENT_OPTION}. Name the client, whose secret is in "
            f"{options.password_file}"
        )
    for name, value in given.items():
        if (_WORDS if name == "scope" else _WORD).fullmatch(value) is None:
            form = "words of them, with one space between two" if name == "scope" else "without spaces"
            raise DatabaseRefusedError(f"{options.address}: {name} must be printable ASCII characters, {form}")
    return ClientCredentials(
        _token_server(given.get(_TOKENS_OPTION, rest + _TOKENS_PATH), options),
        given[_CLIENT_OPTION],
        given.get("scope"),
        given.get("audience"),
        given.get("resource"),
    )


def _token_server(url: str, options: AddressOptions) -> str:
    """The URL in its one spelling. Raises DatabaseRefusedError, which does not quote it: it may hold a secret."""
    try:
        return server_url(url).text
    except ServerUrlError:
        raise DatabaseRefusedError(
            f"{options.address}: {_TOKENS_OPTION} is not the URL of a token server. Write it as https://host/path, "
            "without a user, a query and a fragment"
        ) from None


def _with_ca(place: CatalogLocation, files: Mapping[str, str], options: AddressOptions) -> CatalogLocation:
    if place.ca_file is not None:
        raise tls_refused(options, [_CA_OPTION])
    if files.keys() - {_CA_OPTION}:
        raise DatabaseRefusedError(f"{options.address} names a REST catalog: of tls it takes {_CA_OPTION} only")
    return msgspec.structs.replace(place, ca_file=files.get(_CA_OPTION))


def _own_options(query: str, known: tuple[str, ...], options: AddressOptions) -> dict[str, str]:
    own = parse_qsl(query, keep_blank_values=True)
    secret = next((name for name, _ in own if name in _SECRETS), None)
    if secret is not None:
        raise DatabaseRefusedError(
            f"{options.address}: {secret} is refused: it is a secret, and feeds are stored in Kafka. "
            f"{options.way_of_secrets}"
        )
    for name, _ in own:
        if name not in known:
            question = did_you_mean(nearest(name, known))
            raise DatabaseRefusedError(
                f"{options.address} has an option that is not known{f'; {question}' if question else '.'} Choose "
                f"from {', '.join(known[:-1])} and {known[-1]}"
            )
    return _once(query, options)


def _once(query: str, options: AddressOptions) -> dict[str, str]:
    """Options that are known. Raises DatabaseRefusedError for one that is given twice."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in found:
            raise DatabaseRefusedError(f"{options.address} has {name} more than once. Remove one of them")
        found[name] = value
    return found


def _in_file(dsn: str, options: AddressOptions) -> CatalogLocation:
    parts = _split(dsn, options, _FILE_FORM)
    if parts.netloc or not parts.path.startswith("//"):
        raise DatabaseRefusedError(
            f"{options.address} does not name a file by its absolute path. Write it with four slashes, as {_FILE_FORM}"
        )
    own = _own_options(parts.query, _OPTIONS, options)
    file = _path(parts.path[1:], options.address, _FILE_FORM)
    folder = own.get(_FOLDER_OPTION)
    warehouse = str(file.parent) if folder is None else _warehouse(folder, options, _FILE_FORM)
    return CatalogLocation(_name(own, options), warehouse, file=file)


def _name(own: Mapping[str, str], options: AddressOptions) -> str:
    name = own.get(_NAME_OPTION, CATALOG)
    if not _NAME.fullmatch(name):
        raise DatabaseRefusedError(
            f"{options.address}: catalog must be a name of letters, digits, underscores, points and hyphens"
        )
    return name


def _warehouse(text: str, options: AddressOptions, form: str) -> str:
    option = f"{options.address}: {_FOLDER_OPTION}"
    return buckets.place_in_store(text, option) if buckets.is_store(text) else str(_path(text, option, form))


def _path(text: str, option: str, form: str) -> Path:
    if _PATH.fullmatch(text.rstrip("/")) is None or {".", ".."} & set(text.split("/")):
        raise DatabaseRefusedError(
            f"{option} is not an absolute path of letters, digits, spaces, points, hyphens and underscores, without . "
            f"and .. as names. Write the address as {form}"
        )
    return Path(posixpath.normpath(text))
