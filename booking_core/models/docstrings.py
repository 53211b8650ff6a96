"""The docstrings of a model's fields, as descriptions.

Pydantic's `use_attribute_docstrings` reads the source of each class when the class is defined, which was a tenth of the
start of the service (decision 0021). Only the OpenAPI document needs the descriptions, so they are read for it.
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


def of_fields(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of the fields, inherited ones too, by name. Fields with a description are left out."""
    texts: dict[str, str | None] = {}
    for base in (
        ancestor
        for ancestor in reversed(model.__mro__)
        if issubclass(ancestor, BaseModel) and ancestor is not BaseModel
    ):
        class_texts = _of_module(base.__module__).get(base.__name__, {})
        texts |= {name: class_texts.get(name) for name in inspect.get_annotations(base)}
    return {
        name: text
        for name, field in model.model_fields.items()
        if field.description is None and (text := texts.get(name))
    }


@cache
def _of_module(name: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of annotated attributes, by class and attribute; none for a module without its source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError):
        return {}
    return {node.name: dict(_of_class(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _of_class(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement, following in pairwise(node.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
