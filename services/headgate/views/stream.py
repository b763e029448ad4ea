"""The Faust application: reads the control topics from their beginning, and keeps nothing beyond its life.

The pattern that was measured to be sound with Faust 0.15.3 (docs/adr/0029), each part for a reason:

- ``in_transaction``, because it alone makes the consumer read committed records only: by default 50 of 50 aborted
  records came through. ``exactly_once`` sets it too, but only under Faust's own command, and begins a transaction per
  partition, to commit what is read; nothing is committed here (``acks=False``), so no transaction is needed, nor the
  rights for one;
- a group of its own for each start, because one that is kept would resume where others of the group have been;
- no changelog, because recovery from one that ends with a transaction's marker hangs;
- Faust's own Kafka transport (aiokafka): the other consumes nothing.

The cluster's security block is translated for Faust's client, which is neither librdkafka nor Java. What cannot be
translated is refused: a client that falls back to plain text would be worse than none.
"""

import socket
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import faust
from aiohttp.web import SockSite
from faust.auth import SASLCredentials, SSLCredentials
from faust.transport.consumer import ThreadDelegateConsumer
from faust.web.drivers.aiohttp import Web as AiohttpWeb

from headgate.config.settings import Settings, SettingsError
from headgate.eventlog.codec import Codec, CodecGarbage
from headgate.eventlog.log import Delivery, Garbage, NewerSchemaError, Partition
from headgate.eventlog.schema_files import schemas
from headgate.eventlog.sharding import ANNOUNCE, SHARDED_TOPICS
from headgate.eventlog.topics import topic_name
from headgate.records.migration import MigrationKey
from headgate.views.model import ViewsModel

_SECURITY: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "https.")
_KNOWN: Final = frozenset(
    {"security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"}
    | {"ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem"}
    | {"ssl.key.location", "ssl.key.pem", "ssl.key.password"}
)
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def credentials_of(kafka: Mapping[str, str]) -> SASLCredentials | SSLCredentials | None:
    """Faust's credentials from librdkafka's properties; None for plain text. Raises SettingsError."""
    for name in sorted(kafka):
        if name.startswith(_SECURITY) and name not in _KNOWN:
            raise SettingsError(
                f"{_variable(name)}: views cannot translate {name} for Faust's client; they can "
                f"{', '.join(sorted(_KNOWN))}"
            )
    protocol = kafka.get("security.protocol", "plaintext").upper()
    encrypted = _context(kafka) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return None if encrypted is None else SSLCredentials(encrypted)
    mechanism = kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", "PLAIN"))
    if mechanism not in _MECHANISMS:
        raise SettingsError(f"{_variable('sasl.mechanism')}: views know {', '.join(_MECHANISMS)}, not {mechanism}")
    return SASLCredentials(
        username=kafka.get("sasl.username", ""),
        password=kafka.get("sasl.password", ""),
        ssl_context=encrypted,
        mechanism=mechanism,
    )


def _context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    """Checks the broker's certificate and name, and shows ours if we have one."""
    try:
        context = ssl.create_default_context(cafile=kafka.get("ssl.ca.location"), cadata=kafka.get("ssl.ca.pem"))
        given: dict[str, Any] = {what: _file_or_text(kafka, what) for what in ("certificate", "key")}
        if given["certificate"] is not None or given["key"] is not None:
            _show_certificate(context, given, kafka.get("ssl.key.password"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{_variable('ssl.*')}: {error}") from error
    return context


def _show_certificate(context: ssl.SSLContext, given: Mapping[str, Any], password: str | None) -> None:
    """Python reads certificates from files only."""
    with tempfile.TemporaryDirectory(prefix="headgate-views-") as folder:
        files = {}
        for what, text in given.items():
            if text is None:
                raise SettingsError(f"{_variable(f'ssl.{what}.location')} is missing beside the other of the pair")
            files[what] = Path(folder, what)
            files[what].touch(mode=0o600)
            files[what].write_text(text, encoding="utf-8")
        context.load_cert_chain(files["certificate"], files["key"], password or "")


def _file_or_text(kafka: Mapping[str, str], what: str) -> str | None:
    location = kafka.get(f"ssl.{what}.location")
    if location is None:
        return kafka.get(f"ssl.{what}.pem")
    return Path(location).read_text(encoding="utf-8")


def _variable(name: str) -> str:
    return f"HEADGATE_KAFKA__{name.upper().replace('.', '_')}"


TOPICS: Final = (ANNOUNCE.topic, *SHARDED_TOPICS, MigrationKey.topic)
"""The model that is shown."""


def make_app(settings: Settings, group: str, listener: socket.socket, folder: str) -> faust.App:
    """An application that declares no topic and writes none; ``folder`` is for what Faust may put on a disk.

    Its web server listens on ``listener``, which stays the caller's to close.
    """
    app = faust.App(
        group,
        broker=[f"kafka://{address.strip()}" for address in settings.bootstrap.split(",")],
        broker_credentials=credentials_of(settings.kafka),
        topic_allow_declare=False,
        topic_disable_leader=True,
        store="memory://",
        datadir=folder,
        web_bind=settings.views.bind,
        web_host=settings.views.bind,
        web_port=listener.getsockname()[1],
        web_router_enabled=False,
        web_tables_enabled=False,
        autodiscover=False,
    )
    app.consumer.in_transaction = True
    web = cast("AiohttpWeb", app.web)
    web._transport_handlers = {"tcp": lambda: SockSite(web._runner, listener)}
    return app


async def stop_app(app: faust.App) -> None:
    """Stop ``app``, whether or not its start has come to an end.

    Faust's consumer has a thread with an event loop of its own, which it closes only if that thread was started.
    """
    await app.stop()
    consumer = app.consumer
    if isinstance(consumer, ThreadDelegateConsumer) and consumer._thread._thread is None:
        consumer._thread.thread_loop.close()


def read_topics(app: faust.App, settings: Settings, model: ViewsModel, stop: Callable[[Exception], None]) -> None:
    """Let ``app`` feed ``model``; ``stop`` is called with an error from which it cannot continue."""
    names = {topic_name(settings.cluster, topic): topic for topic in TOPICS}
    raw: dict[str, Any] = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    topic = app.topic(*names, **raw, acks=False)
    codec = Codec(schemas())

    async def take(stream: Any) -> None:
        async for event in stream.events():
            message = event.message
            try:
                read = _decoded(codec, names, message)
            except NewerSchemaError as error:
                stop(error)
                return
            model.take(read, round(message.timestamp * 1000))

    app.agent(topic, name="take")(take)


def _decoded(codec: Codec, names: Mapping[str, str], message: Any) -> Delivery | Garbage:
    partition = Partition(names[message.topic], message.partition)
    try:
        key, value = codec.decode(partition.topic, message.key, message.value)
    except CodecGarbage as error:
        return Garbage(partition, message.offset, error.reason)
    return Delivery(partition, message.offset, key, value)
