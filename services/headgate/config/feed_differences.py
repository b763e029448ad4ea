"""What an update changes in a feed, option by option."""

from collections.abc import Iterator, Mapping

import msgspec

from headgate.config.feed import FeedSpec


class OptionDifference(msgspec.Struct, frozen=True):
    """An option by its dotted name, as in ``source.topics``, with its values as JSON has them; null: not given."""

    option: str
    before: object
    after: object


def differences(before: FeedSpec, after: FeedSpec) -> tuple[OptionDifference, ...]:
    """Sorted by option. Options that are not given count with their defaults."""
    was, will_be = (dict(_options(spec.model_dump(mode="json"))) for spec in (before, after))
    found = [
        OptionDifference(option, was.get(option), will_be.get(option))
        for option in sorted(was.keys() | will_be.keys())
        if _is_other(was.get(option), will_be.get(option))
    ]
    # An empty entry is left out where its contents before or after are shown.
    return tuple(
        each
        for each in found
        if {} not in (each.before, each.after) or not any(o.option.startswith(f"{each.option}.") for o in found)
    )


def _is_other(before: object, after: object) -> bool:
    return before != after or isinstance(before, bool) != isinstance(after, bool)  # 0 is equal to false in Python


def _options(values: Mapping[str, object], within: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            inner = list(_options(value, f"{within}{name}."))
            is_empty = bool(value) and all(each is None for _, each in inner)
            # An empty entry of a table, or its empty columns, are not the same as none.
            yield from [(f"{within}{name}", {})] if is_empty and within.startswith("tables.") else inner
        else:
            yield f"{within}{name}", value


def with_skips_of(before: FeedSpec, after: FeedSpec) -> FeedSpec:
    """``after`` with the records that ``feed skip`` has named, if it does not set ``skip`` itself.

    Records that it names without their topics' ids are the same ones.
    """
    named = [each.record for each in after.skip]
    is_same = named == [each.record for each in before.skip] and all(each.topic_id is None for each in after.skip)
    return after.model_copy(update={"skip": before.skip}) if "skip" not in after.model_fields_set or is_same else after
