"""``kvcap convert``."""
