"""The Faust application: reads the control topics from their beginning, and keeps nothing beyond its life.

The pattern that was measured to be sound with Faust 0.15.3 (docs/adr/0029), each part for a reason:

- ``exactly_once``, because it alone reads committed records only: by default 50 of 50 aborted records came through;
- a group of its own for each start, because one that is kept would resume at its commit, and find no state there;
- no changelog, because recovery from one that ends with a transaction's marker hangs;
- Faust's own Kafka transport (aiokafka): the other consumes nothing.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import faust

from headgate.config.settings import Settings
from headgate.eventlog.codec import Codec, CodecGarbage
from headgate.eventlog.log import Delivery, Garbage, NewerSchemaError, Partition
from headgate.eventlog.schema_files import schemas
from headgate.eventlog.sharding import ANNOUNCE, SHARDED_TOPICS
from headgate.eventlog.topics import topic_name
from headgate.views.credentials import credentials_of
from headgate.views.model import ViewsModel

__all__ = ["GROUP_PREFIX", "group_of", "make_app", "read_topics"]

GROUP_PREFIX: Final = "views-"
"""Behind the cluster's prefix: the name of groups and transactional ids, of which each start makes one."""

TOPICS: Final = (ANNOUNCE.topic, *SHARDED_TOPICS)


def group_of(settings: Settings) -> str:
    """A group that nobody has had before."""
    return f"{settings.prefix}{GROUP_PREFIX}{uuid.uuid4().hex}"


def make_app(settings: Settings, group: str, port: int, folder: str) -> faust.App:
    """An application that declares no topic and writes none; ``folder`` is for what Faust may put on a disk."""
    app = faust.App(
        group,
        broker=[f"kafka://{address.strip()}" for address in settings.bootstrap.split(",")],
        broker_credentials=credentials_of(settings.kafka),
        processing_guarantee="exactly_once",
        topic_allow_declare=False,
        topic_disable_leader=True,
        store="memory://",
        datadir=folder,
        web_bind=settings.views.bind,
        web_host=settings.views.bind,
        web_port=port,
        web_router_enabled=False,
        web_tables_enabled=False,
        autodiscover=False,
    )
    # Without this, which Faust's own command sets, the guarantee asked for is ignored without a word.
    app.in_worker = True
    return app


def read_topics(app: faust.App, settings: Settings, model: ViewsModel, stop: Callable[[Exception], None]) -> None:
    """Let ``app`` feed ``model``; ``stop`` is called with what it cannot go on from."""
    names = {topic_name(settings.cluster, topic): topic for topic in TOPICS}
    topic = app.topic(*names, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
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
