"""Connections to a Kafka cluster that feeds write to: what its address names is checked for each new client."""

import os

from headgate.config.secrets import NotPermittedError, check_hosts
from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.kafka.address import address_of, parse_address
from headgate.eventlog.connection import KafkaConnection, KafkaProperty, PropertyRefusedError

__all__ = ["check_brokers", "connect"]


def connect(target: Target) -> KafkaConnection:
    """A connection to the cluster. Raises DatabaseRefusedError. Connects to nothing yet.

    The password is read for each client, so that one that is replaced is used by the next. Then PropertyRefusedError is
    raised for a file that is not permitted or cannot be read.
    """
    parsed, address = parse_address(target.dsn, target.options), address_of(target.dsn, target.options)
    password_file = target.options.password_file
    if (parsed.user is None) != (target.password_file is None):
        why = "the address names no user" if parsed.user is None else "the address names a user"
        do = f"Remove {password_file}, or add sasl.username" if parsed.user is None else f"Set {password_file}"
        raise DatabaseRefusedError(f"{password_file} and sasl.username: give both or neither; {why}. {do}")
    target.check(address)

    def secrets() -> dict[str, KafkaProperty]:
        for name, file in parsed.files.items():  # librdkafka names neither
            if not os.access(file, os.R_OK):
                raise PropertyRefusedError(f"{name} of {target.options.address}: cannot read file {file}")
        try:
            password = target.password(address)
        except DatabaseRefusedError as error:
            raise PropertyRefusedError(str(error)) from error
        return {} if password is None else {"sasl.password": password}

    return KafkaConnection(parsed.bootstrap, parsed.properties, secrets, target.options.address)


def check_brokers(hosts: tuple[str, ...], target: Target) -> None:
    """Raise DatabaseRefusedError for hosts that a cluster names as its brokers, and this process must not use."""
    try:
        check_hosts(hosts, f"the cluster of {target.options.address}")
    except NotPermittedError as error:
        raise DatabaseRefusedError(str(error)) from error
