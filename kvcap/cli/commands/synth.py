"""``kvcap synth``."""
