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
import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from .._base.identity import KeyDigest
from .._base.seams import Seams
from ._jwt_text import take_apart
from ._proof_answers import Challenges
from ._proof_bearer import bearer_of
from ._proof_resource import metadata_url
from ._proof_types import Proven, Refused, RequestHead, UnsafeDoor
from ._tokens import StaticTokens
from ._tokens_file import TokenFileError
from ._tokens_text import PREFIX
from ._trusted_proxy import TrustedProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import httpx

    from .._base.identity import Identity
    from .._base.secret import Secret
    from ..config import IdentityConfig, JwtConfig
    from ._jwks import KeySource
    from ._jwt import Jwt, NotNow

ANONYMOUS: Final = "anonymous"
# Tokens that were judged already; whether that still holds is asked each time.
REMEMBERED: Final = 4096
RESTART: Final = 1.0
logger = logging.getLogger("afpool.serve")


@attrs.define(eq=False)
class _Sources:
    """What proves, by one configuration."""

    config: IdentityConfig
    challenges: Challenges
    tokens: StaticTokens | None = None
    issuers: dict[str, Jwt] = attrs.field(factory=dict)
    proxy: TrustedProxy | None = None

    def provers(self) -> list[StaticTokens | Jwt | TrustedProxy]:
        """Those that have proven something."""
        one = [source for source in (self.tokens, self.proxy) if source is not None]
        return [*one, *self.issuers.values()]

    def kept(self) -> list[StaticTokens | KeySource]:
        """What is kept up to date behind them."""
        tokens = [] if self.tokens is None else [self.tokens]
        return [*tokens, *(issuer.source for issuer in self.issuers.values())]


