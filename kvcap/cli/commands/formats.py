"""``kvcap formats``."""
