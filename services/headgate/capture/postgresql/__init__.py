"""A PostgreSQL as a source: what its catalogue says, and what of it has to change."""
