"""The API as a client sees it, and checks of its contract."""
