"""What a source database needs so that Debezium can capture its changes.

``postgresql/`` and ``mysql/`` each read facts from the database's catalogue (``read``), and judge them without the
database (``rules``). ``connector`` and ``feed_file`` write a connector and a feed from the same facts.
"""
