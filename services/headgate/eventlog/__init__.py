"""Kafka as the system of record: topics, codec, replay, and the loop that every owner role runs in."""
