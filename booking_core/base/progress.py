"""The function that a long operation calls with the number of finished parts and their total."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
