"""Makes the broker's users for docker-compose.secure.yml, and gives Kafka Connect its rights.

Who this process is, its environment says (a certificate). The rights of Headgate's own services are granted after it,
by `headgate topic grant`, from the one table of them; Connect is none of these services.
"""

import sys
from pathlib import Path

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from headgate.app.access_rules import access_rule
from headgate.config.rights import Grant, Resource
from headgate.config.settings import load_settings
from headgate.eventlog.connection import KafkaConnection

PASSWORDS = Path("/run/credentials/users")
"""A file for each user, of its name."""

ITERATIONS = 4096
"""The least that Kafka takes; the passwords are random, so that more would protect nothing."""

CONNECT = {
    # Its own topics, and those of infra/docker/connector.py.
    "connect-": ("Create", "Describe", "DescribeConfigs", "Read", "Write"),
    "shop.": ("Create", "Describe", "DescribeConfigs", "Write"),
    "__debezium-heartbeat.": ("Create", "Describe", "DescribeConfigs", "Write"),
}


def main() -> None:
    """Users first: a rule may name one that is not there, but nobody could log in."""
    settings = load_settings()
    connection = KafkaConnection(settings.bootstrap, settings.kafka)
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    wanted = [UserScramCredentialUpsertion(file.name, scram, file.read_bytes()) for file in sorted(PASSWORDS.iterdir())]
    if not wanted:
        sys.exit(f"{PASSWORDS} names no user")
    for user, future in connection.admin.alter_user_scram_credentials(wanted).items():
        connection.wait(f"making the user {user}", future)
    grants = [
        Grant("connect", Resource.TOPIC, prefix, is_prefix=True, operation=operation)
        for prefix, operations in CONNECT.items()
        for operation in operations
    ]
    grants += [Grant("connect", Resource.GROUP, "connect", is_prefix=False, operation="Read")]
    for future in connection.admin.create_acls([access_rule(each, "User:connect") for each in grants]).values():
        connection.wait("granting Connect its rights", future)
    connection.close()
    sys.stdout.write(f"users: {', '.join(user.user for user in wanted)}\n")


if __name__ == "__main__":
    main()
