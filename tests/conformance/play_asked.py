"""Scenarios in which the server asks: for a form, for input to a call, or for what the client offers."""

from __future__ import annotations

from typing import Final

from afpool import ElicitAnswer, ElicitRequest, SampleRequest, ServerRequests

from .playing import ALICE, Case, listed, plays, pool_for


async def by_defaults(form: ElicitRequest) -> ElicitAnswer:
    """Accept a form as a user does who changes nothing in it."""
    return form.accept()


async def confirm(form: ElicitRequest) -> ElicitAnswer:
    """Accept a question that is answered by yes."""
    return form.accept({"confirmed": True})


async def no_model(_: SampleRequest) -> None:
    """Reject, as a user does."""


EVERYTHING: Final = ServerRequests(roots=["file:///srv/acme"], sample=no_model, elicit=by_defaults)


@plays("request-metadata")
async def declare(case: Case) -> None:
    """Declare all that can be offered; the first request is refused for its version."""
    async with pool_for(case, {"requests": EVERYTHING}) as pool:
        await listed(pool)


@plays("elicitation-sep1034-client-defaults")
async def defaults(case: Case) -> None:
    """Have a call ask for a form, and answer by its defaults."""
    async with pool_for(case, {"requests": EVERYTHING}) as pool:
        tools = await listed(pool)
        result = await tools["test_client_elicitation_defaults"].call(identity=ALICE)
        result.raise_for_error()


@plays("sep-2322-client-request-state")
async def rounds(case: Case) -> None:
    """Make calls in several rounds, and others between them."""
    async with pool_for(case, {"requests": ServerRequests(elicit=confirm)}) as pool:
        tools = await listed(pool)
        for name in ("echo_state", "unrelated", "no_state", "no_result_type"):
            (await tools[f"test_mrtr_{name}"].call(identity=ALICE)).raise_for_error()
