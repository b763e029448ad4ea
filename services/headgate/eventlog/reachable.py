"""A quick check whether any broker accepts connections.

librdkafka keeps trying until a request's time is over, which is right for a service and too slow for a person who has
mistyped a port.
"""

import socket
from typing import Final

from headgate.eventlog.connection import BrokerUnreachableError

__all__ = ["check_takes_connections"]

_CONNECT_SECONDS: Final = 2.0
"""An address that does not refuse by then is left to librdkafka, which waits longer."""

_PORT: Final = 9092
_PORT_MAX: Final = 65_535


def check_takes_connections(bootstrap: str) -> None:
    """Raise BrokerUnreachableError if every broker of ``bootstrap`` refuses connections, or has no address."""
    refusals = [_refusal(address.strip()) for address in bootstrap.split(",") if address.strip()]
    said = [refusal for refusal in refusals if refusal is not None]
    if said and len(said) == len(refusals):
        raise BrokerUnreachableError(
            f"no Kafka broker accepts connections at {bootstrap}: {'; '.join(dict.fromkeys(said))}. Check that the "
            "broker runs, and the address (--bootstrap, HEADGATE_BOOTSTRAP)"
        )


def _refusal(address: str) -> str | None:
    """Why this broker cannot be connected to; None if it can, or if that is not known."""
    host, colon, text = address.rpartition("://")[2].rpartition(":")
    if colon and ":" not in host and not text.isdigit():
        return f"{text!r} is not a port"
    host, port = _parts(address)
    if port > _PORT_MAX:
        return f"{port} is not a port"
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        return f"host {host} is unknown"
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return f"{host}:{port} refuses the connection"
    except OSError:
        pass
    return None


def _parts(address: str) -> tuple[str, int]:
    """Host and port, as librdkafka reads them: a protocol may precede them, and the port may be missing."""
    place = address.rpartition("://")[2]
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdigit():
        return place.strip("[]"), _PORT
    return host.strip("[]"), int(port)
