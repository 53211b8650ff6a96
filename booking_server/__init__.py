"""The HTTP service: a thin layer that parses, calls one door of `booking_core`, and answers."""
