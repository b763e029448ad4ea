"""A PostgreSQL as a source: what its catalogue contains, and what must change."""
