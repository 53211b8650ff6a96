"""Suggest an attribute for a misspelt one."""

from typing import TYPE_CHECKING, Any


def missing_attribute(owner: object, name: str) -> AttributeError:
    """Return the error of an attribute that the owner does not have, with the attribute that is spelled most like
    it."""
    from difflib import get_close_matches

    kind = type(owner)
    attributes = [
        attribute
        for attribute in (*getattr(kind, "model_fields", ()), *dir(kind))
        if not attribute.startswith(("_", "model_"))
    ]
    near = [] if name.startswith("_") else get_close_matches(name, attributes, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return AttributeError(f"{kind.__name__!r} object has no attribute {name!r}{hint}")


class Suggesting:
    """A base class whose objects name the attribute that was probably meant."""

    if not TYPE_CHECKING:  # a type checker finds the missing attributes

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)
