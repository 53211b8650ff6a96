"""The HTTP service and its worker: a thin layer that parses, calls a function of `booking_core`, and responds."""
