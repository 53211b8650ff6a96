"""The command groups of `booking`, one module each."""
