"""Measures the service and its floors: minimal code for the same work.

`python -m bench` runs it; README.md explains the tables. The service imports nothing from here.
"""
