"""What people write down: the feed's YAML and the services' settings. Unknown options are refused by name."""
