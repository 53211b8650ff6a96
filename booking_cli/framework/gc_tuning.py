"""Pause the garbage collector while a command is loaded.

Imported code stays for the whole process, so a collection during the imports finds nothing. Several collections would
take a tenth of the time of a short command.
"""

import gc


def pause() -> None:
    """Disable the garbage collector."""
    gc.disable()


def resume() -> None:
    """Enable the garbage collector again, for objects that are made from now on."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
