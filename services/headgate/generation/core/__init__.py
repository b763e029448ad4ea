"""The pure part of generations: ids, tokens, topologies and their rules. No Kafka, clock, randomness or logging."""
