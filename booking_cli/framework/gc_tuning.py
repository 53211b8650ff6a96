"""The garbage collector's pause while a command is loaded.

What is loaded stays for as long as the process, so a search through it finds nothing. It is done several times while
everything is imported and once more at the end, and takes a tenth of the time of a command that does little.
"""

import gc


def begin() -> None:
    """Nothing is collected until `end`."""
    gc.disable()


def end() -> None:
    """From now on what is new is collected, and what is there is left alone."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
