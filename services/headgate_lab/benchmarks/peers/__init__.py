"""Headgate beside its peers on one topic: Kafka Connect with Debezium's sink, Flink SQL, and hand-written COPY."""
