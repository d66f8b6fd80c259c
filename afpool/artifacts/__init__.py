"""Where results too large for a model's context live: stores of five verbs, scope first.

`MemoryArtifacts`, `SqliteArtifacts` and `RedisArtifacts` keep one port, `ArtifactStore`; the suite that says
so, also of stores of one's own, is in `afpool.artifacts.testing`. Names are loaded when first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._capability import Artifacts as Artifacts
    from ._capability import BoundArtifacts as BoundArtifacts
    from ._capability import BoundStreamingArtifacts as BoundStreamingArtifacts
    from ._capability import NoArtifacts as NoArtifacts
    from ._capability import bind_artifacts as bind_artifacts
    from ._facts import ArtifactExpired as ArtifactExpired
    from ._facts import ArtifactFact as ArtifactFact
    from ._facts import ArtifactMinted as ArtifactMinted
    from ._facts import ArtifactPresented as ArtifactPresented
    from ._facts import ArtifactRefused as ArtifactRefused
    from ._facts import ArtifactResolved as ArtifactResolved
    from ._memory import MemoryArtifacts as MemoryArtifacts
    from ._naming import is_artifact_ref as is_artifact_ref
    from ._naming import scope_path as scope_path
    from ._placement import Placed as Placed
    from ._placement import Placement as Placement
    from ._placement import place as place
    from ._placement import placed as placed
    from ._placement import placed_artifact as placed_artifact
    from ._redis import RedisArtifacts as RedisArtifacts
    from ._retention import Retention as Retention
    from ._sqlite import SqliteArtifacts as SqliteArtifacts
    from ._types import Artifact as Artifact
    from ._types import ArtifactError as ArtifactError
    from ._types import ArtifactIntegrityError as ArtifactIntegrityError
    from ._types import ArtifactMeta as ArtifactMeta
    from ._types import ArtifactPage as ArtifactPage
    from ._types import ArtifactScope as ArtifactScope
    from ._types import ArtifactStore as ArtifactStore
    from ._types import ArtifactStoreClosedError as ArtifactStoreClosedError
    from ._types import ArtifactStoreError as ArtifactStoreError
    from ._types import ArtifactStream as ArtifactStream
    from ._types import InvalidArtifactError as InvalidArtifactError
    from ._types import NewArtifact as NewArtifact
    from ._types import NewStream as NewStream
    from ._types import NoArtifactStoreError as NoArtifactStoreError
    from ._types import Origin as Origin
    from ._types import StreamingArtifactStore as StreamingArtifactStore
    from ._types import Swept as Swept
    from ._types import UnknownParentRefError as UnknownParentRefError
    from ._types import UnreadableArtifactError as UnreadableArtifactError
    from ._types import UnreadableArtifactStoreError as UnreadableArtifactStoreError

_HOMES = {
    "_capability": (
        "Artifacts", "BoundArtifacts", "BoundStreamingArtifacts", "NoArtifacts", "bind_artifacts",
    ),
    "_facts": (
        "ArtifactExpired", "ArtifactFact", "ArtifactMinted", "ArtifactPresented", "ArtifactRefused",
        "ArtifactResolved",
    ),
    "_memory": ("MemoryArtifacts",),
    "_naming": ("is_artifact_ref", "scope_path"),
    "_placement": ("Placed", "Placement", "place", "placed", "placed_artifact"),
    "_redis": ("RedisArtifacts",),
    "_retention": ("Retention",),
    "_sqlite": ("SqliteArtifacts",),
    "_types": (
        "Artifact", "ArtifactError", "ArtifactIntegrityError", "ArtifactMeta", "ArtifactPage",
        "ArtifactScope", "ArtifactStore", "ArtifactStoreClosedError", "ArtifactStoreError", "ArtifactStream",
        "InvalidArtifactError", "NewArtifact", "NewStream", "NoArtifactStoreError", "Origin",
        "StreamingArtifactStore", "Swept", "UnknownParentRefError", "UnreadableArtifactError",
        "UnreadableArtifactStoreError",
    ),
}  # fmt: skip

__all__ = [
    "Artifact",
    "ArtifactError",
    "ArtifactExpired",
    "ArtifactFact",
    "ArtifactIntegrityError",
    "ArtifactMeta",
    "ArtifactMinted",
    "ArtifactPage",
    "ArtifactPresented",
    "ArtifactRefused",
    "ArtifactResolved",
    "ArtifactScope",
    "ArtifactStore",
    "ArtifactStoreClosedError",
    "ArtifactStoreError",
    "ArtifactStream",
    "Artifacts",
    "BoundArtifacts",
    "BoundStreamingArtifacts",
    "InvalidArtifactError",
    "MemoryArtifacts",
    "NewArtifact",
    "NewStream",
    "NoArtifactStoreError",
    "NoArtifacts",
    "Origin",
    "Placed",
    "Placement",
    "RedisArtifacts",
    "Retention",
    "SqliteArtifacts",
    "StreamingArtifactStore",
    "Swept",
    "UnknownParentRefError",
    "UnreadableArtifactError",
    "UnreadableArtifactStoreError",
    "bind_artifacts",
    "is_artifact_ref",
    "place",
    "placed",
    "placed_artifact",
    "scope_path",
]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
