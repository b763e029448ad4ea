"""The composition root: services and connections are built here from the settings, and nowhere else."""