@final
class Proof:
    """Proves callers. Made by `open_proof`."""

    def __init__(
        self, nursery: trio.Nursery, seams: Seams, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        self._nursery = nursery
        self._seams = seams
        self._transport = transport
        self._digest = KeyDigest()
        self._sources: _Sources | None = None
        self._watches: dict[StaticTokens | KeySource, trio.CancelScope] = {}
        self._judged: dict[bytes, Proven] = {}

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
        if sources.proxy is not None:
            named = sources.proxy.prove(head, sources.challenges)
            if named is not None:
                return named
        token = bearer_of(head)
        if isinstance(token, str):
            return sources.challenges.invalid_request(token)
        if token is None:
            nobody = sources.config.anonymous
            if nobody is not None and not head.all(b"authorization"):
                return Proven(nobody, ANONYMOUS, still_holds=lambda: self._lets_in(nobody))
            return sources.challenges.nobody()
        found = await self._by_token(sources, token)
        if isinstance(found, str):
            return sources.challenges.invalid_token(found)
        if isinstance(found, Proven):
            return found
        words = "the keys of the token's issuer are not known now"
        return sources.challenges.not_now(words, found.retry_after)

    def _lets_in(self, nobody: Identity) -> bool:
        return self._sources is not None and self._sources.config.anonymous == nobody

    async def _by_token(self, sources: _Sources, token: Secret) -> Proven | NotNow | str:
        # By its digest: how long that is looked for says nothing about a token that somebody guesses.
        digest = hashlib.sha256(token.reveal().encode()).digest()
        known = self._judged.pop(digest, None)
        if known is None or not known.still_holds():
            found = await self._judge(sources, token)
            if not isinstance(found, Proven):
                return found
            known = found
        self._judged[digest] = known
        while len(self._judged) > REMEMBERED:
            del self._judged[next(iter(self._judged))]
        return known

    async def _judge(self, sources: _Sources, token: Secret) -> Proven | NotNow | str:
        if sources.tokens is not None and token.reveal().startswith(PREFIX):
            return sources.tokens.prove(token)
        if not sources.issuers:
            return "the token is of no kind that this service takes"
        apart = take_apart(token)
        if isinstance(apart, str):
            return apart
        issuer = sources.issuers.get(apart.issuer) if isinstance(apart.issuer, str) else None
        return "the token is of another issuer" if issuer is None else await issuer.prove(apart)

    # ------------------------------------------------------------------ what proves

    async def reconfigure(self, config: IdentityConfig) -> None:
        """Prove by another configuration from now on.

        Sources that are the same in both stay as they are; what the others have proven no longer holds.

        Raises:
            TokenFileError: As `prepare`.
            UnsafeDoor: As `prepare`.
        """
        (await self.prepare(config))()

    async def prepare(self, config: IdentityConfig) -> Callable[[], None]:
        """Make all ready for another configuration, and change nothing yet.

        Returns:
            What changes to it: synchronous, called once, before anybody prepares another one. For who changes
            several things at once, of which others may fail.

        Raises:
            TokenFileError: The token file cannot be used.
            UnsafeDoor: What is configured proves nothing, or not to whom: an algorithm, a header, a key file,
                an issuer that stands there twice.
        """
        if not config.proves and config.anonymous is None:
            raise UnsafeDoor(
                "nobody could call: `identity` names no tokens, no issuer, no proxy and no `anonymous`"
            )
        if len({issuer.issuer for issuer in config.jwt}) < len(config.jwt):
            raise UnsafeDoor("`jwt` names an issuer twice, so whose rules count is not said; join the two")
        before = self._sources
        sources = _Sources(config, Challenges(metadata_url(config.resource)))
        if config.tokens is not None:
            sources.tokens = await self._tokens(Path(config.tokens.file), before)
        for issuer in config.jwt:
            known = None if before is None else before.issuers.get(issuer.issuer)
            same = known is not None and known.config == issuer
            sources.issuers[issuer.issuer] = known if same and known else await self._issuer(issuer, known)
        if config.proxy is not None:
            proxy = None if before is None else before.proxy
            same = proxy is not None and proxy.config == config.proxy
            sources.proxy = proxy if same else TrustedProxy(config.proxy, self._digest)

        def change() -> None:
            if self._sources is not before:
                raise RuntimeError("another configuration of who calls came in between")
            self._sources = sources
            self._watch(before, sources)

        return change

    async def _tokens(self, path: Path, before: _Sources | None) -> StaticTokens:
        if before is not None and before.tokens is not None and before.tokens.path == path:
            return before.tokens
        tokens = StaticTokens(path, self._seams)
        await tokens.look()
        if tokens.problem is not None:
            raise TokenFileError(tokens.problem)
        return tokens

    async def _issuer(self, config: JwtConfig, known: Jwt | None) -> Jwt:
        try:
            from ._jwks import FetchedKeys, KeyFile
            from ._jwt import Jwt
        except ImportError as error:
            if error.name is None or error.name.partition(".")[0] != "joserfc":
                raise
            raise UnsafeDoor(
                "JSON Web Tokens cannot be proven without joserfc; `pip install 'afpool[serve]'`"
            ) from None
        if known is not None and known.config.jwks == config.jwks:
            return Jwt(config, known.source, self._seams, self._digest)  # its keys are its keys
        if "://" in config.jwks:
            keys = FetchedKeys(config.jwks, self._seams, self._transport)
            return Jwt(config, keys, self._seams, self._digest)
        file = KeyFile(Path(config.jwks), self._seams)
        await file.look()
        if file.problem is not None:
            raise UnsafeDoor(f"{file.problem}; tokens of its issuer could not be proven")
        return Jwt(config, file, self._seams, self._digest)

    def _watch(self, before: _Sources | None, sources: _Sources) -> None:
        after = sources.provers()
        for prover in [] if before is None else before.provers():
            if prover not in after:
                prover.withdrawn = True
        kept = sources.kept()
        for source in [one for one in self._watches if one not in kept]:
            self._watches.pop(source).cancel()
        for source in kept:
            if source not in self._watches:
                self._watches[source] = scope = trio.CancelScope()
                self._nursery.start_soon(self._keep, source, scope)

    @trio.lowlevel.enable_ki_protection  # a ^C is the main task's
    async def _keep(self, source: StaticTokens | KeySource, scope: trio.CancelScope) -> None:
        with scope:
            while True:
                kind = "nothing"
                try:
                    await source.watch()
                except Exception as error:  # noqa: BLE001 -- what one source fails by must not end the service
                    kind = type(error).__name__
                logger.error("watching what proves callers raised %s; it begins again", kind)
                await trio.sleep(RESTART)

    async def refresh(self) -> None:
        """Look at files now, as a reload does. Checkpoints."""
        await trio.lowlevel.checkpoint()
        for source in [] if self._sources is None else self._sources.kept():
            await source.look()

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the sources now, in words without secrets; empty where all is well."""
        kept = [] if self._sources is None else self._sources.kept()
        return tuple(source.problem for source in kept if source.problem is not None)

    def __repr__(self) -> str:
        return "<Proof>"


@contextlib.asynccontextmanager
async def open_proof(
    config: IdentityConfig,
    *,
    seams: Seams | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[Proof]:
    """Open what proves callers, and close it with the block.

    Keys at an address are fetched meanwhile: nobody waits for them here, and an issuer that does not answer
    keeps nobody else's tokens from being proven.

    Args:
        config: What is taken for a proof, and whom it proves.
        seams: Clock, names, threads.
        transport: Connects to issuers instead of us.

    Raises:
        TokenFileError: The token file is not there or cannot be used.
        UnsafeDoor: As `Proof.reconfigure`.
    """
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        proof = Proof(nursery, Seams() if seams is None else seams, transport)
        try:
            await proof.reconfigure(config)
            yield proof
        except BaseException as error:  # noqa: BLE001 -- raised below, as itself and in no group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        try:
            raise failure
        finally:
            failure = None
