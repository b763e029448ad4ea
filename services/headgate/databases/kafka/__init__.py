"""Kafka clusters as a place that feeds write to: their addresses, and connections to them."""
