"""Change the settings of a topic that is in use, and return when the broker goes by them."""

import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from headgate.provisioning.time_scale import scaled_seconds
from support.eventlog_contract import DEADLINE_SECONDS

_ANSWER_SECONDS = scaled_seconds(120.0)

_SECOND: Final = {"flush.ms": str(2**63 - 2)}
"""A setting that changes nothing: one millisecond less than for ever, which is what it is by itself."""


def change_settings(admin: AdminClient, topic: str, settings: Mapping[str, str]) -> None:
    """Set ``settings`` (name → value) of a topic on a cluster of one broker.

    The controller answers before the broker has heard of it, and the broker tells of a setting before its logs go by
    it: delete_records right after ``cleanup.policy=compact,delete`` ended in POLICY_VIOLATION, once in some hundred
    runs. A broker takes one change of metadata after the other, so once it tells of a second one it has done the first.
    """
    for wanted in (settings, _SECOND):
        _set(admin, topic, wanted)
        _await_told(admin, topic, wanted)


def _set(admin: AdminClient, topic: str, settings: Mapping[str, str]) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    for name, value in settings.items():
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(_ANSWER_SECONDS)


def _await_told(admin: AdminClient, topic: str, wanted: Mapping[str, str]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    found: dict[str, str] = {}
    while any(found.get(setting) != value for setting, value in wanted.items()):
        assert time.monotonic() < deadline, f"{topic} has {found}, wanted {wanted}"
        (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        found = {setting: entry.value for setting, entry in future.result(_ANSWER_SECONDS).items()}
