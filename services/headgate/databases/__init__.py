"""The only place that connects to PostgreSQL, MySQL or MariaDB, and that imports their drivers.

Kafka clusters that feeds write to are addressed here as well, so that the same checks apply to them.

Sinks, migrations, ``headgate verify`` and the lab open their sessions here, so that every session passes the same
checks (allowed hosts, folder for secrets), uses the TLS options of its address, and has the same limits for a network
that was cut.
"""
