"""An organization, its rows, and the operations on them."""
