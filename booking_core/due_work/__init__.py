"""Work on the due rows of all organizations, in turn.

`rows` finds them, `sweep` processes them in batches, and `parked` keeps what could not be processed for later.
"""
