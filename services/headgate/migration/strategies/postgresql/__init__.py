"""A change at PostgreSQL: ``server`` answers contract.Server, ``lane`` and ``cutover`` answer online.lane.Lane."""
