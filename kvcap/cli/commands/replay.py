"""``kvcap replay``."""
