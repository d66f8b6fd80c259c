"""What a typed function says about itself: schema, descriptions, and how its arguments are read.

The schema of each parameter is what `msgspec` writes for its annotation, so that what the schema allows is
what is read: plain types, `Literal`, enums, unions, `list`, `dict`, `tuple`, dataclasses, attrs classes,
typed dictionaries, `Annotated` with `msgspec.Meta` or with a description. A parameter without an annotation
takes any JSON. What cannot be written so is refused when the tool is defined, not when it is called.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Final

import attrs
import msgspec

from .._base.errors import InvalidArguments
from .._base.model import ToolContext
from ._results import json_of

if typing.TYPE_CHECKING:
    from collections.abc import Callable

_SECTION: Final = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Yields|Raises|Examples?|Notes?):\s*$", re.MULTILINE
)
_ENTRY: Final = re.compile(r"^\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")
_AS_SENT: Final = frozenset({str, bool, Any, dict, list, object})
_REF: Final = "#/$defs/{name}"


@attrs.frozen(eq=False)
class Signature:
    """How a function is called by a model.

    Attributes:
        schema: Of its arguments; closed, unless it takes any keyword.
        description: Its docstring up to the sections.
        context: The parameter that the context goes to, if there is one.
        read: Name and type of the arguments that are turned into what the annotation says.
    """

    schema: dict[str, Any]
    description: str
    context: str | None
    read: tuple[tuple[str, Any], ...]

    def arguments(self, args: Mapping[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """Turn what a model sent into what the function takes.

        Raises:
            InvalidArguments: Something cannot be read as what it is annotated as, or all of it is no object;
                says which, not the value.
        """
        if not isinstance(args, Mapping):
            raise InvalidArguments(f"the arguments are a JSON object, not {type(args).__name__}; nothing ran")
        given = dict(args)
        for name, kind in self.read:
            if name in given:
                try:
                    given[name] = msgspec.convert(given[name], kind)
                except msgspec.ValidationError:
                    given[name] = _read_laxly(name, given[name], kind)
        if self.context is not None:
            given[self.context] = ctx
        return given


def _read_laxly(name: str, value: Any, kind: Any) -> Any:
    # The schema has been asked already: what is left are numbers such as 3.0 for an integer.
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        pass  # its text may quote the value
    shown = getattr(kind, "__name__", None) or str(kind)
    raise InvalidArguments(f"the argument {name!r} cannot be read as {shown}; nothing ran")


def read_signature(fn: Callable[..., Any], tool: str, wants: Mapping[str, str] | None = None) -> Signature:
    """Read a function.

    Args:
        fn: The function; not called.
        tool: The tool's name, for refusals.
        wants: Arguments that a model passes by reference, with the kind: their annotation is that of the
            data, their schema that of a reference.

    Raises:
        TypeError: A parameter that no argument of a model can reach, or an annotation without a schema.
    """
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise TypeError(f"tool {tool!r}: a generator cannot be a tool; report progress with ctx.progress")
    summary, described = read_docstring(inspect.getdoc(fn) or "")
    context: str | None = None
    hints: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    extra: Any = inspect.Parameter.empty
    for parameter in inspect.signature(fn).parameters.values():
        name = parameter.name
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(
                f"tool {tool!r}: the parameter {name!r} has no name that a model could give an argument by"
            )
        hint = ToolContext if _named_context(parameter) else _resolved(fn, parameter, tool)
        if _is_context(hint):
            if context is not None:
                raise TypeError(f"tool {tool!r}: {context!r} and {name!r} both take the context")
            context = name
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = hint
            continue
        hints[name] = hint
        if parameter.default is not parameter.empty:
            defaults[name] = parameter.default
    asked = {name: Any if name in (wants or ()) else hint for name, hint in hints.items()}
    schema = _schema(tool, asked, defaults, described, extra)
    for name, kind in (wants or {}).items():
        if name in hints:
            _by_reference(schema["properties"][name], kind, _annotated_text(hints[name]))
    read = tuple((name, hint) for name, hint in hints.items() if not _is_as_sent(hint))
    return Signature(schema, summary, context, read)


def _named_context(parameter: inspect.Parameter) -> bool:
    """Whether a parameter says by its name, or in words, that it takes the context.

    The words are not resolved: the class may be imported for type checkers only. Where annotations are
    postponed, what was quoted arrives quoted twice.
    """
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return parameter.name == "ctx"
    if not isinstance(annotation, str):
        return False
    bare = annotation.strip()
    while len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "'\"":
        bare = bare[1:-1].strip()
    return bare.rpartition(".")[2] == "ToolContext"


def _is_context(hint: Any) -> bool:
    """Whether an annotation is the context, by whatever name it was imported; or that, or nothing."""
    if typing.get_origin(hint) is Annotated:
        return _is_context(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return {*typing.get_args(hint)} == {ToolContext, type(None)}
    return hint is ToolContext


def _resolved(fn: Callable[..., Any], parameter: inspect.Parameter, tool: str) -> Any:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return Any
    holder = types.SimpleNamespace(__annotations__={parameter.name: annotation})
    inner = inspect.unwrap(fn)
    scope = getattr(getattr(inner, "__func__", inner), "__globals__", {})
    try:
        return typing.get_type_hints(holder, globalns=scope, include_extras=True)[parameter.name]
    except Exception as error:
        raise _unresolved(parameter.name, tool, error) from error


def _unresolved(name: str, tool: str, error: Exception) -> TypeError:
    return TypeError(
        f"tool {tool!r}: the annotation of {name!r} cannot be resolved ({type(error).__name__}); "
        "its types must be defined at module level, or give an input_schema"
    )


def _is_as_sent(hint: Any) -> bool:
    bare = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    try:
        return bare in _AS_SENT
    except TypeError:  # not hashable: a Literal of a list
        return False


def _schema(
    tool: str, hints: dict[str, Any], defaults: dict[str, Any], described: dict[str, str], extra: Any
) -> dict[str, Any]:
    named = dict(hints)
    open_ended = extra is not inspect.Parameter.empty
    if open_ended:
        named["**"] = extra
    written: dict[str, dict[str, Any]] = {}
    components: dict[str, Any] = {}
    for name, hint in named.items():
        try:
            (one,), parts = msgspec.json.schema_components([hint], ref_template=_REF)
        except TypeError as error:
            raise TypeError(
                f"tool {tool!r}: there is no JSON Schema for the annotation of {name!r}; give an "
                "input_schema, or annotate it with what JSON holds"
            ) from error
        except Exception as error:  # the annotations of a class are looked up only now, and may be any code
            raise _unresolved(name, tool, error) from error
        if any(components.get(key, part) != part for key, part in parts.items()):
            raise TypeError(
                f"tool {tool!r}: two types of one name are in its signature; give an input_schema"
            )
        components |= parts
        written[name] = one
    rest = written.pop("**", None)
    for name, one in written.items():
        text = _annotated_text(hints[name]) or described.get(name)
        if text and "description" not in one:
            one["description"] = text
        if name in defaults:
            try:
                one["default"] = msgspec.json.decode(json_of(defaults[name]))
            except TypeError:
                continue  # a default that JSON cannot hold is still one
    schema: dict[str, Any] = {"type": "object", "properties": written}
    required = [name for name in hints if name not in defaults]
    if required:
        schema["required"] = required
    schema["additionalProperties"] = rest if open_ended and rest else open_ended
    if components:
        schema["$defs"] = components
    return schema


def _by_reference(written: dict[str, Any], kind: object, text: str | None) -> None:
    said = f"The reference of a stored artifact of the kind {kind}."
    about = text or written.get("description")
    written["type"] = "string"
    written["description"] = f"{about} {said}" if about else said


def _annotated_text(hint: Any) -> str | None:
    if typing.get_origin(hint) is Annotated:
        return next((extra for extra in typing.get_args(hint)[1:] if isinstance(extra, str)), None)
    return None


def read_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Give the text of a docstring up to its first section, and what `Args:` says of each parameter."""
    sections = list(_SECTION.finditer(doc))
    summary = doc[: sections[0].start()] if sections else doc
    described: dict[str, str] = {}
    for at, section in enumerate(sections):
        if section[1] in ("Args", "Arguments", "Parameters"):
            end = sections[at + 1].start() if at + 1 < len(sections) else len(doc)
            described |= _entries(doc[section.end() : end])
    return summary.strip(), described


def _entries(text: str) -> dict[str, str]:
    lines = [line for line in inspect.cleandoc(text).splitlines() if line.strip()]
    entries: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        entry = _ENTRY.match(line)
        if entry is not None:
            current = entries[entry[1]] = [entry[2]]
        elif current is not None and line[0].isspace():
            current.append(line.strip())
        else:
            current = None
    return {name: " ".join(part for part in parts if part) for name, parts in entries.items()}
