"""The credential provider and the artifact store that a configuration names, opened and closed.

Rules:

* The provider is one object for as long as it is open: a pool keeps it, and `reconfigure` changes what it
  vends. Credentials that stay as they are keep their provider, and with it their tokens.
* Each OAuth client lives in a task of its own, so that one can go while others stay.
* A service that the configuration does not name is refused by name, never guessed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeAlias, final

import attrs
import trio

from .._base.credential import Issued
from .._base.entering import protected_block
from .._base.errors import CredentialFailed
from .._base.held import HeldCredential, held_by
from .._base.secret import header_map
from ..credentials import EnvironmentCredentials, FileCredentials, OAuth, OAuthClient, OAuthSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from .._base.credential import Anonymous, CredentialProvider, CredentialRequest, NeedsAuthorization
    from .._base.identity import Identity
    from ..artifacts import ArtifactStore
    from ._config import Config
    from ._runtime_settings import ArtifactsConfig, CredentialConfig

Components: TypeAlias = "tuple[ConfiguredCredentials, ArtifactStore | None]"


@attrs.define(eq=False)
class _Kept:
    config: CredentialConfig
    provider: CredentialProvider
    scope: trio.CancelScope | None = None


@final
class ConfiguredCredentials:
    """Vends the credentials that a configuration names. Made by `open_components`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._kept: dict[str, _Kept] = {}

    async def get(self, request: CredentialRequest) -> Issued | NeedsAuthorization | Anonymous:
        """Give the credential of `request.service`. At least one checkpoint.

        Raises:
            CredentialFailed: The configuration names no such credential, or it cannot be had now.
        """
        kept = self._kept.get(request.service)
        if kept is None:
            await trio.lowlevel.checkpoint()
            names = ", ".join(sorted(self._kept)) or "none"
            raise CredentialFailed(
                f"the configuration has no credential {request.service!r}; it has {names}; nothing was sent"
            )
        return await kept.provider.get(request)

    def drop(self, *, service: str | None, identity: Identity) -> None:
        """Have held credentials asked for anew. Synchronous; see `CredentialProvider`."""
        for name, kept in self._kept.items():
            drop = getattr(kept.provider, "drop", None)
            if drop is not None and service in {None, name}:
                drop(service=service, identity=identity)

    def held(self) -> Iterator[HeldCredential]:
        """Say what its providers hold; of one that keeps nothing, that it is there."""
        for name, kept in list(self._kept.items()):
            if hasattr(kept.provider, "held"):
                yield from held_by(kept.provider)
            else:
                yield HeldCredential(service=name, mode="machine")

    async def reconfigure(self, credentials: Mapping[str, CredentialConfig]) -> None:
        """Vend what another configuration names. What has not changed stays as it is.

        At least one checkpoint. It changes in one step; cancelled before that, nothing has changed.
        """
        await trio.lowlevel.checkpoint()
        made: dict[str, _Kept] = {}
        try:
            for name, config in credentials.items():
                kept = self._kept.get(name)
                if kept is None or kept.config != config:
                    made[name] = await self._opened(config)
        except BaseException:
            _close(made.values())
            raise
        then = {name: made[name] if name in made else self._kept[name] for name in credentials}
        gone = [kept for name, kept in self._kept.items() if then.get(name) is not kept]
        self._kept = then
        _close(gone)

    async def _opened(self, config: CredentialConfig) -> _Kept:
        if config.type != "oauth":
            return _Kept(config, _simple(config))
        oauth, scope = await self._nursery.start(_run_oauth, config)
        return _Kept(config, oauth, scope)

    def __repr__(self) -> str:
        return f"ConfiguredCredentials({', '.join(sorted(self._kept))})"


def _close(gone: Iterable[_Kept]) -> None:
    for kept in gone:
        if kept.scope is not None:
            kept.scope.cancel()


