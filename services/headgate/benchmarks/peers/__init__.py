"""Headgate beside its peers on one topic: Kafka Connect with Debezium's sink, Flink SQL, and bare hands."""

from headgate.benchmarks.peers.race import RACES, SIDES, PeersOptions, bench_peers

__all__ = ["RACES", "SIDES", "PeersOptions", "bench_peers"]
