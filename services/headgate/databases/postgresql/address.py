"""Addresses of PostgreSQL: libpq's connection strings, with the parameters that may be stored on a topic.

libpq has parameters that are secrets, that name files of secrets, that make it read its address from a file or write
TLS keys to one; later versions have more. So the ones that may be used are listed, and all others are refused by name.
"""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Final
from urllib.parse import quote

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.config.wording import did_you_mean, nearest
from headgate.databases.address import SINK, Address, AddressOptions, check_password, tls_refused
from headgate.databases.errors import DatabaseRefusedError

SCHEMES: Final = ("postgresql://", "postgres://")
"""How a URL of this kind begins. libpq's other form has no scheme."""

_KEY_FILE: Final = "sslkey"
_TLS_FILES: Final = {"ca_file": "sslrootcert", "certificate_file": "sslcert", "key_file": _KEY_FILE}

ALLOWED: Final = (
    "host", "hostaddr", "port", "dbname", "user", "connect_timeout", "options",
    "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
    "sslmode", "sslnegotiation", "sslcert", _KEY_FILE, "sslcertmode", "sslrootcert", "sslcrl", "sslcrldir", "sslsni",
    "ssl_min_protocol_version", "ssl_max_protocol_version", "min_protocol_version", "max_protocol_version",
    "requirepeer", "require_auth", "channel_binding", "gssencmode", "krbsrvname", "gsslib",
    "target_session_attrs", "load_balance_hosts",
)  # fmt: skip
"""libpq's parameters that an address may have."""

_REFUSED: Final = {
    "sslpassword": f"it is a secret: let {_KEY_FILE} name a key without one, which only the service may read",
    "sslkeylogfile": "it would write the keys of every session to a file",
    "service": "it would read the address from a file: write its values into the address",
    "servicefile": "it would read the address from a file: write its values into the address",
    "application_name": "sessions use it to report their feed, table and epoch",
    "fallback_application_name": "sessions use application_name to report their feed, table and epoch",
    "client_encoding": "sessions are UTF-8",
    "replication": "a sink is written by ordinary sessions",
    "gssdelegation": "it would hand the service's own Kerberos credentials to the server",
}
_SECRETS: Final = frozenset({"passfile", "scram_client_key", "scram_server_key"})

_FORM: Final = "postgresql://user@host:port/database?option=value"

_NOT_AN_OPTION: Final = "invalid URI query parameter"
"""libpq's words before a name in a URL. All its other words about an address may quote a part of the password."""

_NOT_A_KEYWORD: Final = "invalid connection option"
"""The same for keywords, where a password with a space in it looks like one."""

_DEFAULTS: Final = {"port": "5432"}
"""libpq's defaults: an address must be the same whether they are left out or written out."""


def address_of(dsn: str, options: AddressOptions = SINK) -> Address:
    """See Address: keywords, sorted, defaults written out. Raises DatabaseRefusedError, which never quotes a value."""
    given = _parse(dsn, options)
    parameters = {name: value for name, value in {**_DEFAULTS, **given}.items() if name != "password"}
    if (host := parameters.get("host")) is not None:
        parameters["host"] = host.lower() if not host.startswith("/") else host.rstrip("/")
    return Address(
        make_conninfo("", **dict(sorted(parameters.items()))),
        _hosts(given),
        given.get(_KEY_FILE),
        has_password=bool(given.get("password")),
        server=",".join(f"{host}:{port}" for host, port in _places(parameters)),
        database=given.get("dbname", ""),
        user=given.get("user", ""),
    )


def with_tls(dsn: str, files: Mapping[str, str], options: AddressOptions) -> str:
    """See Kind."""
    given = _parse(dsn, options)
    tls = {"sslmode": "verify-full", **{_TLS_FILES[name]: file for name, file in files.items()}}
    if twice := sorted(given.keys() & {*_TLS_FILES.values(), "sslmode"}):
        raise tls_refused(options, twice)
    return make_conninfo(dsn, **tls)


