"""Traces of requests, by OpenTelemetry. Only `setup` is imported where nothing is traced (decision 0026)."""
