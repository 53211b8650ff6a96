"""Declare commands, write output and errors, and parse arguments."""
