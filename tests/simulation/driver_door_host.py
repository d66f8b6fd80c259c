"""What a host gives a runtime: who vends credentials, hooks, and a shelf for artifacts, each in its mood.

What they are asked and what they do is filed when it happens. The call within which they are asked is known
from the task that asks, as the driver marks it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import trio

from afpool import Anonymous, Identity, Issued, NeedsAuthorization, api_key, basic, bearer, header_map
from afpool.artifacts import (
    Artifact,
    ArtifactIntegrityError,
    ArtifactMeta,
    ArtifactPage,
    ArtifactStoreError,
    MemoryArtifacts,
)
from afpool.tools import Deny, Hook, Replace
from tests.simulation.driver_secrets import AppFault
from tests.simulation.driver_work import CALL
from tests.simulation.ground import Vended
from tests.simulation.ground_door import HookSaid, ShelfAsked, Shelved, Unshelved, VaultSaid, scope_of
from tests.simulation.world_door import DEEP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from afpool import Credential, CredentialRequest
    from afpool.artifacts import ArtifactStore, NewArtifact, Swept
    from afpool.tools import HookCall
    from tests.simulation.driver import Run
    from tests.simulation.host_door import ChangeVault
    from tests.simulation.world_door import DoorSpec, HookMood


# ------------------------------------------------------------------------------------------ credentials


class Vault:
    """Vends credentials: those of the door itself, and for plans whatever the app of the world vends.

    Args:
        run: The run.
        form: What a credential of the door is; see `DoorSpec.fields`.

    Attributes:
        values: Owner to the value that is current.
    """

    def __init__(self, run: Run, form: str) -> None:
        self.values: dict[str, str] = {}
        self._run = run
        self._form = form
        self._moods: dict[str, str] = {}
        self._mood = "good"
        self._count = 0

    def owner(self, identity: Identity, mode: str) -> str:
        """Whose credential serves an identity, as facts say it."""
        if mode == "machine":
            return f"{DEEP}:machine"
        return f"{DEEP}:{identity.tenant or '-'}/{identity.principal or '-'}"

    def change(self, step: ChangeVault) -> None:
        """See the step."""
        owners: tuple[str, ...] = tuple(self.values)
        if step.who is not None:
            owners = (self.owner(self._run.identity(step.who), "user"),)
        if step.how == "new":
            for owner in owners:
                self.values.pop(owner, None)
        elif step.who is None:
            self._mood = step.how
        else:
            self._moods[owners[0]] = step.how

    def heal(self) -> None:
        """Everything is in order again."""
        self._mood = "good"
        self._moods.clear()

    def value(self, owner: str) -> str:
        """The current value; made up when it is asked for first. It is hard to find where it is escaped."""
        value = self.values.get(owner)
        if value is None:
            self._count += 1
            core = f"canary-{self._count}-vault"
            if self._form == "bearer" and (self._count + self._run.story.seed) % 4 == 0:
                core = f"4711{self._count:05}90812"  # which may stand in JSON as a number
                self.values[owner] = core
                self._run.host.canaries.append(core)
                self._run.ground.file(Vended(owner=owner, value=core))
                return core
            odd = ("", "/+&=", ' "quoted"', "~._<>", "\\back")[self._count % 5]
            odd = odd if self._form == "bearer" else ""
            value = self.values[owner] = f"{core}-{owner.replace('/', '.')}{odd}"
            self._run.host.canaries.append(core)
            self._run.ground.file(Vended(owner=owner, value=value))
        return value

    async def get(self, request: CredentialRequest) -> Any:
        """See `CredentialProvider.get`."""
        run = self._run
        if request.service != DEEP:
            return await run.host.get(request)
        owner = self.owner(request.identity, request.mode)
        mood = self._moods.get(owner, self._mood)
        run.ground.file(VaultSaid(call=CALL.get(None), owner=owner, how=mood))
        await trio.lowlevel.checkpoint()
        if mood == "hangs":
            await trio.sleep_forever()
        if mood == "slow":
            await trio.sleep(1.0)
        if mood == "raises":
            raise AppFault(f"the vault is sealed: {self.value(owner)}")
        if mood == "refuses":
            from afpool import CredentialFailed

            raise CredentialFailed("the vault gives nothing today")
        if mood == "needs-consent":
            self._count += 1
            address = f"https://consent.test/canary-{self._count}-address"
            run.host.canaries.append(address)
            return NeedsAuthorization(address, "consent-2")
        if mood == "anonymous":
            return Anonymous()
        if mood == "rubbish":
            return {"token": self.value(owner)}
        if mood == "several":
            return Issued(header_map({"x-a": self.value(owner), "x-b": f"{self.value(owner)}-b"}))
        if mood == "short":
            return Issued(bearer("abc"))
        expires = run.sim.seams.unix_now() + 3600 if self._count % 2 else None
        return Issued(self.made(self.value(owner)), expires)

    def made(self, value: str) -> Credential:
        """A credential of the form that this world has."""
        match self._form:
            case "api-key":
                return api_key(value, "x-door-key")
            case "basic":
                return basic("door", value)
            case "headers":
                return header_map({"x-door": value})
        return bearer(value)

    def drop(self, *, service: str | None, identity: Identity) -> None:
        """See `Host.drop`."""
        if service != DEEP:
            self._run.host.drop(service=service, identity=identity)


def value_of(credential: Any) -> str:
    """The value in a credential of the door, whatever it is."""
    for name in ("token", "key", "password"):
        value = getattr(credential, name, None)
        if isinstance(value, str):
            return value
    headers = getattr(credential, "headers", None)
    return next(iter(headers.values())) if isinstance(headers, dict) else ""


# ------------------------------------------------------------------------------------------ hooks


class HookFault(Exception):
    """What a hook raises."""


class Hooks:
    """The hooks of a world, outermost first; each does what its mood says.

    Attributes:
        moods: As they are now.
    """

    def __init__(self, run: Run, spec: DoorSpec) -> None:
        self.moods: list[HookMood] = list(spec.hooks)
        self._run = run

    def made(self) -> list[Hook]:
        """As a runtime takes them: every third has no `after`, every fourth no `before`."""
        return [
            Hook(
                f"hook-{number}",
                before=None if number % 4 == 3 else self._before(number),
                after=None if number % 3 == 2 else self._after(number),
            )
            for number in range(len(self.moods))
        ]

    def heal(self) -> None:
        """They all pass."""
        self.moods = ["passes" for _ in self.moods]

    def _before(self, number: int) -> Callable[[HookCall], Any]:
        def before(call: HookCall) -> Any:
            mood = self.moods[number]
            self._run.ground.file(HookSaid(call=call.call_id, hook=number, after=False, how=mood))
            if mood == "denies":
                return Deny("not today")
            if mood == "raises":
                raise HookFault(f"hook-fault of {dict(call.args)}")
            if mood == "rubbish":
                return {"deny": True}
            if mood == "not-json":
                return Replace({**call.args, "note": {1, 2}})
            if mood == "replaces":
                return Replace({**call.args, "note": "replaced"})
            if mood == "puts-filled":
                return Replace({**call.args, "token": f"hook-value-{call.call_id}.", "account": "hook-value"})
            if mood in {"slow", "hangs"}:
                return self._later(mood)
            return None

        return before

    def _after(self, number: int) -> Callable[[HookCall, Any], Any]:
        def after(call: HookCall, result: Any) -> Any:
            mood = self.moods[number]
            self._run.ground.file(HookSaid(call=call.call_id, hook=number, after=True, how=mood))
            if mood == "denies-after":
                return Deny("what it said is not for you")
            if mood == "raises-after":
                raise HookFault(f"hook-fault of {result.text}")
            if mood == "replaces-after":
                return Replace({"replaced": call.call_id})
            if mood == "rubbish-after":
                return Replace(object())
            if mood == "hangs-after":
                return self._later("hangs")
            return None

        return after

    async def _later(self, mood: str) -> None:
        if mood == "hangs":
            await trio.sleep_forever()
        await trio.sleep(0.3)


# ------------------------------------------------------------------------------------------ artifacts


class Shelf:
    """An artifact store that files what it is asked, and does what its mood says.

    Attributes:
        mood: See `ChangeShelf`.
        store: The real one, in memory.
        refs: Every ref that was given out, by whose it is, oldest first.
    """

    def __init__(self, run: Run, spec: DoorSpec) -> None:
        self.mood = "good"
        self.refs: dict[str, list[str]] = {}
        self.store: ArtifactStore = MemoryArtifacts(
            ttl=spec.ttl,
            max_count_per_scope=spec.shelf,
            max_bytes_per_scope=spec.room,
            max_bytes=4 * spec.room,
            on_given_up=lambda scope, swept: self._gone(swept),
            seams=run.sim.seams,
        )
        self._run = run

    def _gone(self, swept: Swept) -> None:
        self._run.ground.file(Unshelved(ref=swept.ref))

    async def _asked(self, scope: Identity, verb: str, ref: str | None) -> None:
        told = ref if isinstance(ref, str) and len(ref) < 100 else None
        self._run.ground.file(
            ShelfAsked(scope=scope_of(scope), verb=verb, ref=told, call=CALL.get(None), mood=self.mood)
        )
        match self.mood:
            case "fails":
                await trio.lowlevel.checkpoint()
                raise ArtifactStoreError("the disk is full; nothing was stored", delivery="not-sent")
            case "raises":
                await trio.lowlevel.checkpoint()
                raise AppFault("the shelf has fallen")
            case "hangs":
                await trio.sleep_forever()
            case "slow":
                await trio.sleep(0.5)

    async def put(self, scope: Identity, new: NewArtifact, *, on_swept: Any = None) -> ArtifactMeta:
        """See `ArtifactStore.put`."""
        await self._asked(scope, "put", None)
        swept: list[Swept] = []
        meta = await self.store.put(scope, new, on_swept=swept.append)
        for one in swept:
            self._gone(one)
            if on_swept is not None:
                on_swept(one)
        whose, now = scope_of(scope), self._run.sim.seams
        self.refs.setdefault(whose, []).append(meta.ref)
        text = new.data if isinstance(new.data, str) else json.dumps(new.data, default=repr)
        expires = None if meta.expires_at is None else meta.expires_at - now.unix_now() + now.now()
        self._run.ground.file(
            Shelved(
                scope=whose, ref=meta.ref, kind=meta.kind, call=CALL.get(None), expires=expires, text=text
            )
        )
        if self.mood == "rubbish":
            return {"ref": meta.ref}  # type: ignore[return-value]
        return meta

    async def head(self, scope: Identity, ref: str) -> ArtifactMeta | None:
        """See `ArtifactStore.head`."""
        await self._asked(scope, "head", ref)
        meta = await self.store.head(scope, ref)
        return {"ref": ref} if self.mood == "rubbish" else meta  # type: ignore[return-value]

    async def get(self, scope: Identity, ref: str) -> Artifact | None:
        """See `ArtifactStore.get`."""
        await self._asked(scope, "get", ref)
        found = await self.store.get(scope, ref)
        if self.mood == "damaged" and found is not None:
            raise ArtifactIntegrityError(ref, "sha-256:a", "sha-256:b")
        if self.mood == "rubbish":
            return ("no", "artifact")  # type: ignore[return-value]
        if self.mood == "strays" and found is None:
            return await self._stray(scope, ref)
        return found

    async def _stray(self, scope: Identity, ref: str = "") -> Artifact | None:
        """Somebody else's artifact, in place of one that is not there."""
        for whose, refs in self.refs.items():
            if whose != scope_of(scope) and refs[-1] != ref:
                fields = [None if field == "-" else field for field in whose.split("/")]
                owner = Identity(tenant=fields[0], principal=fields[1], conversation_id=fields[2])
                found = await self.store.get(owner, refs[-1])
                if found is not None:
                    return found
        return None

    async def delete(self, scope: Identity, ref: str) -> None:
        """See `ArtifactStore.delete`."""
        await self._asked(scope, "delete", ref)
        await self.store.delete(scope, ref)
        if ref in self.refs.get(scope_of(scope), ()):
            self._run.ground.file(Unshelved(ref=ref))

    async def list(
        self, scope: Identity, *, kind: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> ArtifactPage:
        """See `ArtifactStore.list`."""
        await self._asked(scope, "list", None)
        page = await self.store.list(scope, kind=kind, cursor=cursor, limit=limit)
        if self.mood == "rubbish":
            return [1, 2]  # type: ignore[return-value]
        if self.mood == "strays":
            stray = await self._stray(scope)
            if stray is not None:
                row = attrs.evolve(stray.meta, kind=kind or stray.meta.kind)
                return ArtifactPage((row, *page.items), "again")
        return page


def plain(identity: Any) -> Identity | None:
    """Who a caller identity names now; None for nobody and for one who cannot be asked."""
    if callable(identity):
        try:
            identity = identity()
        except Exception:
            return None
    return identity if isinstance(identity, Identity) else None


def marked(args: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """Arguments with a mark."""
    return {**args, "mark": mark}
