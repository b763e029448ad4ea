"""Addresses of target clusters: ``kafka://host:port,host:port``."""

from typing import Final

from headgate.config.secrets import NotPermittedError, check_hosts
from headgate.databases.address import SINK, Address
from headgate.sinks.contract import SinkRefusedError

__all__ = ["SCHEME", "address_of", "bootstrap_of", "check_brokers"]

SCHEME: Final = "kafka://"
FORM: Final = f"{SCHEME}host:port,host:port"


def address_of(dsn: str) -> Address:
    """The address, taken apart, with its brokers sorted. Raises SinkRefusedError, which never quotes it."""
    brokers = sorted(set(_brokers(dsn)))
    text = ",".join(f"{host}:{port}" for host, port in brokers)
    return Address(SCHEME + text, tuple(host.strip("[]") for host, _ in brokers), server=text)


def bootstrap_of(dsn: str) -> str:
    """As Kafka's clients take it."""
    return address_of(dsn).server


def check_brokers(hosts: tuple[str, ...]) -> None:
    """Raise SinkRefusedError for hosts that a cluster names as its brokers, and that this process must not use."""
    try:
        check_hosts(hosts, f"the cluster of {SINK.address}")
    except NotPermittedError as error:
        raise SinkRefusedError(str(error)) from error


def _brokers(dsn: str) -> list[tuple[str, int]]:
    if not dsn.startswith(SCHEME):
        raise SinkRefusedError(f"{SINK.address} is not of the form {FORM}")
    rest = dsn.removeprefix(SCHEME)
    if "@" in rest or "?" in rest:
        raise SinkRefusedError(
            f"{SINK.address} has a user or options, which Kafka sinks do not take yet: they connect without TLS and "
            f"without a user. Write it as {FORM}"
        )
    return [_broker(each) for each in rest.removesuffix("/").split(",")]


def _broker(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    is_host = bool(host) and "/" not in host and (":" not in host or (host[0] == "[" and host[-1] == "]"))
    if not is_host or not (port.isascii() and port.isdigit() and 0 < int(port) <= 65_535):
        raise SinkRefusedError(f"{SINK.address} names a broker that is not host:port. Write it as {FORM}")
    return host.lower(), int(port)
