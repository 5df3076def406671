"""How the API reference reads the package: as a type checker does, with what attrs makes of it.

Griffe, which mkdocstrings reads with, takes both branches of `if TYPE_CHECKING`, where the second
is the compiled twin of the first; and it knows dataclasses, but neither attrs nor our settings.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from griffe import (
    Attribute,
    Class,
    Docstring,
    Expr,
    ExprCall,
    ExprKeyword,
    Extension,
    Function,
    Parameter,
    ParameterKind,
    Parameters,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from griffe import ObjectNode

MADE: Final = ("attrs.frozen", "attrs.define", "NamedTuple")
SETTINGS: Final = (
    "aeron_async.settings.",
    "aeron_async.driver.core.strategies.supplier",
)
"""The modules whose functions declare a setting: its name, its default and a sentence."""
UNSAID: Final = {"inferable": "None", "port_range": "(0, 0)"}
"""The defaults of settings that are declared without one."""


class AsTyped(Extension):
    """Read branches as type checkers do, describe settings, and give classes their constructors."""

    def on_module_node(self, *, node: ast.AST | ObjectNode, **_: Any) -> None:
        """Leave out what a type checker does not see."""
        if isinstance(node, ast.Module):
            node.body = list(typed(node.body))

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        """Describe a setting with the sentence of its declaration."""
        call = attr.value
        if isinstance(call, ExprCall) and call.canonical_path.startswith(SETTINGS):
            sentence = str(by_position(call)[-1])
            attr.docstring = Docstring(ast.literal_eval(sentence), parent=attr)
            attr.value = default_of(attr)

    def on_class(self, *, cls: Class, **_: Any) -> None:
        """Show the constructor that attrs makes, and none whose arguments are not described."""
        if any(str(base).endswith("Enum") for base in cls.bases):
            # A member is shown even if its name says all.
            for member in cls.members.values():
                member.docstring = member.docstring or Docstring("")
        if is_made(cls):
            cls.set_member("__init__", constructor(cls))
        elif "__init__" in cls.members and "Args:" not in documentation(cls):
            cls.del_member("__init__")


def typed(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Return the statements without the branches that are for the run time alone."""
    for statement in body:
        match statement:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                statement.orelse = []
                yield statement
            case ast.If(
                test=ast.BoolOp(values=[ast.UnaryOp(operand=ast.Name(id="TYPE_CHECKING")), *_])
            ):
                yield from statement.orelse
            case _:
                yield statement


def documentation(cls: Class) -> str:
    """Return the docstring of a class, or nothing."""
    return cls.docstring.value if cls.docstring else ""


def is_made(cls: Class) -> bool:
    """Return whether the constructor of a class is made of its fields."""
    makers = [str(each.value) for each in cls.decorators] + [str(base) for base in cls.bases]
    return any(maker.startswith(MADE) for maker in makers)


def constructor(cls: Class) -> Function:
    """Return the constructor that is made of the fields of a class and of its bases."""
    arguments = {"self": Parameter("self", kind=ParameterKind.positional_or_keyword)}
    for each in [*reversed(cls.mro()), cls]:
        is_by_name = any("kw_only=True" in str(decorator.value) for decorator in each.decorators)
        kind = ParameterKind.keyword_only if is_by_name else ParameterKind.positional_or_keyword
        for field in fields(each) if is_made(each) else ():
            name = field.name.lstrip("_")
            arguments[name] = Parameter(
                name, annotation=field.annotation, kind=kind, default=default_of(field)
            )
    return Function("__init__", parameters=Parameters(*arguments.values()), returns="None")


def fields(cls: Class) -> list[Attribute]:
    """Return what the constructor of a class takes, without what its bases add."""
    return [
        member
        for member in cls.members.values()
        if isinstance(member, Attribute)
        and member.annotation is not None
        and "property" not in member.labels
        and "instance-attribute" in member.labels  # Griffe has taken `ClassVar` off the others
        and str(keywords(member).get("init")) != "False"
    ]


def default_of(field: Attribute) -> str | Expr | None:
    """Return what a field holds that is not given."""
    call = field.value
    if not isinstance(call, ExprCall):
        return call
    if call.canonical_path.startswith(SETTINGS):
        _, *default, _ = by_position(call)
        return default[0] if default else UNSAID[str(call.function)]
    if call.canonical_path != "attrs.field":
        return call
    given = keywords(field)
    return f"{given['factory']}()" if "factory" in given else given.get("default")


def by_position(call: ExprCall) -> list[str | Expr]:
    """Return the arguments of a call that have no name."""
    return [each for each in call.arguments if not isinstance(each, ExprKeyword)]


def keywords(field: Attribute) -> dict[str, str | Expr]:
    """Return the arguments by name of the call that makes a field."""
    if not isinstance(field.value, ExprCall):
        return {}
    return {
        each.name: each.value for each in field.value.arguments if isinstance(each, ExprKeyword)
    }
