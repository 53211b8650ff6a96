"""Databases, their connections and the plans of statements."""
