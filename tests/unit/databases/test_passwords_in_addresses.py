"""A password that is written into an address, however malformed, is in no error about it."""

from collections.abc import Callable
from itertools import product
from typing import Final

import psycopg
import pymysql
import pytest

from headgate.databases.address import Address, AddressOptions, Target
from headgate.databases.errors import DatabaseError, DatabaseRefusedError
from headgate.databases.kinds import CONNECTED, KINDS, kind_of
from headgate.databases.mysql.unopened import unopened_mysql
from headgate.databases.postgresql.unopened import unopened_postgresql

OPTIONS: Final = AddressOptions("--source", "--source-password-file", "source")
FIRST, LAST = "qzx", "kwv"
BETWEEN: Final = (
    "", "/", "?", "#", "@", ":", "[", "]", " ", "=", "%zz", "&", ",", "//", "://", "@/", "@h?", "@h?x=1&", "?sslmode=",
    "@h/d?bulk=", "\\", "'", '"', ";",
)  # fmt: skip
FORMS: Final = (
    "{scheme}me:{password}@db/shop",
    "{scheme}me:{password}@db:5432/shop?sslmode=require",
    "{scheme}me:12{password}@db/shop",
    "{scheme}me:{password}",
    "{scheme}me:{password}/shop",
    "{scheme}db/shop?password={password}",
    "me:{password}@db/shop",
    "me:{password}",
    "host=db password={password}",
    "host=db password='{password}",
    "host=me:{password}@db",
    "host=db dbname=me:{password}@db",
)


def texts(dsn: str) -> list[str]:
    """Every text that shows a part of the address: the refusal, or the errors of a session that is not opened."""
    found = []
    for kinds in (KINDS, CONNECTED):
        try:
            kind = kind_of(dsn, OPTIONS, kinds)
            address = kind.address(dsn, OPTIONS)
        except DatabaseRefusedError as error:
            found.append(f"{error} {error.__cause__}")
            continue
        opener = OPENERS.get(kind.name)
        if opener is not None:
            found.append(str(opener(Target(dsn, options=OPTIONS), address)))
    return found


OPENERS: Final[dict[str, Callable[[Target, Address], DatabaseError]]] = {
    "postgresql": lambda target, address: unopened_postgresql(psycopg.OperationalError("said"), target, address),
    "mysql": lambda target, address: unopened_mysql(pymysql.err.OperationalError(1999, "said"), target, address),
}


@pytest.mark.parametrize("scheme", sorted({scheme for kind in CONNECTED.values() for scheme in kind.schemes}))
def test_no_part_of_a_password_is_quoted(scheme: str) -> None:
    quoted = [
        (dsn, text)
        for form, between in product(FORMS, BETWEEN)
        if "@" in form.partition("{password}")[2] or "@" not in between  # else what follows is the host
        for dsn in [form.format(scheme=scheme, password=f"{FIRST}{between}{LAST}")]
        for text in texts(dsn)
        if FIRST in text or LAST in text
    ]
    assert not quoted


def test_what_to_do_with_such_a_password() -> None:
    for dsn in ("postgresql://me:pa/ss@db/shop", "mysql://me:pa/ss@db/shop"):
        with pytest.raises(DatabaseRefusedError, match=r"Percent-encode.*--source-password-file"):
            kind_of(dsn, OPTIONS).address(dsn, OPTIONS)
    address = kind_of("postgresql://", OPTIONS).address("postgresql://me:pa%2Fss@db/shop", OPTIONS)
    assert (address.has_password, address.server) == (True, "db:5432")
