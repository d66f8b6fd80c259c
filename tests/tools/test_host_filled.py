"""Arguments that the host fills: hidden, refused from outside, filled in last, never given back."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from afpool import (
    AfpoolError,
    CredentialRequirement,
    Identity,
    IdentityMismatch,
    Progress,
    ToolContext,
    ToolResult,
    api_key,
    basic,
    bearer,
    header_map,
)
from afpool.testing import FakeTool
from afpool.testing import Progress as Reported
from afpool.tools._derive import binding_of, derive
from afpool.tools._fills import (
    CannotHideArgumentError,
    HostFilledArgumentError,
    HostFilledValueMissingError,
    from_credential,
    from_identity,
)
from afpool.tools._host_filled import host_filled, host_fills_of
from afpool.tools._redaction import RedactionPolicy
from afpool.tools._shown import redacted, shown_args_of
from afpool.tools._supplied import HostFilledArguments, fold, refuse_supplied
from afpool.tools._with_wants import with_wants
from tests.pool.kit import ALICE, world
from tests.tools.recording import Recording

SECRET = "tok-5b1f9c"
SCHEMA = {
    "type": "object",
    "properties": {
        "q": {"type": "string"},
        "token": {"type": "string"},
        "tenantId": {"type": "string"},
        "rows": {"type": "array"},
    },
    "required": ["q", "token"],
    "additionalProperties": False,
}


class Search(Recording):
    """A tool with arguments to fill."""

    def __init__(self, schema: Any = None, *, name: str = "search", **more: Any) -> None:
        super().__init__(copy.deepcopy(SCHEMA) if schema is None else schema, name, **more)


def context(**more: Any) -> ToolContext:
    facts = {"call_id": "c1", "identity": ALICE, "credential": bearer(SECRET), **more}
    return ToolContext(**facts)


TOKEN = {"token": from_credential("crm")}
TENANT = {"tenantId": from_identity("tenant")}


# -- what a model sees


def test_the_argument_is_gone_from_what_a_model_sees_and_the_tool_stays_as_it_was() -> None:
    base = Search()
    tool = host_filled(base, TOKEN | TENANT)
    assert tool.input_schema == {
        "type": "object",
        "properties": {"q": {"type": "string"}, "rows": {"type": "array"}},
        "required": ["q"],
        "additionalProperties": False,
    }
    assert base.input_schema == SCHEMA
    assert (tool.name, tool.description) == ("search", "what it does")
    assert "token" not in repr(tool)
    tool.input_schema["properties"].clear()
    assert "q" in tool.input_schema["properties"], "a reader has a copy of its own"


def test_fills_are_told_by_name_and_never_by_value() -> None:
    tool = host_filled(Search(), TOKEN | TENANT)
    assert host_fills_of(tool) == HostFilledArguments(identity={"tenantId": "tenant"}, credential=("token",))
    assert host_fills_of(Search()) is None
    further = derive(tool, description="other")
    assert host_fills_of(further) == host_fills_of(tool), "through derivations"


def test_a_credential_fill_declares_what_the_tool_needs() -> None:
    assert host_filled(Search(), TOKEN).needs == CredentialRequirement("crm")
    fill = from_credential(service="crm", scopes=["read", "write"], mode="user")
    assert host_filled(Search(), {"token": fill}).needs == CredentialRequirement(
        "crm", ("read", "write"), "user"
    )
    own = CredentialRequirement("crm", ("own",), "user")
    for fill in (from_credential(), from_credential("crm", scopes=["x"])):
        assert host_filled(Search(needs=own), {"token": fill}).needs == own
    assert host_filled(Search(), TENANT).needs is None
    both = {"token": from_credential("crm", scopes=["a"]), "q": from_credential(scopes=["b"])}
    assert host_filled(Search(), both).needs == CredentialRequirement("crm", ("a", "b"))


# -- refused when built


@pytest.mark.parametrize(
    ("tool", "fills", "says"),
    [
        (Search(), {"nope": from_identity("tenant")}, "does not declare 'nope'"),
        ([Search(), Search()], {"tokne": from_credential("crm")}, "none of the 2 tools declares 'tokne'"),
        ([], TOKEN, "none of the 0 tools"),
        (Search(), {"token": "crm"}, "the fill of 'token' is str"),
        (Search(), {"token": None}, "the fill of 'token' is NoneType"),
        (Search(), {1: from_credential("crm")}, "named by a string"),
        (Search(), [("token", from_credential("crm"))], "a mapping of argument names, not list"),
        (Search(), {"token": from_credential()}, "the fill of 'token' has to name the service"),
        (
            Search(needs=CredentialRequirement("mail")),
            TOKEN,
            "for the service 'crm', and the tool 'search' needs 'mail'",
        ),
        (
            Search(),
            {"token": from_credential("crm"), "q": from_credential("mail")},
            "one service, not 'crm' and 'mail'",
        ),
        (
            Search(),
            {"token": from_credential("crm"), "q": from_credential("crm", mode="user")},
            "name both modes",
        ),
        (with_wants(Search(), {"rows": "table"}), {"rows": from_identity("tenant")}, "wants an artifact"),
        ("search", TOKEN, "not of str"),
        (["search"], TOKEN, "not of str"),
        (host_filled(Search(), TOKEN), TOKEN, "does not declare 'token'"),
    ],
)
def test_what_cannot_be_filled_is_refused_when_it_is_built(tool: Any, fills: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        host_filled(tool, fills)


def test_a_fill_that_is_none_is_refused_when_it_is_made() -> None:
    for making in (
        lambda: from_identity("name"),  # type: ignore[arg-type]
        lambda: from_credential(""),
        lambda: from_credential(3),  # type: ignore[arg-type]
        lambda: from_credential("crm", scopes="read"),
        lambda: from_credential("crm", mode="both"),  # type: ignore[arg-type]
        lambda: from_credential("crm", read="token"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            making()

    async def read(_: Any) -> str:
        return ""

    with pytest.raises(TypeError, match="synchronous"):
        from_credential("crm", read=read)  # type: ignore[arg-type]


def test_a_schema_that_cannot_be_cut_is_a_type_error_with_the_reason() -> None:
    schema = {
        "properties": {"token": {"type": "string"}, "q": {}},
        "if": {"properties": {"token": {"const": "x"}}},
        "then": {"required": ["q"]},
    }
    with pytest.raises(CannotHideArgumentError) as caught:
        host_filled(Search(schema), TOKEN)
    error = caught.value
    assert isinstance(error, TypeError)
    assert isinstance(error, AfpoolError)
    assert (error.code, error.tool_name, error.fields) == ("cannot-hide-argument", "search", ("token",))
    assert error.reason == "what else it accepts depends on the argument's value"
    with pytest.raises(CannotHideArgumentError, match="accepts no call at all"):
        host_filled(Search({"properties": {"token": {"type": "integer"}}, "required": ["token"]}), TOKEN)


# -- several tools


def test_of_several_each_takes_what_it_declares() -> None:
    other = Search({"type": "object", "properties": {"x": {}}}, name="other")
    only = Search({"type": "object", "properties": {"tenantId": {}}}, name="only")
    done = host_filled([Search(), other, only], TOKEN | TENANT)
    assert isinstance(done, tuple)
    assert done[1] is other
    assert host_fills_of(done[2]) == HostFilledArguments({"tenantId": "tenant"}, ())
    assert done[2].needs is None
    named = host_filled({"a": Search(), "b": other}, TOKEN)
    assert list(named) == ["a", "b"]
    assert named["b"] is other
    assert named["a"].needs == CredentialRequirement("crm")
    assert host_filled(other, {}) is other


def test_an_argument_that_is_only_demanded_is_declared_too() -> None:
    tool = host_filled(Search({"type": "object", "required": ["token"]}), TOKEN)
    assert tool.input_schema == {"type": "object"}


def test_a_tool_may_be_filled_twice() -> None:
    base = Search()
    tool = host_filled(host_filled(base, TOKEN), TENANT)
    assert host_fills_of(tool) == HostFilledArguments({"tenantId": "tenant"}, ("token",))
    assert set(tool.input_schema["properties"]) == {"q", "rows"}
    assert tool.needs == CredentialRequirement("crm")
    with pytest.raises(HostFilledArgumentError) as caught:
        refuse_supplied(tool, {"q": "x", "token": 1, "tenantId": 2})
    assert caught.value.fields == ("token", "tenantId")


async def test_a_tool_that_is_filled_twice_runs_with_both() -> None:
    base = Search(answer=lambda args, _: result({"t": args["token"], "i": args["tenantId"]}))
    tool = host_filled(host_filled(base, TOKEN), TENANT)
    answered = await tool.execute({"q": "x"}, context())
    assert base.ran[0][0] == {"q": "x", "token": SECRET, "tenantId": "acme"}
    assert answered.document == {"t": "[host-filled]", "i": "acme"}, "an identity is no secret"
    cased = Search({"properties": {"Token": {}, "token": {}}})
    twice = host_filled(host_filled(cased, {"Token": from_identity("tenant")}), TOKEN)
    await twice.execute({}, context())
    assert cased.ran[0][0] == {"Token": "acme", "token": SECRET}


def result(document: Any) -> ToolResult:
    return ToolResult(json.dumps(document).encode(), "c1")


# -- refused from outside


@pytest.mark.parametrize("value", ["x", "", None, 0, False, {}, SECRET])
async def test_a_value_from_outside_is_refused_by_name_and_nothing_runs(value: Any) -> None:
    base = Search()
    tool = host_filled(base, TOKEN)
    with pytest.raises(HostFilledArgumentError) as caught:
        await tool.execute({"q": "x", "token": value}, context())
    error = caught.value
    assert base.ran == []
    assert (error.tool_name, error.fields) == ("search", ("token",))
    assert (error.code, error.delivery, error.call_id) == ("ERR_HOST_FILLED_ARGUMENT", "not-sent", "c1")
    assert "'token'" in str(error)
    assert SECRET not in f"{error} {error!r} {vars(error)}"


def test_all_of_them_are_named_at_once() -> None:
    tool = host_filled(Search(), TOKEN | TENANT)
    with pytest.raises(HostFilledArgumentError) as caught:
        refuse_supplied(tool, {"TENANT-ID": 1, "token": 2, "q": "x"})
    assert caught.value.fields == ("token", "tenantId")
    assert "'tenantId' (sent as 'TENANT-ID')" in str(caught.value)


ALIASES = [
    "Token", "TOKEN", "to-ken", "_token_", "t_o-k_e-n", "toKen",
    "\uff54\uff4f\uff4b\uff45\uff4e", "to\uff0dken", "to\uff3fken", "\u24e3oken",
]  # fmt: skip


@pytest.mark.parametrize("key", ALIASES)
async def test_other_spellings_of_it_are_refused(key: str) -> None:
    base = Search()
    tool = host_filled(base, TOKEN)
    with pytest.raises(HostFilledArgumentError) as caught:
        await tool.execute({"q": "x", key: None}, context())
    assert caught.value.fields == ("token",)
    assert base.ran == []


@pytest.mark.parametrize("key", ["tokens", "to ken", "to.ken", "tok", "xtoken", "\u0442oken"])
def test_other_names_are_other_arguments(key: str) -> None:
    refuse_supplied(host_filled(Search(), TOKEN), {"q": "x", key: 1})


def test_a_spelling_that_the_shown_schema_declares_is_another_argument() -> None:
    schema = {"properties": {"token": {}}, "anyOf": [{"properties": {"TOKEN": {"type": "string"}}}]}
    tool = host_filled(Search(schema), TOKEN)
    refuse_supplied(tool, {"TOKEN": "x"})
    refuse_supplied(tool, {"TOKEN": "x", "more": "y"})
    with pytest.raises(HostFilledArgumentError):
        refuse_supplied(tool, {"TOKEN": "x", "Token": "y"})


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=12), st.text(alphabet="-_", max_size=4))
def test_spelling_folds_the_same_however_it_is_dressed(name: str, signs: str) -> None:
    assert fold(fold(name)) == fold(name)
    assert fold(name.upper()) == fold(name.upper().lower()) or not name.isascii()
    if name.isascii():
        assert fold(signs.join(name)) == fold(name)


async def test_many_and_long_keys_are_read_in_bounded_time() -> None:
    tool = host_filled(Search(), TOKEN)
    refuse_supplied(tool, {f"key-{number}": 1 for number in range(10_000)})
    with pytest.raises(HostFilledArgumentError) as caught:
        refuse_supplied(tool, {"t" + "-" * 1_000_000 + "oken": 1})
    assert len(str(caught.value)) < 400
    refuse_supplied(tool, {1: 2, None: 3, "\ud83d": 4})
    assert host_fills_of(tool) is not None


@pytest.mark.parametrize("args", [None, [], "x", 3])
async def test_what_is_no_object_is_refused(args: Any) -> None:
    with pytest.raises(AfpoolError) as caught:
        await host_filled(Search(), TOKEN).execute(args, context())
    assert caught.value.code == "invalid-arguments"


def test_what_a_record_may_show_of_it() -> None:
    tool = host_filled(Search(), TOKEN)
    args = {"q": "x", "n": [1]}
    assert shown_args_of(tool, args) is args
    sent = {"q": "x", "token": SECRET, "To-ken": SECRET}
    assert shown_args_of(tool, sent) == {"q": "x", "token": "[host-filled]", "To-ken": "[host-filled]"}
    assert sent["token"] == SECRET
    hiding = redacted(tool, RedactionPolicy(keys=["q"]))
    assert shown_args_of(hiding, sent)["q"] == "REDACTED"
    assert SECRET not in str(shown_args_of(hiding, sent))
    under = host_filled(redacted(Search(), RedactionPolicy(keys=["q"])), TOKEN)
    assert shown_args_of(under, sent) == {
        "q": "REDACTED",
        "token": "[host-filled]",
        "To-ken": "[host-filled]",
    }


# -- filled at the last moment


async def test_it_is_filled_into_a_new_dictionary() -> None:
    base = Search()
    tool = host_filled(base, TOKEN | TENANT)
    args = {"q": "x"}
    await tool.execute(args, context())
    assert args == {"q": "x"}
    (ran, ctx) = base.ran[0]
    assert ran == {"q": "x", "token": SECRET, "tenantId": "acme"}
    assert isinstance(ran, dict)
    assert (ctx.call_id, ctx.identity) == ("c1", ALICE)


@pytest.mark.parametrize("field", ["tenant", "principal", "conversation_id"])
async def test_identity_fields(field: Any) -> None:
    identity = Identity(tenant="t", principal="p", conversation_id="c")
    base = Search()
    tool = host_filled(base, {"tenantId": from_identity(field)})
    await tool.execute({"q": "x", "token": "own"}, context(identity=identity))
    await tool.execute({"q": "x", "token": "own"}, context(identity=lambda: identity))
    assert [ran["tenantId"] for ran, _ in base.ran] == [getattr(identity, field)] * 2


async def test_whoever_was_filled_in_stays_the_caller_while_the_tool_runs() -> None:
    caller = ALICE
    base = Search()
    tool = host_filled(base, TENANT)
    await tool.execute({"q": "x", "token": "own"}, context(identity=lambda: caller))
    ((ran, ctx),) = base.ran
    assert ran["tenantId"] == ALICE.tenant
    assert ctx.identity() is ALICE
    caller = attrs.evolve(ALICE, tenant="other")
    with pytest.raises(IdentityMismatch):
        ctx.identity()


@pytest.mark.parametrize(
    ("credential", "fill", "value"),
    [
        (bearer("b-token"), from_credential("crm"), "b-token"),
        (api_key("k-value"), from_credential("crm"), "k-value"),
        (basic("u", "p-word"), from_credential("crm", read=lambda one: one.password), "p-word"),  # type: ignore[attr-defined]
        (
            header_map({"authorization": "Bearer h-token"}),
            from_credential("crm", read=lambda one: one.headers["authorization"]),  # type: ignore[attr-defined]
            "Bearer h-token",
        ),
    ],
)
async def test_credential_values(credential: Any, fill: Any, value: str) -> None:
    base = Search(answer=lambda args, _: result(args))
    tool = host_filled(base, {"token": fill})
    answered = await tool.execute({"q": "x"}, context(credential=credential))
    assert base.ran[0][0]["token"] == value
    assert answered.document["token"] == "[host-filled]"


def raising(error: BaseException) -> Any:
    def read(_: Any = None) -> Any:
        raise error

    return read


class Later:
    """Looks like a synchronous reader and is none."""

    def __call__(self, _: Any) -> Any:
        return self.later()

    async def later(self) -> str:
        return "x"


@pytest.mark.parametrize(
    ("fill", "facts", "why"),
    [
        (TOKEN["token"], {"credential": None}, "no credential was resolved for this call"),
        (
            TOKEN["token"],
            {"credential": basic("u", SECRET)},
            "of the kind 'basic', which has no single value",
        ),
        (TOKEN["token"], {"credential": header_map({"x": SECRET})}, "of the kind 'headers'"),
        (from_credential("crm", read=lambda _: ""), {}, "the value is empty"),
        (from_credential("crm", read=lambda _: None), {}, "gave NoneType and no string"),  # type: ignore[arg-type,return-value]
        (from_credential("crm", read=lambda _: b"x"), {}, "gave bytes and no string"),  # type: ignore[arg-type,return-value]
        (from_credential("crm", read=Later()), {}, "gave coroutine and no string"),  # type: ignore[arg-type,return-value]
        (from_credential("crm", read=raising(ValueError(SECRET))), {}, "read raised ValueError"),
        (TENANT["tenantId"], {"identity": None}, "named no identity"),
        (TENANT["tenantId"], {"identity": lambda: None}, "named no identity"),
        (TENANT["tenantId"], {"identity": Identity(principal="p")}, "named no tenant"),
        (TENANT["tenantId"], {"identity": Identity(tenant="")}, "named no tenant"),
        (TENANT["tenantId"], {"identity": raising(ValueError(SECRET))}, "raised ValueError"),
        (TENANT["tenantId"], {"identity": {"tenant": "x"}}, "named no identity"),
    ],
)
async def test_a_missing_value_refuses_by_name_and_nothing_runs(fill: Any, facts: Any, why: str) -> None:
    base = Search()
    tool = host_filled(base, {"token": fill})
    with pytest.raises(HostFilledValueMissingError) as caught:
        await tool.execute({"q": "x"}, context(**facts))
    error = caught.value
    assert base.ran == []
    assert (error.tool_name, error.field, error.call_id) == ("search", "token", "c1")
    assert (error.code, error.delivery) == ("ERR_HOST_FILLED_VALUE_MISSING", "not-sent")
    assert why in str(error)
    assert SECRET not in "".join(traceback.format_exception(error))


async def test_a_refusal_lets_others_go_on() -> None:
    tool = host_filled(Search(), TOKEN)
    own = trio.lowlevel.current_task()

    class Steps(trio.abc.Instrument):
        count = 0

        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            self.count += task is own

    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    with pytest.raises(HostFilledArgumentError):
        await tool.execute({"token": 1}, context())
    trio.lowlevel.remove_instrument(steps)
    assert steps.count == 1


# -- what comes back


async def test_what_comes_back_holds_no_credential() -> None:
    base = Search(
        answer=lambda args, _: result({"content": [{"type": "text", "text": f"with {args['token']}"}]})
    )
    tool = host_filled(base, TOKEN)
    answered = await tool.execute({"q": "x"}, context())
    assert answered.text == "with [host-filled]"
    quiet = result({"content": []})
    assert await host_filled(Search(answer=quiet), TOKEN).execute({"q": "x"}, context()) is quiet
    assert await host_filled(Search(answer={"a": SECRET}), TOKEN).execute({"q": "x"}, context()) == {
        "a": "[host-filled]"
    }


async def test_everything_secret_about_the_credential_goes_not_only_what_was_filled() -> None:
    base = Search(answer=lambda *_: result({"a": SECRET, "b": f"Bearer {SECRET}"}))
    tool = host_filled(base, {"token": from_credential("crm", read=lambda one: "Bearer " + one.token)})  # type: ignore[attr-defined]
    answered = await tool.execute({"q": "x"}, context())
    assert base.ran[0][0]["token"] == f"Bearer {SECRET}"
    assert answered.document == {"a": "[host-filled]", "b": "[host-filled]"}


@pytest.mark.parametrize("several", [False, True])
async def test_what_is_filled_is_settled_when_it_is_declared(several: bool) -> None:
    base, fills = Search(), {**TENANT}
    tool = host_filled([base], fills)[0] if several else host_filled(base, fills)
    fills.clear()
    await tool.execute({"q": "x", "token": "t"}, context())
    assert base.given == [{"q": "x", "token": "t", "tenantId": ALICE.tenant}]
    assert repr(base.given[0]) == "{'q': 'x', 'token': 't', 'tenantId': '[host-filled]'}"


async def test_reports_of_progress_hold_no_credential() -> None:
    told: list[Any] = []

    def answer(args: Any, ctx: ToolContext) -> Any:
        assert ctx.progress is not None
        assert ctx.on_progress is not None
        ctx.progress({"now": args["token"]})
        ctx.on_progress(Progress(1, None, f"at {args['token']}"))

    tool = host_filled(Search(answer=answer), TOKEN)
    await tool.execute({"q": "x"}, context(progress=told.append, on_progress=told.append))
    assert told == [{"now": "[host-filled]"}, Progress(1, None, "at [host-filled]")]


async def test_what_is_raised_holds_no_credential_and_no_frame_that_did() -> None:
    def answer(args: Any, _: Any) -> Any:
        try:
            {}[args["token"]]
        except KeyError as error:
            raise ValueError(f"failed with {args['token']}") from error

    tool = host_filled(Search(answer=answer), TOKEN)
    with pytest.raises(ValueError, match=r"failed with \[host-filled\]") as caught:
        await tool.execute({"q": "x"}, context())
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert SECRET not in "".join(shown.format(chain=True))
    assert str(caught.value.__cause__) == "'[host-filled]'"


async def test_a_refusal_of_the_tool_itself_is_the_same_object() -> None:
    error = AfpoolError("not now", delivery="not-sent")
    tool = host_filled(Search(answer=error), TOKEN)
    with pytest.raises(AfpoolError) as caught:
        await tool.execute({"q": "x"}, context())
    assert caught.value is error


async def test_a_cancellation_goes_through() -> None:
    class Hangs(Search):
        async def execute(self, args: Any, ctx: ToolContext) -> Any:
            await trio.sleep_forever()

    with trio.move_on_after(0) as scope:
        await host_filled(Hangs(), TOKEN).execute({"q": "x"}, context())
    assert scope.cancelled_caught


async def test_a_result_that_cannot_be_looked_through_is_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> Any:
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr("afpool.tools._scrub.Scrubber.result", broken)
    with pytest.raises(AfpoolError, match=r"protocol-error.*withheld") as caught:
        await host_filled(Search(), TOKEN).execute({"q": "x"}, context())
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.call_id == "c1"


async def test_a_short_value_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    tool = host_filled(Search(name="short"), TOKEN)
    for _ in range(2):
        await tool.execute({"q": "x"}, context(credential=bearer("abc")))
    (record,) = caplog.records
    assert "token of short has fewer than 4 characters" in record.getMessage()


# -- the dictionary that it runs with, and the errors


async def test_the_arguments_of_the_run_do_not_show_it() -> None:
    base = Search()
    await host_filled(base, TOKEN).execute({"q": "x"}, context())
    args = base.ran[0][0]
    for one in (args, args.copy(), copy.copy(args), copy.deepcopy(args)):
        assert SECRET not in f"{one} {one!r} {one}"
        assert one["token"] == SECRET
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(one)
    assert json.loads(json.dumps(args)) == {"q": "x", "token": SECRET}
    assert dict(args) == {"q": "x", "token": SECRET}


@pytest.mark.parametrize(
    "error",
    [
        HostFilledArgumentError("search", ["token", "b"]),
        HostFilledValueMissingError("search", "token", "none"),
        CannotHideArgumentError("search", ["token"], "because"),
    ],
)
def test_errors_are_copied_and_pickled_whole(error: AfpoolError) -> None:
    error.call_id = "c9"
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert (str(again), again.call_id) == (str(error), "c9")
        assert vars(again) == vars(error)


def test_fills_compare_and_show_no_code() -> None:
    assert from_identity("tenant") == from_identity("tenant")
    assert from_credential("crm") != from_credential("mail")
    assert "lambda" not in repr(from_credential("crm", read=lambda _: SECRET))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        from_identity("tenant").field = "principal"  # type: ignore[misc]


# -- bound tools


async def test_a_bound_tool_keeps_its_binding_and_its_server_gets_the_values() -> None:
    async def handler(arguments: Any, _: Any) -> Any:
        yield Reported(1, message=f"using {arguments['token']}")
        yield f"{arguments['q']} with {arguments['token']} for {arguments['tenantId']}"

    listed = FakeTool("search", handler, input_schema=SCHEMA)
    plain = FakeTool("plain", lambda *_: "x")
    async with world(tools=[listed, plain]) as here:
        bound = await here.tool(name="search")
        tool = host_filled(bound, TOKEN | TENANT)
        assert binding_of(tool) is bound.binding
        assert "token" in bound.input_schema["properties"]
        told: list[Progress] = []
        ctx = context(on_progress=told.append)
        answered = await tool.execute({"q": "x"}, ctx)
        assert answered.text == "x with [host-filled] for acme"
        assert [one.message for one in told] == ["using [host-filled]"]
        with pytest.raises(HostFilledArgumentError):
            await tool.execute({"q": "x", "token": "y"}, ctx)
        with pytest.raises(AfpoolError) as caught:
            await tool.execute({"q": "x"}, context(identity=Identity(tenant="globex", principal="eve")))
        assert caught.value.code == "identity-mismatch", "the binding still rechecks"
        assert here.sent("search") == 1
        named = host_filled(await here.pool.tools(ALICE), TOKEN)
        assert set(named) == {"search", "plain"}
        assert host_fills_of(named["search"]) is not None


async def test_an_error_answer_of_a_server_holds_no_credential() -> None:
    def handler(arguments: Any, _: Any) -> Any:
        return {"content": [{"type": "text", "text": f"denied {arguments['token']}"}], "isError": True}

    listed = FakeTool("search", handler, input_schema=SCHEMA)
    async with world(tools=[listed]) as here:
        tool = host_filled(await here.tool(name="search"), TOKEN)
        answered = await tool.execute({"q": "x"}, context())
        assert answered.is_error
        with pytest.raises(AfpoolError, match=r"denied \[host-filled\]"):
            answered.raise_for_error()


async def test_the_same_definition_is_cut_once() -> None:
    listed = FakeTool("search", lambda *_: "x", input_schema=SCHEMA)
    async with world(tools=[listed]) as here:
        one = host_filled(await here.tool(name="search"), TOKEN)
        two = host_filled(await here.tool(name="search"), TOKEN)
        from afpool.tools._derive import held_input_schema

        assert held_input_schema(one) is held_input_schema(two)
        three = host_filled(await here.tool(name="search"), TENANT)
        assert "token" in three.input_schema["properties"]
