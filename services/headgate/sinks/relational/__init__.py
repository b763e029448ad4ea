"""What the sinks that are relational databases have in common: rules and shapes, no database."""
