"""docs/reference/topics.md: the control topics, the keys on them, and who writes each."""

from typing import Final

from headgate.eventlog.topics import CONTROL_TOPICS, ControlTopic
from headgate.records import generation, keys, migration, timestamps
from headgate.records.base import Key
from headgate.records.registry import KEY_FORMS

_OWNERS: Final = {
    keys.__name__: "the shard's coordinator",
    generation.__name__: "the shard's owner of change logs",
    migration.__name__: "the owner of schema changes",
    timestamps.__name__: "the shard's owner of change logs",
}

_OTHERS: Final[dict[type[Key], str]] = {
    keys.MemberKey: "that coordinator",
    keys.AgentKey: "that session",
    keys.AnswerKey: "that session",
    keys.TaskKey: "that session",
    keys.ProgressKey: "that session",
    keys.RequestKey: "an operator's command",
    keys.DeadLetterKey: "an agent's session; removed by the shard's coordinator, or `headgate deadletter purge`",
    generation.GenerationMemberKey: "that process of `headgate serve generation`",
    generation.GenerationRequestKey: "an operator's command",
    generation.PolicyRequestKey: "an operator's command",
    generation.WriterKey: "that writer of the change log",
    generation.ReaderKey: "that reader of the change log",
    timestamps.TimestampsRequestKey: "an operator's command",
    timestamps.TimestampReaderKey: "that reader of the timestamp set",
    migration.MigrationMemberKey: "that process of `headgate serve migration`",
    migration.MigrationRequestKey: "an operator's command",
    migration.MigrationApprovalKey: "`headgate migration approve`",
    migration.EarlierMigrationRequestKey: "commands of earlier versions",
}
"""Who writes the keys that no owner writes."""


def page() -> str:
    """The page."""
    forms = sorted((form for forms in KEY_FORMS.values() for form in forms), key=lambda form: (form.topic, _text(form)))
    parts = [
        "# Control topics",
        "",
        "The topics through which the services communicate, their keys and the writer of each key. This page is",
        "made from the code by `make docs`. The rights that each service needs are in [rights](rights.md).",
        "The full name of a topic is `<cluster>.<name>`.",
        "",
        "| topic | key | record | writer |",
        "|---|---|---|---|",
        *(f"| {form.topic} | `{_text(form)}` | `{form.record.__name__}` | {_writer(form)} |" for form in forms),
        "",
        "| topic | partitions | settings, with three replicas |",
        "|---|---|---|",
        *map(_settings, CONTROL_TOPICS),
    ]
    return "\n".join(parts) + "\n"


def _text(form: type[Key]) -> str:
    first, *rest = (f"<{name}>" for name in form.__struct_fields__)
    return "/".join((*form.prefix, first, *form.infix, *rest))


def _writer(form: type[Key]) -> str:
    return _OWNERS[form.__module__] if form.by_owner else _OTHERS[form]


def _settings(topic: ControlTopic) -> str:
    settings = ", ".join(f"`{name}={value}`" for name, value in sorted(topic.settings(3).items()))
    return f"| {topic.name} | {'one per shard' if topic.sharded else '1'} | {settings} |"
