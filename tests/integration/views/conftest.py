"""A cluster of its own for each test, and the services as processes: the command line's own fixtures."""

from integration.cli.conftest import log, one_core_spark, serve, settings, shop_file

__all__ = ["log", "one_core_spark", "serve", "settings", "shop_file"]
