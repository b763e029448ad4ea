"""A broker that lets nobody in without a name and a right: users by password, and services by certificate."""

from pathlib import Path

import trustme
from confluent_kafka.admin import (
    AclBinding,
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from headgate.app.access_rules import access_rule
from headgate.config.rights import Topics, grants, who_has_rights
from headgate.generation.changelog.shell.wire import positions_topic
from headgate_lab.embedded.broker import CALM, EmbeddedKafka
from headgate_lab.embedded.ports import HOST, free_ports
from support.access import grant, revoke

CHANGE_LOG = "ledger"
COPIED_TOPIC = "copied.src.orders"
TARGETS = "copy."
USERS = (
    "coordinator",
    "agent",
    "views",
    "migration",
    "generation",
    "writer",
    "ingest",
    "sink",
    "reader",
    "operator",
    "approver",
    "stranger",
)

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""Mechanisms beside PLAIN, for users who were given a password by ``remember``."""

SCRAM_ITERATIONS = 4096
"""As few as Kafka takes."""

ANSWER_SECONDS = 30.0

LISTENERS = ("GUARDED", "SECURED", "PROTECTED")


class Papers:
    """Certificates as files: of the authority, of the broker, of a client, with its key in two forms."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca, self.stranger_ca = folder / "ca.pem", folder / "stranger.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        trustme.CA().cert_pem.write_to_path(str(self.stranger_ca))
        self.broker = folder / "broker.pem"
        certificate = authority.issue_cert(HOST)
        self.broker.write_bytes(_pkcs8(certificate) + certificate.cert_chain_pems[0].bytes())
        client = authority.issue_cert("headgate@example.org")
        self.chain, self.key, self.old_key = folder / "chain.pem", folder / "key.pem", folder / "old-key.pem"
        client.cert_chain_pems[0].write_to_path(str(self.chain))
        client.private_key_pem.write_to_path(str(self.old_key))
        self.key.write_bytes(_pkcs8(client))


def _pkcs8(certificate: trustme.LeafCert) -> bytes:
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class GuardedKafka:
    """A broker with an authorizer, where only those without a name may do everything.

    ``by_password``, ``by_password_with_tls`` and ``by_certificate`` are addresses; whoever comes with a certificate is
    the user agent.
    """

    def __init__(self, folder: Path) -> None:
        self.papers = Papers(folder)
        guarded, secured, protected = free_ports(3)
        self.by_password, self.by_certificate = f"{HOST}:{guarded}", f"{HOST}:{secured}"
        self.by_password_with_tls = f"{HOST}:{protected}"
        users = " ".join(f'user_{name}="secret of {name}"' for name in USERS)
        settings = CALM | {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT,SECURED:SSL,PROTECTED:SASL_SSL"
            ),
            **_passwords("guarded", users),
            **_passwords("protected", users),
            "listener.name.protected.ssl.client.auth": "none",
            "listener.name.protected.ssl.keystore.type": "PEM",
            "listener.name.protected.ssl.keystore.location": str(self.papers.broker),
            "listener.name.secured.ssl.client.auth": "required",
            "listener.name.secured.ssl.keystore.type": "PEM",
            "listener.name.secured.ssl.keystore.location": str(self.papers.broker),
            "listener.name.secured.ssl.truststore.type": "PEM",
            "listener.name.secured.ssl.truststore.location": str(self.papers.ca),
            "ssl.principal.mapping.rules": "RULE:^.*$/agent/",
        }
        further = {name: (port, port) for name, port in zip(LISTENERS, (guarded, secured, protected), strict=True)}
        self.kafka = EmbeddedKafka(folder / "kafka", settings=settings, further_listeners=further)


def remember(kafka: EmbeddedKafka, user: str, password: str) -> None:
    """Have the cluster keep a user's password for SCRAM."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, SCRAM_ITERATIONS)
        asked = UserScramCredentialUpsertion(user, info, password.encode())
        for future in admin.alter_user_scram_credentials([asked]).values():
            future.result(ANSWER_SECONDS)


def _passwords(listener: str, users: str) -> dict[str, str]:
    return {
        f"listener.name.{listener}.sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM)),
        **{
            f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            )
            for mechanism in SCRAM
        },
        f"listener.name.{listener}.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
    }


def needed(source: str) -> list[AclBinding]:
    """The table's rights as access rules, ``source`` for the feeds' topics, and for the change logs' those of one."""
    topics = {
        Topics.FEEDS: [source],
        Topics.CHANGE_LOGS: [CHANGE_LOG, positions_topic(CHANGE_LOG)],
        Topics.COPIED: [COPIED_TOPIC],
        Topics.TARGETS: [TARGETS],
    }
    assert set(who_has_rights()) == set(USERS) - {"stranger"}
    return [access_rule(each, f"User:{each.who}") for each in grants("headgate", topics)]


def granted(kafka: EmbeddedKafka, rules: list[AclBinding]) -> None:
    grant(AdminClient({"bootstrap.servers": kafka.bootstrap}), rules)


def revoked(kafka: EmbeddedKafka, rule: AclBinding) -> None:
    revoke(AdminClient({"bootstrap.servers": kafka.bootstrap}), rule)
