"""Generations on Kafka: the owner's effects and service, writers and readers of change logs."""
