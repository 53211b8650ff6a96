"""The outside world behind the ports of the core: one module for each thing that is connected to."""
