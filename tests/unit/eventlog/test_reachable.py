"""A broker that refuses is known at once."""

import socket

import pytest

from headgate.eventlog.connection import BrokerUnreachableError
from headgate.eventlog.reachable import check_takes_connections


@pytest.fixture
def unused() -> str:
    with socket.socket() as once:
        once.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{once.getsockname()[1]}"


def test_one_that_listens_is_enough(unused: str) -> None:
    with socket.socket() as broker:
        broker.bind(("127.0.0.1", 0))
        broker.listen()
        port = broker.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"{unused},127.0.0.1:{port}", f"PLAINTEXT://127.0.0.1:{port}"):
            check_takes_connections(address)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("{unused}", "refuses the connection"),
        ("{unused},{unused}", "refuses the connection"),
        ("no.such.host.invalid:9092", "host no.such.host.invalid is unknown"),
        ("127.0.0.1:99999", "99999 is not a port"),
        ("127.0.0.1:x", "'x' is not a port"),
    ],
)
def test_what_refuses_is_named(unused: str, address: str, says: str) -> None:
    given = address.format(unused=unused)
    with pytest.raises(BrokerUnreachableError, match=says) as refused:
        check_takes_connections(given)
    assert given in str(refused.value)
    assert str(refused.value).count("refuses") <= 1


def test_an_address_that_names_nobody_is_left_to_the_client() -> None:
    check_takes_connections(" , ")