def url_of(dsn: str, options: AddressOptions = SINK) -> tuple[str, str]:
    """The address as a URL without the password, and its database. Raises DatabaseRefusedError.

    It must name host, user and database, so that it means the same on every machine.
    """
    given = {name: value for name, value in {**_DEFAULTS, **_parse(dsn, options)}.items() if name != "password"}
    if not given.get("host") or not given.get("dbname") or not given.get("user"):
        raise DatabaseRefusedError(f"{options.address} must name host, user and database. Write {_FORM}")
    user, host, port, database = (given.pop(name) for name in ("user", "host", "port", "dbname"))
    at = ",".join(f"{_url_host(name)}:{number}" for name, number in _places({"host": host, "port": port}))
    rest = "&".join(f"{name}={quote(value, safe='/')}" for name, value in sorted(given.items()))
    url = f"postgresql://{quote(user, safe='')}@{at}/{quote(database, safe='')}"
    return (f"{url}?{rest}" if rest else url), database


def _places(parameters: Mapping[str, str]) -> list[tuple[str, str]]:
    """Every host with its port. One port is for all hosts."""
    hosts = (parameters.get("hostaddr") or parameters.get("host") or "localhost").split(",")
    ports = parameters["port"].split(",")
    of_all = ports * len(hosts) if len(ports) == 1 else ports
    return [(host, port or _DEFAULTS["port"]) for host, port in zip_longest(hosts, of_all, fillvalue="")]


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else quote(host, safe="")


def _parse(dsn: str, options: AddressOptions) -> dict[str, str]:
    check_password(dsn, options)
    try:
        given = conninfo_to_dict(dsn)
    except ProgrammingError as error:
        raise DatabaseRefusedError(
            f"{options.address} is not a libpq connection string{_explained(str(error).strip())} Write {_FORM}, and "
            "percent-encode a password that has other characters than letters and digits"
        ) from None
    _check_places(given, options)
    for name in sorted(given):
        if name in ALLOWED or name == "password":
            continue
        why = _REFUSED.get(name)
        if name in _SECRETS:
            why = f"it is a secret. {options.way_of_secrets}"
        elif why is None and (name.startswith("oauth") or "secret" in name or "password" in name):
            why = f"signing in by it is not supported. Use a password: {options.way_of_secrets}"
        raise DatabaseRefusedError(
            f"{options.address}: {name} is refused: {why or 'choose from ' + ', '.join(ALLOWED)}"
        )
    return {name: str(value) for name, value in given.items() if value is not None}


def _check_places(given: Mapping[str, object], options: AddressOptions) -> None:
    """Raise DatabaseRefusedError for what may be a part of a password. It is not quoted."""
    ports = str(given.get("port") or _DEFAULTS["port"]).split(",")
    wrong = [name for name in ("host", "dbname") if "@" in str(given.get(name, ""))]
    if any(port and not (port.isascii() and port.isdigit()) for port in ports):
        wrong.append("port")
    if wrong:
        raise DatabaseRefusedError(
            f"{options.address}: this is not a valid {wrong[0]}. Write {_FORM}, and percent-encode a password that has "
            "other characters than letters and digits"
        )


def _hosts(parameters: dict[str, str]) -> tuple[str, ...]:
    """Every host and address that it may connect to; ``""`` where libpq would choose one."""
    named = [
        host.strip() for name in ("host", "hostaddr") if parameters.get(name) for host in parameters[name].split(",")
    ]
    return tuple(named) or ("",)


def _explained(said: str) -> str:
    """Libpq's words about an option, if that cannot be a part of a password, and the option perhaps meant."""
    name = said.split('"')[1] if _NOT_AN_OPTION in said or _NOT_A_KEYWORD in said else ""
    is_quoted = _NOT_AN_OPTION in said or name in _REFUSED or name in _SECRETS
    sentences = (f": {said}." if is_quoted else ".", did_you_mean(nearest(name, ALLOWED), begins=True))
    return " ".join(filter(None, sentences))
