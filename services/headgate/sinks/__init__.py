"""One fence, many sinks: the contract of exactly-once writing, and one file per sink."""
