"""The kind of database, or of another place that feeds write to, that an address belongs to."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from headgate.config.wording import did_you_mean, nearest
from headgate.databases.address import FORMS, Address, AddressOptions
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.iceberg import address as iceberg
from headgate.databases.kafka import address as kafka
from headgate.databases.mysql import address as mysql
from headgate.databases.postgresql import address as postgresql


class DatabaseKind(msgspec.Struct, frozen=True):
    """A kind of database: its name, how its addresses begin, and the parser of them.

    Functions raise DatabaseRefusedError.
    """

    name: str
    schemes: tuple[str, ...]
    address: Callable[[str, AddressOptions], Address]
    with_tls: Callable[[str, Mapping[str, str], AddressOptions], str]
    """An address, and files by the names ca_file, certificate_file and key_file → the address with these options."""


KINDS: Final = {
    kind.name: kind
    for kind in (
        DatabaseKind("postgresql", postgresql.SCHEMES, postgresql.address_of, postgresql.with_tls),
        DatabaseKind("mysql", mysql.SCHEMES, mysql.address_of, mysql.with_tls),
    )
}

"""Databases: what has a catalogue and takes statements."""

IGNORING_CASE: Final = frozenset({"mysql"})
"""Those that compare the names of columns without regard to case."""

CONNECTED: Final = KINDS | {
    kind.name: kind
    for kind in (
        DatabaseKind("kafka", kafka.SCHEMES, kafka.address_of, kafka.with_tls),
        DatabaseKind("iceberg", iceberg.SCHEMES, iceberg.address_of, iceberg.with_tls),
    )
}
"""What named connections can be."""


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


def kind_of(dsn: str, options: AddressOptions, kinds: Mapping[str, DatabaseKind] = KINDS) -> DatabaseKind:
    """The kind of an address. One without a scheme is a libpq connection string. Raises DatabaseRefusedError.

    The error does not quote the address, which may contain a password.
    """
    scheme, has_scheme, _ = dsn.partition("://")
    are_databases = kinds.keys() <= KINDS.keys()
    if not has_scheme:
        if are_databases and dsn and "=" not in dsn:
            raise DatabaseRefusedError(f"{options.address} is not the address of a database. Write {FORMS}")
        return KINDS["postgresql"]
    found = next((kind for kind in kinds.values() if f"{scheme}://" in kind.schemes), None)
    if found is not None:
        return found
    known = dict.fromkeys(scheme for kind in kinds.values() for scheme in kind.schemes)
    near = nearest(scheme, (each.removesuffix("://") for each in known))
    hints = [did_you_mean(near and f"{near}://", begins=True), f"Write {FORMS}" if are_databases else ""]
    *others, last = known
    begins = f"begins with {scheme}://" if _SCHEME.fullmatch(scheme) else "does not begin with a scheme"
    raise DatabaseRefusedError(
        f"{options.address} {begins}, and addresses begin with {', '.join(others)} or {last}. "
        f"{' '.join(filter(None, hints))}".rstrip()
    )
