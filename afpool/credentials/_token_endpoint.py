"""Token requests: client credentials, authorization code, refresh token.

Sources: RFC 6749 § 2.3.1, § 4.1.3, § 4.4.2, § 6; RFC 7636 § 4.5; RFC 8707 § 2.2.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from ._documents import Registration, TokenAnswer, read_error, read_tokens

if TYPE_CHECKING:
    from .._base.secret import Secret
    from ._discovery import Site
    from ._network import Network

WHAT = "the token endpoint"


async def by_client_credentials(
    network: Network, site: Site, client: Registration, scopes: tuple[str, ...]
) -> TokenAnswer:
    """Ask for a token of the host's own.

    Raises:
        Trouble: Refused (definitive), or not to be had now (passing).
    """
    return await _ask(network, site, client, [("grant_type", "client_credentials"), *_scope(scopes)])


async def by_code(
    network: Network, site: Site, client: Registration, *, code: Secret, verifier: Secret, redirect_uri: str
) -> TokenAnswer:
    """Trade an authorization code; raises as `by_client_credentials`."""
    form = [
        ("grant_type", "authorization_code"),
        ("code", code.reveal()),
        ("redirect_uri", redirect_uri),
        ("code_verifier", verifier.reveal()),
    ]
    return await _ask(network, site, client, form)


async def by_refresh(network: Network, site: Site, client: Registration, refresh: Secret) -> TokenAnswer:
    """Renew a token, for the same scopes; raises as `by_client_credentials`."""
    return await _ask(
        network, site, client, [("grant_type", "refresh_token"), ("refresh_token", refresh.reveal())]
    )


def _scope(scopes: tuple[str, ...]) -> list[tuple[str, str]]:
    return [("scope", " ".join(scopes))] if scopes else []


async def _ask(
    network: Network, site: Site, client: Registration, form: list[tuple[str, str]]
) -> TokenAnswer:
    form = [*form, ("resource", site.resource)]
    authorization: str | None = None
    secret = client.client_secret
    if client.method == "client_secret_basic" and secret is not None:
        pair = f"{quote_plus(client.client_id)}:{quote_plus(secret.reveal())}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    else:
        form.append(("client_id", client.client_id))
        if client.method == "client_secret_post" and secret is not None:
            form.append(("client_secret", secret.reveal()))
    reply = await network.post_form(
        site.server.token_endpoint, WHAT, resource=site.resource, form=form, authorization=authorization
    )
    if not reply.ok:
        raise read_error(reply.status, reply.body, WHAT, reply.retry_after)
    return read_tokens(reply.body)
