"""Runs: calls that belong together, for one caller, paused and gone on with elsewhere.

Rules:

* A run acts for its caller. One that no caller was named for acts for nobody, and its artifacts are its own:
  their scope is made of its id, and that scope is never passed on as a caller.
* What was offered to the run is what its calls mean, also after a pause: a tool that is defined otherwise by
  then is refused (`stale-tools`).
* A checkpoint is data. Where the runtime has a secret, a checkpoint proves that it is one of its own: who
  could change one could act as anybody.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, final

from .._base.canonical import ContentError, canonical_json, parse_strict
from .._base.errors import AfpoolError, IdentityMissing, PlanFailed, StaleTools
from .._base.identity import FIELDS, Identity, is_nobody
from ..artifacts import ArtifactMinted, Origin, bind_artifacts
from ..pool._asking import ask_identity, same_caller
from ..tools import binding_of
from ..tools._asking import new_run_id
from ._open_runs import named

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.identity import CallerIdentity
    from .._base.model import Progress, ToolResult
    from ..artifacts import ArtifactFact, BoundArtifacts
    from ._runtime import Runtime
    from ._toolset import RuntimeToolset

VERSION: Final = 1
# The ground that a toolset was listed on is gone; whoever comes next needs another one.
OUTDATED: Final = frozenset({"stale-tools", "binding-changed", "identity-mismatch"})
_DIGITS: Final = 32
_PURPOSE: Final = b"afpool checkpoint\0"


@final
class Run:
    """One run. Made by `Runtime.run` and `Runtime.resume`.

    Attributes:
        run_id: Of the run; noted on everything that its calls record and store.
        identity: Who it acts for, as its caller named them; `None` for nobody.
        who: The same as far as it is known without asking: as the last call found it.
        began_at: When it was begun or gone on with, on the runtime's clock.
        calls: How many calls it has made.
        last_call_at: When the last one began; `None` before the first.
    """

    __slots__ = (
        "__weakref__", "_at_hand", "_offer", "_runtime", "_toolset", "began_at", "calls", "identity",
        "last_call_at", "run_id", "who",
    )  # fmt: skip

    def __init__(
        self, runtime: Runtime, identity: CallerIdentity, run_id: str, offer: Mapping[str, list[str]]
    ) -> None:
        self._runtime = runtime
        self._toolset: RuntimeToolset | None = None  # what was asked for, and is what names mean
        self._at_hand: RuntimeToolset | None = None  # what was listed for calls where nobody asked
        self._offer = offer
        self.identity = identity
        self.run_id = run_id
        self.who = named(identity)
        self.began_at = runtime.seams.now()
        self.calls = 0
        self.last_call_at: float | None = None
        runtime.open_runs.add(self)

    @property
    def scope(self) -> Identity:
        """Whose artifacts it sees: its caller's, or its own where nobody was named.

        Raises:
            IdentityMissing: The caller could not be asked.
        """
        return self._scope_of(self.identity)

    def _scope_of(self, identity: CallerIdentity) -> Identity:
        who = None if identity is None else ask_identity(identity)
        self.who = named(who)
        return Identity(conversation_id=self.run_id) if who is None or is_nobody(who) else who

    @property
    def artifacts(self) -> BoundArtifacts | None:
        """The artifact store as the run sees it; `None` where there is none."""
        runtime = self._runtime
        store = runtime.config.artifacts
        if store is None:
            return None
        scope = self.scope

        def put(fact: ArtifactFact) -> None:
            if isinstance(fact, ArtifactMinted):
                runtime.minted(fact.meta, scope)

        return bind_artifacts(store, scope, origin=Origin(self.run_id), on_fact=put)

    async def toolset(self, *, deadline: float | None = None, refresh: bool = False) -> RuntimeToolset:
        """List what the run may call; what its calls mean from now on. See `Runtime.toolset`."""
        self._toolset = await self._runtime.toolset(self.identity, deadline=deadline, refresh=refresh)
        self._at_hand = None
        self._offer = {}
        return self._toolset

    async def call(
        self,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        deadline: float | None = None,
        on_progress: Callable[[Progress], object] | None = None,
        chain: tuple[int, ...] = (),
    ) -> ToolResult:
        """Call a tool by the name that the run's toolset shows; see `Runtime.dispatch`."""
        runtime = self._runtime
        self.calls += 1
        self.last_call_at = runtime.seams.now()
        toolset = self._toolset
        name = as_name(name)
        problem: AfpoolError | None = None
        identity = self.identity
        scope: Identity | None = None
        find = None
        try:
            # whose artifacts the call sees, and whom it is made for, is one answer of the caller's
            identity = same_caller(identity)
            scope = self._scope_of(identity)
            if toolset is None and (name in self._offer or runtime.local(name) is None):
                if self._at_hand is None or name not in self._at_hand:
                    find = self._find
                else:
                    toolset = self._at_hand
                    self._check_offer(name, toolset)
        except Exception as error:  # noqa: BLE001 -- a call gives a result, whatever stands in its way
            problem = as_problem(error)
        result = await runtime.through(
            toolset,
            name,
            args,
            identity=identity,
            scope=scope,
            run_id=self.run_id,
            call_id=call_id,
            deadline=deadline,
            on_progress=on_progress,
            chain=chain,
            problem=problem,
            find=find,
        )
        if result.code in OUTDATED:
            self._at_hand = None
        return result

    async def _find(self, name: str, _: CallerIdentity, deadline: float | None) -> RuntimeToolset:
        """List what a call's name is looked for in where nobody has asked for a toolset."""
        toolset = self._at_hand = await self._runtime.toolset(self.identity, deadline=deadline)
        self._check_offer(name, toolset)
        return toolset

    def checkpoint(self) -> dict[str, Any]:
        """Give what the run is gone on with from: plain JSON, for any process. Synchronous.

        It holds the run's id, its caller and what it was offered; no arguments, no results, no secret.

        Raises:
            IdentityMissing: The caller could not be asked who it is, or has been withdrawn: a run that was
                somebody's would go on as nobody's.
        """
        saved: dict[str, Any] = {"afpool_run": VERSION, "run_id": self.run_id}
        if self.identity is not None:
            who = ask_identity(self.identity)
            named = {field: value for field in FIELDS if (value := getattr(who, field)) is not None}
            if named:
                saved["identity"] = named
            elif callable(self.identity):
                raise IdentityMissing(
                    f"the caller of the run {self.run_id} has been withdrawn; it cannot be gone on with"
                )
        # in this order: another thread may be listing, which sets the toolset and then drops the offer
        offer, toolset = self._offer, self._toolset
        if toolset is not None:
            offer = _offer_of(toolset)
        if offer:
            saved["offer"] = {shown: list(place) for shown, place in offer.items()}
        config = self._runtime.config
        if config.secret is not None:
            saved["proof"] = _proof(config.secret, canonical_json(saved))
        return saved

    def _check_offer(self, name: str, toolset: RuntimeToolset) -> None:
        """Refuse a tool that is not the one that the run was offered before it was paused."""
        offered = self._offer.get(name)
        if offered is None:
            return
        server, listed, digest = offered
        if name in toolset and toolset.place_of(name) == (server, listed):
            binding = binding_of(toolset[name])
            if binding is not None and binding.definition.digest[:_DIGITS] == digest:
                return
        raise StaleTools(
            f"the tool {name} is not any more what it was when the run was paused; nothing was sent; list "
            "the run's tools again"
        )

    def __repr__(self) -> str:
        return f"<Run {self.run_id}>"


