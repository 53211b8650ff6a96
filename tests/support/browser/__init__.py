"""Pages as a browser shows them."""
