"""The connection to a Kafka cluster: its address, the operator's librdkafka properties, and those that are fixed.

Any librdkafka property can be given by its own dotted name (security, timeouts, buffers), except those that a guarantee
depends on, which are refused by name: with another isolation level or acknowledgement mode everything would still seem
to work. Errors name the address, never the properties: they hold secrets.
"""

import logging
import math
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import ClassVar, Final, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headgate.eventlog.log import LogError
from headgate.eventlog.repeats import Repeats

T = TypeVar("T")

KafkaProperty = str | int | float | bool
"""A librdkafka property's value."""

ADMIN_SECONDS_MAX: Final = 10.0
"""One administrative request. A broker that restarts after a crash needs 4 to 12 s, as measured."""

ADMIN_METADATA_MS: Final = 5_000
"""How often the administrative client asks which brokers there are. librdkafka sends its requests to the broker that it
last heard of as controller. Were that one lost, librdkafka (2.16) would find out at its own refresh only, after five
minutes; until then each request would end in a time-out."""

SPARSE_CONNECTIONS: Final = False
"""Whether administrative clients and producers with a transactional.id connect to a broker only when they need it. Then
librdkafka (2.16) does not wait between attempts: a request to a broker that is away, such as the leader of a partition,
asks for a connection each time that any broker changes its state, which skips reconnect.backoff.ms, and a refused
connection is such a change. A request took most of a core until its time-out. And taking a transactional.id took 60 ms,
or 560 where no connection was there in time, instead of 8. Without, a client holds one connection to each broker."""

ASKERS_IDLE_MAX: Final = 2
"""Clients that wait for the next question to leaders of partitions. A process seldom asks more of them at a time; each
one costs three threads and a connection to each broker."""

FUTURE_GRACE_SECONDS: Final = 2.0
"""librdkafka ends every request by itself; only a bug would make us wait longer than its own limit plus this."""

FIXED_PROPERTIES: Final[dict[str, str]] = {
    "bootstrap.servers": "it is the address, which is set separately",
    "metadata.broker.list": "it is the address, which is set separately as bootstrap.servers",
    "isolation.level": "records of open and aborted transactions must never be read",
    "enable.partition.eof": "replays use it to find the end",
    "enable.auto.commit": "positions are in Headgate's own records",
    "enable.auto.offset.store": "positions are in Headgate's own records",
    "auto.offset.reset": "a lost position must be an error, never a jump",
    "group.id": "readers are assigned their partitions and belong to no group",
    "acks": "a write counts only once every in-sync replica has it",
    "request.required.acks": "a write counts only once every in-sync replica has it",
    "enable.idempotence": "retries must neither repeat nor reorder records",
    "transactional.id": "the role's name is the fence",
    "transaction.timeout.ms": "replays wait for as long as a dangling transaction can last",
    "message.timeout.ms": "a record that was abandoned must not appear later",
    "delivery.timeout.ms": "a record that was abandoned must not appear later",
    "delivery.report.only.error": "an owner's term is the offset of its record, which the delivery report contains",
    "plugin.library.paths": "it would load foreign code into every process",
    "client.id": "it identifies the process",
}
"""Refused properties, and why they are ours."""

PYTHON_ONLY: Final = ("_cb", "on_delivery", "on_commit", "default.topic.config")
"""Keys that confluent-kafka takes beside librdkafka's: they need functions or whole mappings."""

UNDERSCORED: Final = ("_cb", "log_level")
"""Names of properties that are written so."""

_CRITICAL: Final = 2
"""Of syslog's levels, which librdkafka takes."""

_FENCED: Final = re.compile(r"fenced by a newer instance|attempted an operation with an old epoch")
"""librdkafka's words for it, logged up to three times, and as critical."""

logger = logging.getLogger("headgate.kafka")


def _is_news(record: logging.LogRecord) -> bool:
    """Whether it is news. Fencing is not: owners succeed each other so, and the fenced role logs it once (role.py)."""
    return _FENCED.search(record.getMessage()) is None


logger.addFilter(_is_news)
logger.addFilter(Repeats())
# In a process that has set up no logs, such as a command, Python prints the bare line where no handler takes it, among
# the process's own output. What such a process must report is in its errors.
logger.addHandler(logging.NullHandler())


class ClusterSettings(Protocol):
    """A process's configuration of its Kafka cluster; headgate.config's settings have this shape."""

    @property
    def bootstrap(self) -> str:
        """Brokers, "host:port,…"."""
        ...

    @property
    def cluster(self) -> str:
        """Name of the Headgate cluster: the part before the dot in the names of its control topics."""
        ...

    @property
    def shards(self) -> int:
        """Number of shards that the cluster was, or will be, created with."""
        ...

    @property
    def replication_factor(self) -> int:
        """Copies of each control topic; used at creation only."""
        ...

    @property
    def cloudevents(self) -> bool:
        """Whether records have the headers of CloudEvents."""
        ...

    @property
    def kafka(self) -> Mapping[str, KafkaProperty]:
        """Properties of librdkafka by their own names; none of FIXED_PROPERTIES."""
        ...


