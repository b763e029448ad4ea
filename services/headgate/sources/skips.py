"""Records that an operator names to be skipped: whether the feed reads them, and in which topic (its id)."""

from collections.abc import Iterable

from headgate.config.feed import FeedSpec, FeedSpecError, SkippedRecord
from headgate.records.control import SpanPlan
from headgate.sources.topic_ids import TopicReplacedError


def with_topic_ids(spec: FeedSpec, plans: Iterable[SpanPlan]) -> FeedSpec:
    """``spec`` whose skipped records carry the ids of their topics, as ``plans`` have them.

    Raises FeedSpecError for a record of a topic or partition that the feed does not read, TopicReplacedError for one
    of a topic that was re-created since it was named.
    """
    known = {plan.topic: plan for plan in plans}
    partitions = {(plan.topic, partition) for plan in known.values() for partition in plan.start}
    found = []
    for each in spec.skip:
        place, plan = each.place, known.get(each.place.topic)
        if plan is None:
            raise FeedSpecError(
                f"skip: the feed does not read topic {place.topic} of record {place}. Correct the record's name, or "
                "remove it"
            )
        if (place.topic, place.partition) not in partitions:
            raise FeedSpecError(f"skip: topic {place.topic} has no partition {place.partition}, which {place} names")
        if None not in (each.topic_id, plan.topic_id) and each.topic_id != plan.topic_id:
            raise TopicReplacedError(
                f"skip: record {place} belongs to the topic with id {each.topic_id}, which was deleted and re-created "
                f"with id {plan.topic_id}. Remove the record from skip"
            )
        found.append(SkippedRecord(record=each.record, topic_id=plan.topic_id))
    return spec.model_copy(update={"skip": tuple(found)})
