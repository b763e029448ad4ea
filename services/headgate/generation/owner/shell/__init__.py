"""The owner as a process: its service, its effects on Kafka and its metrics."""
