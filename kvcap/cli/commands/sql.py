"""``kvcap sql``."""
