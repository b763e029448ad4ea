"""Grant and revoke rights at a broker, and return when it goes by them: its controller answers before it does."""

from collections.abc import Iterable

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from headgate.provisioning.time_scale import scaled_seconds
from support.waiting import eventually

_ANSWER_SECONDS = scaled_seconds(60.0)


def grant(admin: AdminClient, rules: Iterable[AclBinding]) -> None:
    wanted = list(rules)
    for future in admin.create_acls(wanted).values():
        future.result(_ANSWER_SECONDS)
    eventually(lambda: all(rule in _rules(admin, _exactly(rule)) for rule in wanted), "the broker knows the rules")


def revoke(admin: AdminClient, rule: AclBinding) -> None:
    """Raises AssertionError if there is no such rule."""
    _delete(admin, _exactly(rule))


def revoke_all(admin: AdminClient, topic: str) -> None:
    """Every rule of one topic. Raises AssertionError if it has none."""
    pattern = ResourcePatternType.LITERAL
    every = (None, None, AclOperation.ANY, AclPermissionType.ANY)
    _delete(admin, AclBindingFilter(ResourceType.TOPIC, topic, pattern, *every))


def _exactly(rule: AclBinding) -> AclBindingFilter:
    of = (rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host, rule.operation)
    return AclBindingFilter(*of, rule.permission_type)


def _delete(admin: AdminClient, rules: AclBindingFilter) -> None:
    for future in admin.delete_acls([rules]).values():
        assert future.result(_ANSWER_SECONDS), "nothing was revoked"
    eventually(lambda: not _rules(admin, rules), "the broker has forgotten the rules")


def _rules(admin: AdminClient, rules: AclBindingFilter) -> list[AclBinding]:
    found: list[AclBinding] = admin.describe_acls(rules).result(_ANSWER_SECONDS)
    return found