class BrokerUnreachableError(LogError):
    """No broker answers at the address."""

    code: ClassVar[str] = "broker-unreachable"


class AccessRefusedError(BrokerUnreachableError):
    """Brokers answer at the address, but do not let this client in, or it does not trust them."""


class PropertyRefusedError(LogError):
    """A Kafka property that we fix, or that librdkafka does not know."""

    code: ClassVar[str] = "kafka-property-refused"


class _Refusals:
    """Why brokers refuse clients, which the clients report only outside of their answers, on their own threads.

    (Not a part of the connection: a client that knew it would be released by the garbage collector, on any thread.)
    """

    def __init__(self) -> None:
        self._last, self._at = "", -math.inf
        self._denied, self._denied_at = "", -math.inf
        self.fatal = ""
        """The latest reason why a producer accepts nothing any more; a producer reports it once."""

    def note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._FATAL:
            self.fatal = error.str()
        if error.code() in REFUSAL_CODES:
            self._last, self._at = error.str(), time.monotonic()
        if error.code() in DENIAL_CODES:
            self._denied, self._denied_at = self._last, self._at

    def recent(self) -> str:
        return self._last if time.monotonic() - self._at < REFUSAL_SECONDS_MAX else ""

    def denial(self) -> str:
        return self._denied if time.monotonic() - self._denied_at < REFUSAL_SECONDS_MAX else ""


class KafkaConnection:
    """The address and properties of one Kafka cluster, and its administrative requests."""

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, KafkaProperty] | None = None,
        secrets: Callable[[], Mapping[str, KafkaProperty]] = dict,
        given_in: str = "",
    ) -> None:
        """``bootstrap_servers`` is "host:port,…". Raises PropertyRefusedError. Connects to nothing yet.

        ``secrets``: further properties, which are read for each client, because they may be replaced.
        ``given_in``: the option that the properties come from, for errors.
        """
        for name in sorted(properties or {}):
            if name in FIXED_PROPERTIES:
                raise PropertyRefusedError(
                    f"Kafka property {name} cannot be set: {FIXED_PROPERTIES[name]}. Remove it from the properties"
                )
            if name.endswith(PYTHON_ONLY) or name == "logger":
                raise PropertyRefusedError(f"{name} is not a property of librdkafka: remove it from the properties")
        self.bootstrap_servers = bootstrap_servers
        self._properties = dict(properties or {})
        self._secrets = secrets
        self._given_in = given_in
        self._admin: AdminClient | None = None
        self._askers: deque[AdminClient] = deque(maxlen=ASKERS_IDLE_MAX)
        self._refusals = _Refusals()

    def client(self, make: Callable[..., T], **ours: KafkaProperty | Callable[..., None]) -> T:
        """A confluent-kafka client with our properties (dots written as underscores) and the operator's.

        The operator's win: those that must not be theirs were refused. Raises PropertyRefusedError.
        """
        named = {name if name.endswith(UNDERSCORED) else name.replace("_", "."): value for name, value in ours.items()}
        config = {
            "log.connection.close": False,  # brokers close idle connections all the time
            "error_cb": self._refusals.note,
            **named,
            **self._properties,
            **self._secrets(),
            "bootstrap.servers": self.bootstrap_servers,
        }
        try:
            return make(config, logger=logger)
        except KafkaException as error:
            where = f"{self._given_in}: " if self._given_in else ""
            raise PropertyRefusedError(
                f"{where}Kafka property refused: {reason_of(error)}. Check its name and value"
            ) from error

    def properties(self) -> dict[str, KafkaProperty]:
        """The operator's properties with the secrets, for a client that is not librdkafka's. Raises as secrets do."""
        return {**self._properties, **self._secrets()}

    def note(self, error: KafkaError) -> None:
        """Record an error that a client with an ``error_cb`` of its own received, for errors to come."""
        self._refusals.note(error)

    @property
    def admin(self) -> AdminClient:
        """The administrative client, made on first use."""
        if self._admin is None:
            self._admin = self._new_admin()
        return self._admin

    def _new_admin(self) -> AdminClient:
        # Headgate's errors contain once why it cannot connect; its own log would repeat that twice a second.
        return self.client(
            AdminClient,
            client_id="headgate-admin",
            log_level=_CRITICAL,
            topic_metadata_refresh_interval_ms=ADMIN_METADATA_MS,
            enable_sparse_connections=SPARSE_CONNECTIONS,
        )

    def take_asker(self, *, is_new: bool = False) -> AdminClient:
        """An administrative client for one request to leaders of partitions, until it is given back.

        ``is_new``: one that remembers nothing.

        librdkafka (2.16.0) looks for the leaders in the caller's thread, and in a thread of its own whenever its
        metadata changes. When the answer to another request arrives in between, that thread frees what the caller's is
        using, and the process ends with a segmentation fault (docs/bugs.md, B25).
        """
        try:
            return self._new_admin() if is_new else self._askers.pop()
        except IndexError:
            return self._new_admin()

    def give_back(self, asker: AdminClient) -> None:
        """``asker`` has been answered, and may be asked again."""
        self._askers.append(asker)

    def drop(self, asker: AdminClient) -> None:
        """``asker`` has failed, or remembers what is over: it and what else remembers it are not asked again."""
        asker.poll(0)  # why it cannot connect, for the error to come; it reports only when polled
        self.close()

    def close(self) -> None:
        """Let go of the administrative clients; a later request makes another. Idempotent."""
        self._admin = None
        self._askers.clear()

    def wait(self, what: str, future: "Future[T]", timeout_seconds: float = ADMIN_SECONDS_MAX) -> T:
        """The result of an administrative request. Raises LogError (BrokerUnreachableError if no broker answered)."""
        try:
            return future.result(timeout_seconds + FUTURE_GRACE_SECONDS)
        except TimeoutError as error:
            raise self.unreachable(what) from error
        except KafkaException as error:
            raise self.failed(what, error) from error

    def failed(self, what: str, error: KafkaException) -> LogError:
        """The LogError that explains ``error``."""
        if error.args[0].code() in UNREACHABLE_CODES:
            return self.unreachable(f"{what} ({reason_of(error)})")
        reason = reason_of(error)
        if error.args[0].code() == KafkaError._FATAL and self._refusals.fatal:
            reason = f"{reason} ({self._refusals.fatal})"
        is_of_rights = error.args[0].code() in RIGHTS_CODES or _NO_RIGHT in reason
        advice = ". Give this user the right (docs/configuration.md)" if is_of_rights else ""
        return LogError(f"{what} on Kafka at {self.bootstrap_servers}: {reason}{advice}")

    def unreachable(self, what: str) -> BrokerUnreachableError:
        """The error that names the address, and why the last attempt to connect failed, if it was just now."""
        if self._admin is not None:
            self._admin.poll(0)  # it reports only when polled
        if denial := self._refusals.denial():
            self.close()  # the next client reads the secrets again
            return AccessRefusedError(
                f"Kafka at {self.bootstrap_servers} refused the connection: {what} ({denial}). Check the user, the "
                "password, the certificates and the other security properties"
            )
        if refusal := self._refusals.recent():
            what = f"{what} ({refusal})"
        return BrokerUnreachableError(
            f"no answer from Kafka at {self.bootstrap_servers}: {what}. Check that the broker runs, that the address "
            "is right and reachable from here, and the security properties"
        )

    def broker_cluster_id(self, timeout_seconds: float = ADMIN_SECONDS_MAX) -> str:
        """The id that the brokers gave themselves. Raises BrokerUnreachableError."""
        future = self.admin.describe_cluster(request_timeout=timeout_seconds)
        return str(self.wait("asking for its cluster id", future, timeout_seconds).cluster_id)


