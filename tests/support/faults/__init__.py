"""Disks and networks that fail, and searches for secrets."""