def as_name(name: object) -> str:
    """Give a tool's name as it can be looked up; what is no string names no tool."""
    return name if isinstance(name, str) else f"<{type(name).__name__}>"


def as_problem(error: Exception) -> AfpoolError:
    """Give the refusal of a call whose tools could not be listed."""
    if isinstance(error, AfpoolError):
        return error
    # a mistake in the rules is told in the words of its TypeError: names, no values
    why = str(error) if isinstance(error, TypeError) else type(error).__name__
    problem = PlanFailed(f"The tools could not be listed, and nothing ran: {why}")
    problem.__cause__ = error
    return problem


def new_run(runtime: Runtime, identity: CallerIdentity, run_id: str | None) -> Run:
    """Begin a run."""
    if run_id is None:
        run_id = new_run_id()
    return Run(runtime, identity, _checked_id(run_id), {})


def resumed_run(
    runtime: Runtime, checkpoint: Mapping[str, Any] | str | bytes, identity: CallerIdentity
) -> Run:
    """Go on with a run.

    Raises:
        ValueError: It is no checkpoint, or none of this runtime's.
    """
    saved = _read(checkpoint)
    # no secret in a local here: a traceback may be shown with them
    if runtime.config.secret is not None and not _is_proved(runtime.config.secret, saved):
        raise ValueError("the checkpoint is none of this runtime's: its proof does not hold")
    if saved.get("afpool_run") != VERSION:
        raise ValueError(f"this is no checkpoint of a run, or of another version than {VERSION}")
    caller = saved.get("identity", {})
    offer = saved.get("offer", {})
    if not _is_texts(caller) or not set(caller) <= set(FIELDS):
        raise ValueError("the checkpoint's identity is not readable")
    if not isinstance(offer, dict) or not all(
        isinstance(place, list) and len(place) == 3 and all(isinstance(part, str) for part in place)
        for place in offer.values()
    ):
        raise ValueError("the checkpoint's offer is not readable")
    if identity is None and caller:
        identity = Identity(**caller)
    return Run(runtime, identity, _checked_id(saved.get("run_id")), offer)


def _read(checkpoint: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
    try:
        if isinstance(checkpoint, Mapping):
            saved: Any = parse_strict(canonical_json(dict(checkpoint)))
        else:
            saved = parse_strict(checkpoint.encode() if isinstance(checkpoint, str) else bytes(checkpoint))
    except (ContentError, TypeError, ValueError) as error:
        raise ValueError(f"this is no checkpoint of a run: {error}") from None
    if not isinstance(saved, dict):
        raise ValueError("this is no checkpoint of a run: it is no object")  # noqa: TRY004 -- one kind of error
    return saved


def _checked_id(run_id: object) -> str:
    if not isinstance(run_id, str) or not run_id:
        raise ValueError("a run's id is a string that is not empty")
    return run_id


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _is_proved(secret: bytes, saved: dict[str, Any]) -> bool:
    """Take the proof out of a checkpoint, and say whether it holds. Raises nothing."""
    proof = saved.pop("proof", None)
    expected = _proof(secret, canonical_json(saved)).encode()
    return isinstance(proof, str) and hmac.compare_digest(proof.encode("utf-8", "replace"), expected)


def _proof(secret: bytes, saved: bytes) -> str:
    return hmac.digest(secret, _PURPOSE + saved, "sha256").hex()


def _offer_of(toolset: RuntimeToolset) -> dict[str, list[str]]:
    offer: dict[str, list[str]] = {}
    for shown in toolset:
        server, listed = toolset.place_of(shown)
        binding = binding_of(toolset[shown])
        if server is not None and binding is not None:
            offer[shown] = [server, listed, binding.definition.digest[:_DIGITS]]
    return offer
