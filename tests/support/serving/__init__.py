"""The service and the command line as processes."""
