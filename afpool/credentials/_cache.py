"""What a provider vended, kept for as long as it is good, for whom it was vended and for nobody else.

Rules:

* Kept by service, scopes, mode, resource, tenant and principal, all of them: nothing that was vended for one
  principal, one audience or one set of scopes is ever given for another.
* Of one key at most one request is on its way. It runs in the task of whoever asked first; if that one goes,
  the next who waits asks. Everybody who waited gets what came of it.
* A credential is asked for anew before it ends, by one of those who use it, at a moment of its own. While
  that is under way, and where it fails, the held one is given as long as it is good.
* A credential that a server refused is dropped. Whoever brings one that is not held any more gets the newer.
* A refusal that asking again does not change is remembered for a while, and so is a provider's wish not to be
  asked before some time. A failure in passing is not. That somebody has to consent is never remembered.
* A wall clock that is set wrong and right again keeps nothing longer than it was to be kept.
* What was dropped stays dropped: an answer that was asked for before a `drop` is not kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import attrs
import trio

from .._base.credential import Issued
from .._base.errors import AfpoolError, AuthorizationRequired, CredentialFailed
from .._base.held import HeldCredential
from .._base.identity import Identity
from .._base.seams import Seams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._base.credential import Answered, CredentialProvider, CredentialRequest
    from .._base.secret import Credential

_Key: TypeAlias = tuple[str, tuple[str, ...], str, str, "str | None", "str | None"]
_SHARE: Final = 0.2
_LONGEST_REFUSAL: Final = 60.0


def _is_definite(error: Exception) -> bool:
    return isinstance(error, LookupError) or (
        isinstance(error, CredentialFailed) and error.retry_after is None and error.__cause__ is None
    )


@attrs.define(eq=False)
class _Held:
    credential: Credential
    expires_at: float | None
    renew_at: float
    good_until: float
    ends: float  # on the runtime's clock: the other one may be set back


@attrs.define(eq=False)
class _Refused:
    make: Callable[[], AfpoolError]
    until: float  # on the runtime's clock


@attrs.define(eq=False)
class _Flight:
    over: trio.Event = attrs.field(factory=trio.Event)
    answer: Answered | None = None
    failure: Callable[[], Exception] | None = None
    dropped: bool = False


@final
class CachedCredentials:
    """Keeps what another provider vends.

    Args:
        provider: Who is asked.
        early: Seconds before its end that a credential is asked for anew; at most a fifth of its life.
        jitter: By how much of `early` that moment is brought forward, at random, so that credentials that
            were vended together do not end together.
        unknown: Seconds that a credential without an end is kept.
        longest: Seconds that any is kept at most, whatever its provider says of its end.
        refusals: Seconds that a refusal is remembered that asking again does not change.
        definite: Says which failures are such refusals: by default an unknown service (`LookupError`), and
            `CredentialFailed` that names neither a cause nor a time to come back.
        size: How many are kept; the least recently used go first.
        seams: Clock and random.
    """

    __slots__ = (
        "_definite", "_early", "_entries", "_flights", "_jitter", "_longest", "_provider", "_refusals",
        "_seams", "_size", "_unknown",
    )  # fmt: skip

    def __init__(
        self,
        provider: CredentialProvider,
        *,
        early: float = 60.0,
        jitter: float = 0.5,
        unknown: float = 60.0,
        longest: float = 3600.0,
        refusals: float = 10.0,
        definite: Callable[[Exception], bool] = _is_definite,
        size: int = 10_000,
        seams: Seams | None = None,
    ) -> None:
        for name, value in {
            "early": early,
            "jitter": jitter,
            "unknown": unknown,
            "refusals": refusals,
        }.items():
            if not value >= 0:
                raise ValueError(f"{name} cannot be negative")
        if not longest > 0 or size < 1:
            raise ValueError("longest must be positive, size at least 1")
        self._provider = provider
        self._early = early
        self._jitter = jitter
        self._unknown = unknown
        self._longest = longest
        self._refusals = refusals
        self._definite = definite
        self._size = size
        self._seams = Seams() if seams is None else seams
        self._entries: OrderedDict[_Key, _Held | _Refused] = OrderedDict()
        self._flights: dict[_Key, _Flight] = {}

    async def get(self, request: CredentialRequest) -> Answered:
        """Give what is held for exactly this request, or ask. At least one checkpoint.

        Raises what the provider raised; to those who waited with whoever asked, and for a remembered refusal,
        an exception of their own, which names the provider's by its class where it is not afpool's.
        """
        await trio.lowlevel.checkpoint()
        key: _Key = (
            request.service,
            tuple(sorted(set(request.scopes))),
            request.mode,
            request.resource,
            request.identity.tenant,
            request.identity.principal,
        )
        while True:
            held = self._usable(key, request)
            flight = self._flights.get(key)
            if held is not None and (flight is not None or self._seams.unix_now() < held.renew_at):
                return Issued(held.credential, held.expires_at)
            if flight is None:
                return await self._ask(key, request, held)
            await flight.over.wait()
            if flight.failure is not None:
                raise flight.failure()
            answer = flight.answer
            if answer is None or flight.dropped:
                continue  # whoever asked has gone, or what was asked for is not to be given any more
            if not (isinstance(answer, Issued) and _same(answer.credential, request.refused)):
                return answer

    def drop(self, *, service: str | None, identity: Identity) -> None:
        """Forget what was vended. Synchronous; the provider is told, where it keeps something itself.

        Args:
            service: Of this service; of all where `None`.
            identity: For whom; fields that it does not name mean any.
        """
        for key in [key for key in self._entries if _meant(key, service, identity)]:
            del self._entries[key]
        for key in [key for key in self._flights if _meant(key, service, identity)]:
            self._flights.pop(key).dropped = True
        drop = getattr(self._provider, "drop", None)
        if drop is not None:
            drop(service=service, identity=identity)

    # ------------------------------------------------------------------ what is held

    def held(self) -> Iterator[HeldCredential]:
        """Say what is held, and never a credential. Lazily, over a copy."""
        unix = self._seams.unix_now() - self._seams.now()
        for key, entry in list(self._entries.items()):
            service, scopes, mode, resource, tenant, principal = key
            refused = isinstance(entry, _Refused)
            yield HeldCredential(
                service=service,
                mode=mode,
                scopes=scopes,
                resource=resource,
                who=_whose(tenant, principal),
                state="refused" if refused else "renewing" if key in self._flights else "held",
                expires_at=None if isinstance(entry, _Refused) else entry.expires_at,
                renew_at=None if isinstance(entry, _Refused) else entry.renew_at,
                until=unix + entry.until if isinstance(entry, _Refused) else entry.good_until,
            )
        for key in [key for key in self._flights if key not in self._entries]:
            service, scopes, mode, resource, tenant, principal = key
            yield HeldCredential(
                service=service,
                mode=mode,
                scopes=scopes,
                resource=resource,
                who=_whose(tenant, principal),
                state="asking",
            )

    def _usable(self, key: _Key, request: CredentialRequest) -> _Held | None:
        """Give what is held and good; forget what is not.

        Raises:
            AfpoolError: A refusal is remembered.
        """
        entry = self._entries.get(key)
        if entry is None:
            return None
        if isinstance(entry, _Refused):
            if self._seams.now() < entry.until and not request.rejected:
                raise entry.make()
        elif self._is_good(entry) and not self._is_refused(entry, request):
            self._entries.move_to_end(key)
            return entry
        del self._entries[key]
        return None

    def _is_good(self, entry: _Held) -> bool:
        """Whether it has not ended by either clock: one may be set back, the other stands in a suspend."""
        return self._seams.unix_now() < entry.good_until and self._seams.now() < entry.ends

    @staticmethod
    def _is_refused(entry: _Held, request: CredentialRequest) -> bool:
        if not request.rejected:
            return False
        # without the refused one nobody can tell that what is held is another
        return request.refused is None or _same(entry.credential, request.refused)

    def _keep(self, key: _Key, entry: _Held | _Refused) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    # ------------------------------------------------------------------ asking

    async def _ask(self, key: _Key, request: CredentialRequest, held: _Held | None) -> Answered:
        flight = self._flights[key] = _Flight()
        try:
            answer = await self._provider.get(request)
        except Exception as error:
            kept = (
                held is not None and self._entries.get(key) is held
            )  # neither dropped nor refused meanwhile
            if held is not None and kept and self._is_good(held):
                # the old one is still good: it is given, and not asked for again at once
                held.renew_at = self._seams.unix_now() + min(self._early * _SHARE, 5.0)
                flight.answer = Issued(held.credential, held.expires_at)
                return flight.answer
            self._remember(key, flight, error)
            raise
        else:
            flight.answer = answer
            if isinstance(answer, Issued) and not flight.dropped:
                self._hold(key, answer)
            return answer
        finally:
            if self._flights.get(key) is flight:
                del self._flights[key]
            flight.over.set()

    def _hold(self, key: _Key, answer: Issued) -> None:
        now = self._seams.unix_now()
        life = self._unknown if answer.expires_at is None else answer.expires_at - now
        life = min(life, self._longest)
        if not life > 0:
            self._entries.pop(key, None)  # it has ended already, by its own account: used once, and not kept
            return
        early = min(self._early, life * _SHARE) if answer.expires_at is not None else 0.0
        early *= 1.0 + self._jitter * self._seams.random.random()
        ends = self._seams.now() + life
        self._keep(key, _Held(answer.credential, answer.expires_at, now + life - early, now + life, ends))

    def _remember(self, key: _Key, flight: _Flight, error: Exception) -> None:
        service = key[0]
        flight.failure = lambda: _again(error, service)
        if flight.dropped:
            return
        after = error.retry_after if isinstance(error, AfpoolError) else None
        if after is not None and not isinstance(error, AuthorizationRequired):
            seconds = min(after, _LONGEST_REFUSAL)
        elif self._definite(error):
            seconds = self._refusals
        else:
            return
        if seconds > 0:
            copy = _again(error, service)
            until = self._seams.now() + seconds
            self._keep(key, _Refused(lambda: _again(copy, service), until))

    def __repr__(self) -> str:
        return f"CachedCredentials({self._provider!r})"


def _whose(tenant: str | None, principal: str | None) -> Identity | None:
    return None if tenant is None and principal is None else Identity(tenant, principal)


def _again(error: Exception, service: str) -> AfpoolError:
    """Make an exception of somebody's own that says what another one said, as far as that may be told."""
    if isinstance(error, AuthorizationRequired | CredentialFailed):
        made: AfpoolError = type(error)(
            error.message,
            delivery=error.delivery,
            retry_after=error.retry_after,
            http_status=error.http_status,
            www_authenticate=error.www_authenticate,
        )
        return made
    why = error.code if isinstance(error, AfpoolError) else type(error).__name__
    return CredentialFailed(
        f"the credential for service {service!r} could not be had ({why}); nothing was sent"
    )


def _same(one: Credential, other: Credential | None) -> bool:
    return other is not None and (
        one is other or (type(one) is type(other) and one.secrets() == other.secrets())
    )


def _meant(key: _Key, service: str | None, identity: Identity) -> bool:
    tenant: Any = identity.tenant
    principal: Any = identity.principal
    return (
        (service is None or key[0] == service)
        and (tenant is None or key[4] == tenant)
        and (principal is None or key[5] == principal)
    )
