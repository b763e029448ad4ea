"""The Faust application: reads the control topics from their beginning, and keeps nothing beyond its life.

The pattern that was measured to be sound with Faust 0.15.3 (docs/adr/0029), each part for a reason:

- ``in_transaction``, because it alone makes the consumer read committed records only: by default 50 of 50 aborted
  records came through. ``exactly_once`` sets it too, but only under Faust's own command, and begins a transaction per
  partition, to commit what is read; nothing is committed here (``acks=False``), so no transaction is needed, nor the
  rights for one;
- a group of its own for each start, because one that is kept would resume where others of the group have been;
- no changelog, because recovery from one that ends with a transaction's marker hangs;
- Faust's own Kafka transport (aiokafka): the other consumes nothing.
"""

import socket
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import faust
from aiohttp.web import SockSite
from faust.auth import SASLCredentials, SSLCredentials
from faust.transport.consumer import ThreadDelegateConsumer
from faust.web.drivers.aiohttp import Web as AiohttpWeb

from headgate.config.settings import Settings, SettingsError, kafka_property
from headgate.eventlog.codec import Codec, CodecGarbage
from headgate.eventlog.log import Delivery, Garbage, NewerSchemaError, Partition
from headgate.eventlog.python_security import UntranslatableError, security_of
from headgate.eventlog.schema_files import schemas
from headgate.eventlog.sharding import ANNOUNCE, SHARDED_TOPICS
from headgate.eventlog.topics import topic_name
from headgate.records.migration import MigrationKey
from headgate.views.model import ViewsModel


def credentials_of(kafka: Mapping[str, str]) -> SASLCredentials | SSLCredentials | None:
    """Faust's credentials from librdkafka's properties; None for plain text. Raises SettingsError."""
    try:
        security = security_of(kafka, "views")
    except UntranslatableError as error:
        raise SettingsError(f"{kafka_property(error.name)}: {error.why}") from error
    if security.mechanism is None:
        return None if security.context is None else SSLCredentials(security.context)
    return SASLCredentials(
        username=security.username,
        password=security.password,
        ssl_context=security.context,
        mechanism=security.mechanism,
    )


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
