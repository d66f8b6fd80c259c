"""Headers of a proxy that proves callers itself: believed from its address, and from nobody else.

Rules:

* What counts is who holds the other end of the connection. No header says that (`X-Forwarded-For`,
  `Forwarded`): anybody can send one.
* The headers of an identity from anybody else are refused, not passed over: either somebody tries, or the
  proxy is not where it was said to be, and both must be seen.
* A header that comes twice, or in a spelling that some servers take for the same (`x_tenant` for
  `x-tenant`), is refused from the proxy too: it has let a caller's own one through.
* A value stands for itself, in UTF-8: no list is split, nothing is decoded or trimmed. An empty one is none.
"""

from __future__ import annotations

import ipaddress
import json
from typing import TYPE_CHECKING, final

import attrs

from ._proof_claims import identity_from, is_value
from ._proof_types import UNIX, Proven, Refused, RequestHead, UnsafeDoor

if TYPE_CHECKING:
    from .._base.identity import KeyDigest
    from ..config import ProxyConfig
    from ._proof_answers import Challenges


@final
class TrustedProxy:
    """Proves callers by what one proxy says.

    Args:
        config: Its networks, its headers.
        digest: Shows subjects.

    Attributes:
        withdrawn: Nothing that it has said holds any more.

    Raises:
        UnsafeDoor: A network is none or is everybody's, or a header stands for two fields or for none.
    """

    def __init__(self, config: ProxyConfig, digest: KeyDigest) -> None:
        self.config = config
        self.withdrawn = False
        self._digest = digest
        self._unix = UNIX in config.trusted
        self._networks = [_network(one) for one in config.trusted if one != UNIX]
        self._fields = {name.lower().encode(): field for field, name in config.headers.items()}
        self._spelled = {_folded(name) for name in self._fields}
        self._required = tuple(config.headers) if config.required is None else config.required
        if not (self._unix or self._networks):
            raise UnsafeDoor("`trusted` names nobody: no header of the proxy would ever be believed")
        if not 0 < len(config.headers) == len(self._spelled) or not set(self._required) <= set(
            config.headers
        ):
            raise UnsafeDoor("each field that the proxy says needs a header of its own, in one spelling")

    def prove(self, head: RequestHead, challenges: Challenges) -> Proven | Refused | None:
        """Say whom the proxy names; `None` where no header of an identity came."""
        sent = [(name, value) for name, value in head.headers if _folded(name) in self._spelled]
        if not sent:
            return None
        if not self._trusts(head.peer):
            return challenges.unproven_header(
                "a header that says who calls came from an address that is not the proxy's"
            )
        if len({_folded(name) for name, _ in sent}) < len(sent) or any(
            name not in self._fields for name, _ in sent
        ):
            return challenges.invalid_request(
                "a header that says who calls came twice, or in a second spelling; the proxy must set it anew"
            )
        fields = {self._fields[name]: text for name, value in sent if (text := _text(value)) != ""}
        if any(text is None or not is_value(text) or text != text.strip() for text in fields.values()):
            return challenges.invalid_request("a header that says who calls holds what cannot be a name")
        missing = next((field for field in self._required if field not in fields), None)
        if missing is not None:
            return challenges.invalid_token(f"the proxy does not say the caller's `{missing}`")
        identity = identity_from({field: text for field, text in fields.items() if text is not None})
        if identity is None:
            return challenges.invalid_token("the proxy names neither a tenant nor a principal")
        who = json.dumps(attrs.astuple(identity))
        return Proven(identity, self._digest.show(who, "proxy"), None, lambda: not self.withdrawn)

    def _trusts(self, peer: str | None) -> bool:
        if peer is None:
            return False
        if peer == UNIX:
            return self._unix
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self._networks)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        network = None
    if network is None or network.prefixlen == 0:
        raise UnsafeDoor(
            f"`trusted` holds {text!r}: name the proxy's own addresses (`10.1.2.3`, `10.1.2.0/28`), or `unix`"
        )
    return network


def _folded(name: bytes) -> bytes:
    return name.replace(b"_", b"-")


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
