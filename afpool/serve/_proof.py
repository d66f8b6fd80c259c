"""Who calls: proven by a token, by a signature or by a proxy, and never by what the caller says.

Rules:

* Of one head at most one thing counts. From the named proxy its identity headers do; else the bearer token.
  Who sends none of them is nobody, or whom the configuration lets nobody be (`anonymous`). A proof that was
  given and fails is refused, whoever nobody may be.
* A token says by its form what it is: one of ours begins with `afp_`, everything else is a JWT.
* Whatever is decided is decided from memory. What has to be fetched (a file, keys) is fetched by tasks of
  this proof; only a caller whose signing key nobody knows yet waits for one.
* A source that leaves the configuration takes back what it has proven. One that stays is kept as it is: what
  it proved holds on, and its keys are not fetched again.
* Nothing is raised at a caller: what goes wrong inside is logged by its kind and answered with 500.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from .._base.seams import Seams
from ._proof_answers import Challenges
from ._proof_bearer import bearer_of
from ._proof_types import Proven, Refused, RequestHead
from ._tokens import StaticTokens
from ._tokens_file import TokenFileError
from ._tokens_text import PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .._base.secret import Secret
    from ..config import IdentityConfig

ANONYMOUS: Final = "anonymous"
logger = logging.getLogger("afpool.serve")


@attrs.define(eq=False)
class _Sources:
    """What proves, by one configuration."""

    config: IdentityConfig
    challenges: Challenges
    tokens: StaticTokens | None = None


@final
class Proof:
    """Proves callers. Made by `open_proof`."""

    def __init__(self, nursery: trio.Nursery, seams: Seams) -> None:
        self._nursery = nursery
        self._seams = seams
        self._sources: _Sources | None = None
        self._watched: dict[object, trio.CancelScope] = {}

    async def prove(self, head: RequestHead) -> Proven | Refused:
        """Say who sent a request.

        Waits only for signing keys that nobody has fetched yet; cancelled, nothing has happened.

        Args:
            head: As it came, with the address of whoever is connected.
        """
        sources = self._sources
        assert sources is not None
        try:
            return await self._prove(sources, head)
        except Exception as error:  # noqa: BLE001 -- a fault of ours must not show what was being read
            kind = type(error).__name__
        logger.error("proving who calls raised %s", kind)
        return sources.challenges.failed()

    async def _prove(self, sources: _Sources, head: RequestHead) -> Proven | Refused:
        token = bearer_of(head)
        if isinstance(token, str):
            return sources.challenges.invalid_request(token)
        if token is None:
            if sources.config.anonymous is not None and not head.all(b"authorization"):
                return Proven(sources.config.anonymous, ANONYMOUS)
            return sources.challenges.nobody()
        found = await self._by_token(sources, token)
        return sources.challenges.invalid_token(found) if isinstance(found, str) else found

    async def _by_token(self, sources: _Sources, token: Secret) -> Proven | Refused | str:
        if _is_ours(token) and sources.tokens is not None:
            return sources.tokens.prove(token)
        return "the token is not of a kind that this service takes"

    # ------------------------------------------------------------------ what proves

    async def reconfigure(self, config: IdentityConfig) -> None:
        """Prove by another configuration from now on.

        Sources that are the same in both stay as they are; what the others have proven no longer holds.

        Raises:
            TokenFileError: The token file cannot be used; everything is as it was.
        """
        before = self._sources
        sources = _Sources(config, Challenges())
        if config.tokens is not None:
            path = Path(config.tokens.file)
            kept = None if before is None else before.tokens
            if kept is None or kept.path != path:
                kept = StaticTokens(path, self._seams)
                await kept.look()
                if kept.problem is not None:
                    raise TokenFileError(kept.problem)
            sources.tokens = kept
        self._sources = sources
        self._watch(sources)

    def _watch(self, sources: _Sources) -> None:
        wanted = {source for source in (sources.tokens,) if source is not None}
        for source in [one for one in self._watched if one not in wanted]:
            source.withdrawn = True
            self._watched.pop(source).cancel()
        for source in wanted - self._watched.keys():
            self._watched[source] = scope = trio.CancelScope()
            self._nursery.start_soon(self._run, source, scope)

    async def _run(self, source: StaticTokens, scope: trio.CancelScope) -> None:
        with scope:
            await source.watch()

    async def refresh(self) -> None:
        """Look at files now, as a reload does. Checkpoints."""
        await trio.lowlevel.checkpoint()
        if self._sources is not None and self._sources.tokens is not None:
            await self._sources.tokens.look()

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the sources now, in words without secrets; empty where all is well."""
        sources = self._sources
        found = [] if sources is None or sources.tokens is None else [sources.tokens.problem]
        return tuple(problem for problem in found if problem is not None)

    def __repr__(self) -> str:
        return "<Proof>"


def _is_ours(token: Secret) -> bool:
    return token.reveal().startswith(PREFIX)


@contextlib.asynccontextmanager
async def open_proof(config: IdentityConfig, *, seams: Seams | None = None) -> AsyncIterator[Proof]:
    """Open what proves callers, and close it with the block.

    Args:
        config: What is taken for a proof, and whom it proves.
        seams: Clock and threads.

    Raises:
        TokenFileError: The token file is not there or cannot be used.
    """
    async with trio.open_nursery() as nursery:
        proof = Proof(nursery, Seams() if seams is None else seams)
        await proof.reconfigure(config)
        try:
            yield proof
        finally:
            nursery.cancel_scope.cancel()
