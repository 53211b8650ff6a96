# Generated from booking_sdk/resources/__init__.py by `make sync-client`. Do not edit.
"""The methods of the API, one class for each resource."""