@final
class _Static:
    """Gives one credential."""

    def __init__(self, issued: Issued) -> None:
        self._issued = issued

    async def get(self, request: CredentialRequest) -> Issued:  # noqa: ARG002 -- as the port says
        """Give it. One checkpoint."""
        await trio.lowlevel.checkpoint()
        return self._issued


def _simple(config: CredentialConfig) -> CredentialProvider:
    if config.variable is not None:
        return EnvironmentCredentials({config.name: config.variable}, make=config.made)
    if config.path is not None:
        return FileCredentials({config.name: config.path}, make=config.made)
    if config.token is not None:
        return _Static(Issued(config.made(config.token)))
    return _Static(Issued(header_map(dict(config.headers))))


def _oauth_settings(config: CredentialConfig) -> OAuthSettings:
    client = OAuthClient(
        client_id=config.client_id or "",
        client_secret=config.client_secret,
        issuer=config.issuer,
        service=config.name,
        auth_method=config.auth_method,
    )
    return OAuthSettings(
        clients=(client,),  # type: ignore[arg-type]  # mypy cannot read `converter=tuple`
        register=False,
        grant="client_credentials",
        machine_grant_per=config.per,
        allow_private=config.allow_private,
        legacy_endpoints=config.legacy_endpoints,
    )


async def _run_oauth(
    config: CredentialConfig, *, task_status: trio.TaskStatus[tuple[OAuth, trio.CancelScope]]
) -> None:
    async with OAuth(_oauth_settings(config)) as oauth:
        with trio.CancelScope() as scope:
            task_status.started((oauth, scope))
            await trio.sleep_forever()


@protected_block
async def open_components(config: Config) -> AsyncIterator[Components]:
    """Open the credential provider and the artifact store of a configuration, for the time of the block.

    Open it around the runtime, in the same task:

    ```python
    async with (
        open_components(config) as (provider, store),
        open_runtime(config.runtime_config(credentials=provider, artifacts=store)) as runtime,
    ):
        ...
    ```

    Args:
        config: What to open.

    Gives the provider, which is there even where nothing is configured, and the store, or `None` where
    `artifacts.backend` is `none`. Nobody is asked for a credential yet.

    Raises:
        ArtifactStoreError: The store cannot be opened.
        ImportError: Redis is configured, and its client is not installed; the text names the extra.

    An exception of the block leaves as itself.
    """
    async with contextlib.AsyncExitStack() as stack:
        store = await _store(config.artifacts, stack)
        failure: BaseException | None = None
        async with trio.open_nursery() as nursery:
            provider = ConfiguredCredentials(nursery)
            try:
                await provider.reconfigure(config.credentials)
                yield provider, store
            except BaseException as error:  # noqa: BLE001 -- raised below, as itself and in no group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None


async def _store(config: ArtifactsConfig, stack: contextlib.AsyncExitStack) -> ArtifactStore | None:
    ttl, size, many = config.ttl, config.max_bytes_per_scope, config.max_count_per_scope
    if config.backend == "none":
        return None
    if config.backend == "sqlite":
        from ..artifacts import SqliteArtifacts

        return await stack.enter_async_context(
            SqliteArtifacts(config.path or "", ttl=ttl, max_bytes_per_scope=size, max_count_per_scope=many)
        )
    if config.backend == "redis":
        from ..artifacts import RedisArtifacts

        assert config.url is not None, "the reader has seen to it"
        named: dict[str, Any] = {} if config.prefix is None else {"prefix": config.prefix}
        return await stack.enter_async_context(
            RedisArtifacts(
                config.url.reveal(),
                password=config.password,
                ttl=ttl,
                max_bytes_per_scope=size,
                max_count_per_scope=many,
                **named,
            )
        )
    from ..artifacts import MemoryArtifacts

    given: dict[str, Any] = {
        "max_bytes_per_scope": size,
        "max_count_per_scope": many,
        "max_bytes": config.max_bytes,
    }
    return MemoryArtifacts(ttl=ttl, **{name: value for name, value in given.items() if value is not None})
