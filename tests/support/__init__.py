"""Helpers that tests share; README.md lists them."""
