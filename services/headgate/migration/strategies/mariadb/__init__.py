"""A change at MariaDB: ``server`` answers contract.Server, ``lane`` and ``cutover`` answer online.lane.Lane."""
