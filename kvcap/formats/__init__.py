"""Readers of request logs."""
