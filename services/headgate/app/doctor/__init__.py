"""``headgate doctor``: what an installation needs, checked part by part."""