RIGHTS_CODES: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""A right that the broker does not see."""

UNREACHABLE_CODES: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._MSG_TIMED_OUT,
    }
)
"""librdkafka's own errors for a broker that it cannot talk to."""

DENIAL_CODES: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
"""A broker that does not let a client in, or that a client does not trust."""

REFUSAL_CODES: Final = DENIAL_CODES | {KafkaError._RESOLVE, KafkaError._TRANSPORT}
"""Why a connection was not established; the caller only sees a timeout."""

_NO_RIGHT: Final = "authorization failed"
"""In the words of a fatal error, which has no code for it."""

REFUSAL_SECONDS_MAX: Final = 30.0
"""How long that explains why no broker answers; librdkafka retries every 10 s at least."""

GROUP_PASSING_CODES: Final = frozenset(
    {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
)
"""What is answered about a group while its coordinator moves, or has yet to load it."""

PASSING_CODES: Final = UNREACHABLE_CODES - {KafkaError._MSG_TIMED_OUT} | {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""What a consumer reports while it continues to read. Errors of its group too: librdkafka requires a group name and
looks for its coordinator, which may be forbidden; Headgate never asks a group for anything."""


_FENCED_CODES: Final = frozenset(
    {KafkaError._FENCED, KafkaError._FATAL, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
)


_ASKED_BROKER: Final = re.compile(r"[a-z_]+://\S+/(?:bootstrap|\d+): ")
"""As librdkafka names it: ``sasl_ssl://host:9092/1: ``."""


def code_of(error: Exception) -> int | None:
    """Kafka's code behind one of our errors (``KafkaConnection.failed``); None if that is not what caused it."""
    cause = error.__cause__
    return int(cause.args[0].code()) if isinstance(cause, KafkaException) else None


def is_fenced(error: KafkaException) -> bool:
    """Whether this producer is over. _FENCED does not prove a rival: its own timeout looks the same."""
    kafka_error = error.args[0]
    if kafka_error.code() in RIGHTS_CODES:
        return False  # fatal for librdkafka as well
    return bool(kafka_error.fatal()) or kafka_error.code() in _FENCED_CODES


def reason_of(error: KafkaException) -> str:
    """Code and text of ``error``, as one phrase.

    A right is the cluster's: which broker refused is left out, or the same refusal by another would be news.
    """
    kafka_error = error.args[0]
    text = kafka_error.str()
    if kafka_error.code() in RIGHTS_CODES:
        text = _ASKED_BROKER.sub("", text)
    return f"{kafka_error.name()}: {text}"
