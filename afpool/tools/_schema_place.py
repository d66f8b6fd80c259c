"""Putting a cut schema together: where definitions stand, and what each reference is written as.

A definition may be needed twice: cut, for the arguments themselves, and whole, for a member that has the same
form (a tree whose branches are like its root). Rules:

* What a reference from a member means stays whole. It keeps its place where that is still there; else it gets
  one among the definitions.
* What is cut takes the place of its definition where nobody needs that one whole; else it gets a new one.
* A definition that nothing refers to any more is left out: it may tell of what was cut.
* References into what has not moved keep their text.
* A resource (a part with a URI of its own) may stand whole and, under another name and without its URI, cut.
  What its references mean is read in the copy that they stand in: in the whole one they keep their text.
"""

from __future__ import annotations

from typing import Any, Final, final

from .._base.schema_resources import AS_VALUE, IN_LIST, IN_MAPPING
from ._schema_branches import Cutter, Moved
from ._schema_document import DEFINITIONS, Document, Path, pointer, subschemas
from ._schema_value import CannotCut

_HELD: Final = tuple((key,) for key in DEFINITIONS)


@final
class Assembly:
    """One cut schema while it is put together.

    Args:
        document: The whole schema.
        cutter: What has cut it.
        root: What came of its root.
    """

    def __init__(self, document: Document, cutter: Cutter, root: dict[str, Any]) -> None:
        self._document = document
        self._cutter = cutter
        self._root = root
        held = [key for key in DEFINITIONS if isinstance(document.root.get(key), dict)]
        later = document.draft >= 2019
        # up to draft 7 nothing in `$defs` is a resource, and what moves there would be none any more
        self._holder = (held or ["$defs"])[0] if later else "definitions"
        self._taken = {name for key in held for name in document.root[key]}
        self._cut: dict[Path, Path] = {}  # a place that is cut, and reached by reference: where it goes
        self._whole: dict[Path, Path] = {}  # a place that stays whole: where it goes
        self._lost: set[Path] = set()  # resources that are none any more
        self._new: list[tuple[Path, str]] = []  # what gets a place among the definitions, whole

    def built(self) -> dict[str, Any]:
        """Give the schema.

        Raises:
            CannotCut: A part would have to stand twice, or elsewhere, that has a name of its own.
        """
        needed = self._reach()
        for target in self._cut:
            stays = self._is_definition(target) and not any(
                target == one[: len(target)] or one == target[: len(one)] for one in needed
            )
            self._cut[target] = target if stays else (self._holder, self._fresh(target))
        self._keep((), self._root, ())
        for target, place in self._cut.items():
            self._keep(target, self._cutter.node(target), place)
        # definitions first, which the whole root is without; then what holds others
        for path in sorted(needed, key=lambda path: (path[:1] not in _HELD, len(path), pointer(path))):
            self._settle(path)
        return self._finished()

    # -- what is needed

    def _reach(self) -> set[Path]:
        """Find each place that is referred to from what stays whole, and each that is cut by reference."""
        needed: set[Path] = set()
        cut: list[tuple[Any, Path]] = [(self._root, ())]
        whole: list[tuple[Any, Path]] = []
        while cut or whole:
            if whole:
                node, path = whole.pop()
                if not isinstance(node, dict):
                    continue
                target = self._target(node, path)
                if target is not None and target not in needed:
                    needed.add(target)
                    whole.append((self._document.at(target), target))
                whole += self._below(node, path)
                continue
            node, path = cut.pop()
            reference = node.get("$ref")
            if isinstance(reference, Moved):
                if reference.target not in self._cut:
                    self._cut[reference.target] = reference.target
                    cut.append((self._cutter.node(reference.target), reference.target))
            elif isinstance(reference, str):
                target = self._target(node, path)
                if target is not None and target not in needed:
                    needed.add(target)
                    whole.append((self._document.at(target), target))
            if self._document.identified(path):
                self._lost.add(path)
            for one, below in self._below(node, path):
                origin = self._cutter.origins.get(id(one)) if isinstance(one, dict) else None
                if origin is not None and one is not self._document.at(origin):
                    cut.append((one, origin))
                else:
                    whole.append((one, below if origin is None else origin))
        return needed

    def _below(self, node: dict[str, Any], path: Path) -> list[tuple[Any, Path]]:
        return [(one, below) for below, one in subschemas(node, path) if not self._is_definition(below)]

    def _target(self, node: dict[str, Any], path: Path) -> Path | None:
        if "$dynamicRef" in node or "$recursiveRef" in node:
            raise CannotCut("it has a dynamic reference, whose meaning a cut may change")
        reference = node.get("$ref")
        return self._document.resolve(reference, path) if isinstance(reference, str) else None

    @staticmethod
    def _is_definition(path: Path) -> bool:
        return len(path) == 2 and path[0] in DEFINITIONS

    # -- where it goes

    def _keep(self, origin: Path, node: dict[str, Any], place: Path) -> None:
        """Note where the members of a cut place stand now."""
        waiting: list[tuple[Path, Any, Path]] = [(origin, node, place)]
        while waiting:
            origin, node, place = waiting.pop()
            for one, below in self._below(node, place):
                came = self._cutter.origins.get(id(one)) if isinstance(one, dict) else None
                if came is None:
                    self._whole.setdefault((*origin, *below[len(place) :]), below)
                elif one is self._document.at(came):
                    self._whole.setdefault(came, below)
                else:
                    waiting.append((came, one, below))

    def _settle(self, path: Path) -> None:
        if self._found(path) is not None:
            return
        if self._is_definition(path[:2]):  # no cut one stands there: what holds something needed moves
            self._whole[path[:2]] = path[:2]
            return
        resource = self._document.resource(path)
        named = resource != () and resource not in self._lost
        waiting: list[tuple[Any, Path]] = [(self._document.at(path), path)]
        while waiting:
            node, at = waiting.pop()
            if isinstance(node, dict):
                if named or (at != () and self._document.named(node)):
                    raise CannotCut("a part of it that has a name of its own would have to move")
                waiting += self._below(node, at)
        name = self._fresh(path)
        self._whole[path] = (self._holder, name)
        self._new.append((path, name))

    def _found(self, path: Path) -> Path | None:
        for length in range(len(path), -1, -1):
            place = self._whole.get(path[:length])
            if place is not None:
                return (*place, *path[length:])
        return None

    def _fresh(self, path: Path) -> str:
        words = [part for part in path if isinstance(part, str)]
        base = words[-1] if words else "Whole"
        name, number = base, 2
        while name in self._taken:
            name, number = f"{base}{number}", number + 1
        self._taken.add(name)
        return name

    # -- writing it

    def _finished(self) -> dict[str, Any]:
        root = self._written_cut(self._root, ())
        holders: dict[str, dict[str, Any]] = {}
        for key in DEFINITIONS:
            held = self._document.root.get(key)
            if not isinstance(held, dict):
                continue
            for name in held:
                at: Path = (key, name)
                if self._cut.get(at) == at:
                    holders.setdefault(key, {})[name] = self._written_cut(self._cutter.node(at), at)
                elif self._whole.get(at) == at:
                    holders.setdefault(key, {})[name] = self._written_whole(held[name], at, at)
        added = holders.setdefault(self._holder, {})
        for target, place in self._cut.items():
            if place != target:
                added[str(place[1])] = self._written_cut(self._cutter.node(target), target)
        for path, name in self._new:
            whole = self._document.at(path)
            if path == ():
                whole = {
                    key: value
                    for key, value in whole.items()
                    if key not in (*DEFINITIONS, "$schema", "$id", "id", "$anchor", "$dynamicAnchor")
                }
            added[name] = self._written_whole(whole, path, path)
        out = {key: value for key, value in root.items() if key not in DEFINITIONS or holders.get(key)}
        return {**out, **{key: value for key, value in holders.items() if value}}

    def _written_cut(self, node: dict[str, Any], path: Path) -> dict[str, Any]:
        out = dict(node)
        reference = node.get("$ref")
        if isinstance(reference, Moved):
            out["$ref"] = pointer(self._cut[reference.target])
        elif isinstance(reference, str):
            out["$ref"] = self._text(reference, path, None)
        self._mapped(out, path, None)
        return self._rebuilt(out, path, None)

    def _written_whole(self, node: Any, path: Path, top: Path) -> Any:
        """Write what stays whole, as a part of what stands whole from `top` on."""
        if not isinstance(node, dict):
            return node
        out = dict(node)
        if isinstance(node.get("$ref"), str):
            out["$ref"] = self._text(node["$ref"], path, top)
        self._mapped(out, path, top)
        out = self._rebuilt(out, path, top)
        return node if out.keys() == node.keys() and all(out[key] is node[key] for key in out) else out

    def _rebuilt(self, out: dict[str, Any], path: Path, top: Path | None) -> dict[str, Any]:
        for key, value in out.items():
            if path == () and key in DEFINITIONS:
                continue
            if key in IN_MAPPING and isinstance(value, dict):
                members: Any = {at: self._member(one, (*path, key, at), top) for at, one in value.items()}
                out[key] = value if all(members[at] is value[at] for at in value) else members
            elif key in IN_LIST and isinstance(value, list):
                members = [self._member(one, (*path, key, at), top) for at, one in enumerate(value)]
                out[key] = value if all(map(_same, members, value)) else members
            elif key in AS_VALUE:
                out[key] = self._member(value, (*path, key), top)
        return out

    def _member(self, node: Any, path: Path, top: Path | None) -> Any:
        if top is not None:
            return self._written_whole(node, path, top)
        origin = self._cutter.origins.get(id(node)) if isinstance(node, dict) else None
        if origin is not None and node is not self._document.at(origin):
            return self._written_cut(node, origin)
        whole = path if origin is None else origin
        return self._written_whole(node, whole, whole)

    def _text(self, reference: str, path: Path, top: Path | None) -> str:
        target = self._document.resolve(reference, path)
        if target is None:
            return reference
        place = self._found(target)
        if place is None:
            raise CannotCut("a part of it refers to what is no longer there")
        text = self._said(reference, target, place, path, top)
        if text is None:
            raise CannotCut("a part of it that has a name of its own refers to what is cut")
        return text

    def _said(self, reference: str, target: Path, place: Path, path: Path, top: Path | None) -> str | None:
        """Say where a reference at `path` leads, whose target stands at `place`; `None` where it cannot."""
        resource = self._document.resource(path)
        whole = top is not None and resource[: len(top)] == top
        if resource == () or (resource in self._lost and not whole):
            return reference if place == target and resource == () else pointer(place)
        # what stands whole brings along what it refers to in itself
        inside = whole and target[: len(resource)] == resource
        return reference if inside or place == target else None

    def _mapped(self, out: dict[str, Any], path: Path, top: Path | None) -> None:
        """Write the references of a `discriminator`, which tell a reader of branches by name."""
        discriminator = out.get("discriminator")
        mapping = discriminator.get("mapping") if isinstance(discriminator, dict) else None
        if not isinstance(mapping, dict):
            return
        kept: dict[str, Any] = {}
        for name, reference in mapping.items():
            text, target = reference, None
            if isinstance(reference, str) and reference.startswith("#"):
                target = self._document.resolve(reference, path)
            if target is not None:
                place = (self._cut.get(target) if top is None else None) or self._found(target)
                text = None if place is None else self._said(reference, target, place, path, top)
            if target is None or text is not None:
                kept[name] = text
        if kept != mapping:
            out["discriminator"] = {**out["discriminator"], "mapping": kept}


def _same(left: Any, right: Any) -> bool:
    return left is right
