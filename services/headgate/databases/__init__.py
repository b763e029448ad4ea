"""The only place that connects to PostgreSQL, MySQL or MariaDB, and that imports their drivers.

Sinks, migrations, ``headgate verify`` and the lab open their sessions here, so that every session passes the same
checks (allowed hosts, folder for secrets), uses the TLS options of its address, and has the same limits for a network
that was cut.
"""
