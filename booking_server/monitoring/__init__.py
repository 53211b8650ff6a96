"""Health and metrics of a process: read by load balancers, orchestrators and Prometheus, and never by clients."""
