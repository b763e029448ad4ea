"""Addresses of MySQL sinks: one spelling, no password on the log, nothing unknown."""

import pytest

from headgate.config.sink_spec import SinkSpec
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.mysql.address import parse_address
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.registry import same_sink


@pytest.mark.parametrize(
    "spelled",
    [
        "mysql://head%40gate@DB.example/shop?ssl_ca=/etc/ca.pem&bulk=load",
        "mariadb://head%40gate@db.example:3306/shop?ssl_ca=%2Fetc%2Fca.pem",
    ],
)
def test_two_spellings_of_one_sink_are_one(spelled: str) -> None:
    spec = same_sink(SinkSpec(type="mysql", dsn=spelled))
    assert spec.dsn == "mysql://head%40gate@db.example:3306/shop?ssl_ca=/etc/ca.pem"
    assert parse_address(spec.dsn).user == "head@gate"


def test_parts() -> None:
    address = parse_address("mysql://u:p%2Fw@[::1]:3307?bulk=insert")
    assert (address.user, address.password, address.host, address.port) == ("u", "p/w", "::1", 3307)
    assert (address.database, address.bulk) == (None, "insert")
    assert str(address) == "mysql://u@[::1]:3307/?bulk=insert"


@pytest.mark.parametrize(
    ("dsn", "says"),
    [
        ("host=db dbname=shop", "not of the form mysql://user@host"),
        ("postgresql://u@h/d", "not of the form"),
        ("mysql://host/db", "not of the form"),
        ("mysql://u@h:port/d", "Correct host and port"),
        ("mysql://u@h/a/b", "more than a database"),
        ("mysql://u@h/a?ssl_cert_file=x", "unknown option 'ssl_cert_file'; did you mean 'ssl_cert'"),
        ("mysql://u@h/a?bulk=quick", "bulk must be load or insert"),
    ],
)
def test_what_is_no_address_is_refused_and_not_quoted(dsn: str, says: str) -> None:
    with pytest.raises(DatabaseRefusedError, match=says):
        parse_address(dsn)


def test_a_password_never_gets_onto_the_log() -> None:
    with pytest.raises(SinkRefusedError, match=r"password_file") as refused:
        same_sink(SinkSpec(type="mysql", dsn="mysql://u:secret@h/d"))
    assert "secret" not in str(refused.value)
