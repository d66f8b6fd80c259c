"""Definitions and lists: compared by content, kept once, never shared where they differ."""

from __future__ import annotations

import gc
import hashlib
import json
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.canonical import ContentError, canonical_json
from afpool._base.definition import (
    STEP,
    Definition,
    DefinitionTable,
    build_definition,
    check_compare_without,
)

SEARCH = {
    "name": "search",
    "description": "Finds things.",
    "inputSchema": {"type": "object", "properties": {"q": {"type": "string", "maxLength": 2**63}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "_meta": {"trace": "t-1", "tags": ["a", "b", "c"]},
}


NESTED = st.recursive(
    st.integers(0, 9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "0", "1", "~"]), inner, max_size=3)
    ),
)


def raw(tool=None, **changes):
    return json.dumps({**(SEARCH if tool is None else tool), **changes}).encode()


class TestDefinition:
    def test_reads_what_was_listed(self):
        definition = build_definition(raw())
        assert definition.name == "search"
        assert definition.raw == raw()
        assert definition.digest == definition.whole == hashlib.sha256(canonical_json(SEARCH)).hexdigest()
        assert definition.document == SEARCH
        assert definition.description == "Finds things."
        assert definition.input_schema == SEARCH["inputSchema"]
        assert definition.output_schema == SEARCH["outputSchema"]
        assert definition.annotations == SEARCH["annotations"]
        assert definition.meta == SEARCH["_meta"]

    def test_holders_cannot_change_it(self):
        definition = build_definition(raw())
        definition.document["name"] = "other"
        definition.input_schema["properties"].clear()
        assert definition.document == SEARCH
        with pytest.raises(AttributeError):
            definition.name = "other"
        assert not hasattr(definition, "__dict__")

    @pytest.mark.parametrize("odd", [None, 1, [], "x", True])
    def test_members_of_another_type_read_as_absent(self, odd):
        tool = dict.fromkeys(("inputSchema", "outputSchema", "annotations", "_meta"), odd)
        definition = build_definition(raw({"name": "t", **tool}))
        assert definition.input_schema is definition.output_schema is None
        assert definition.annotations is definition.meta is None
        assert definition.description is None
        assert build_definition(raw({"name": "t", "description": 5})).description is None

    def test_repr_shows_no_content(self):
        assert "Finds" not in repr(build_definition(raw()))

    @pytest.mark.parametrize(
        ("listed", "reason"),
        [
            (b"[]", "not an object"),
            (b'"search"', "not an object"),
            (b"null", "not an object"),
            (b"{}", "no name"),
            (b'{"name":""}', "no name"),
            (b'{"name":7}', "no name"),
            (b'{"name":null}', "no name"),
            (b'{"name":"\\ud800"}', "surrogate"),
            (b'{"name":"a","name":"b"}', "twice"),
            (b'{"name":"a","x":NaN}', "NaN"),
            (b'{"name":"a","x":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested"),
            (b'{"name":"a"} {}', "not JSON"),
        ],
    )
    def test_quarantine(self, listed, reason):
        table = DefinitionTable()
        with pytest.raises(ContentError, match=reason) as refused:
            table.intern(listed)
        assert refused.value.reason
        assert len(table) == 0


class TestCompareWithout:
    @pytest.mark.parametrize(
        ("pointers", "changes"),
        [
            (("/_meta/trace",), {"_meta": {"trace": "t-2", "tags": ["a", "b", "c"]}}),
            (("/_meta",), {"_meta": "anything"}),
            (("/_meta/tags/1",), {"_meta": {"trace": "t-1", "tags": ["a", "changed", "c"]}}),
            (("/_meta/tags/0", "/_meta/tags/1"), {"_meta": {"trace": "t-1", "tags": ["x", "y", "c"]}}),
            (("/_meta/tags", "/_meta/tags/0"), {"_meta": {"trace": "t-1", "tags": [1]}}),
            (
                ("/inputSchema/properties/q/maxLength",),
                {"inputSchema": {"type": "object", "properties": {"q": {"type": "string", "maxLength": 3}}}},
            ),
        ],
    )
    def test_left_out(self, pointers, changes):
        one, other = build_definition(raw(), pointers), build_definition(raw(**changes), pointers)
        assert one.digest == other.digest
        assert one.whole != other.whole
        assert build_definition(raw()).digest != build_definition(raw(**changes)).digest
        assert one.document == SEARCH

    def test_pointers_mean_the_document_as_listed(self):
        pointers = ("/x/0", "/x/2")
        assert build_definition(raw({"name": "t", "x": [1, 2, 3]}), pointers).digest == (
            build_definition(raw({"name": "t", "x": [2]})).digest
        )

    @pytest.mark.parametrize(
        "pointer",
        [
            "/nothing",
            "/_meta/tags/3",
            "/_meta/tags/-",
            "/_meta/tags/01",
            "/_meta/tags/-1",
            "/_meta/tags/+1",
            "/_meta/tags/x",
            "/_meta/tags/\u0661",
            "/_meta/tags/" + "9" * 5_000,
            "/description/0",
            "/name/x",
            "/_meta/trace/x/y",
        ],
    )
    def test_what_matches_nothing_is_ignored(self, pointer):
        assert build_definition(raw(), (pointer,)).digest == build_definition(raw()).digest

    def test_escapes(self):
        tool = {"name": "t", "a/b": 1, "m~n": 2, "~1": 3, "": 4}
        for pointer, key in (("/a~1b", "a/b"), ("/m~0n", "m~n"), ("/~01", "~1"), ("/", "")):
            rest = {name: value for name, value in tool.items() if name != key}
            assert build_definition(raw(tool), (pointer,)).digest == build_definition(raw(rest)).digest

    def test_check(self):
        assert check_compare_without(["/b", "/a", "/b"]) == ("/a", "/b")
        for wrong in ([""], ["/name"], ["a"], ["/~"], ["/~2"], "/a"):
            with pytest.raises(ValueError, match=r"compare_without|pointer"):
                check_compare_without(wrong)

    @given(NESTED, st.lists(st.text(st.sampled_from("/a01~-"))))
    def test_any_pointers(self, value, pointers):
        try:
            checked = check_compare_without(pointers)
        except ValueError:
            return
        definition = build_definition(raw({"name": "t", "a": value}), checked)
        assert definition.document == {"name": "t", "a": value}
        assert build_definition(raw({"a": value, "name": "t"}), checked).digest == definition.digest


class TestTable:
    def test_equal_tools_are_one_object(self):
        table = DefinitionTable()
        kept = table.intern(raw())
        assert table.find(raw()) is kept
        assert table.intern(raw()) is kept
        respelled = json.dumps(dict(reversed(SEARCH.items())), indent=1).encode()
        assert table.find(respelled) is None
        assert table.intern(respelled) is kept
        assert table.find(respelled) is kept
        other = table.intern(raw(description="Other."))
        assert other is not kept
        assert len(table) == 2

    def test_the_pure_half_then_keep(self):
        table = DefinitionTable()
        one, other = build_definition(raw()), build_definition(raw())
        assert table.find(raw()) is None
        assert table.keep(one) is one
        assert table.keep(other) is one

    def test_pointers_are_part_of_the_look_up(self):
        table, without = DefinitionTable(), ("/_meta/trace",)
        plain, cut = table.intern(raw()), table.intern(raw(), without)
        assert plain.digest != cut.digest
        assert table.find(raw(), without) is cut

    def test_left_out_values_are_never_anothers(self):
        table, without = DefinitionTable(), ("/_meta",)
        alice = table.intern(raw(_meta={"for": "alice"}), without)
        bob = table.intern(raw(_meta={"for": "bob"}), without)
        assert alice.digest == bob.digest
        assert bob.meta == {"for": "bob"}
        lists = table.catalog([alice]), table.catalog([bob])
        assert lists[0].digest == lists[1].digest
        assert lists[1]["search"].meta == {"for": "bob"}
        assert table.intern(raw(_meta={"for": "alice"}), without) is alice

    def test_forgets_what_nobody_holds(self):
        table = DefinitionTable()
        kept = table.intern(raw())
        table.intern(json.dumps(SEARCH, indent=1).encode())
        catalog = table.catalog([kept])
        watched = weakref.ref(kept), weakref.ref(catalog)
        del kept
        gc.collect()
        assert table.find(raw()) is not None
        del catalog
        gc.collect()
        assert [ref() for ref in watched] == [None, None]
        assert (len(table), len(table._raw), len(table._catalogs)) == (0, 0, 0)


def tools(table, *names) -> list[Definition]:
    return [table.intern(raw(name=name)) for name in names]


class TestCatalog:
    def test_reads_like_a_mapping(self):
        table = DefinitionTable()
        listed = tools(table, "b", "a")
        catalog = table.catalog(listed, [("#2", "not JSON")])
        assert catalog.definitions == tuple(listed)
        assert catalog.names == ("b", "a")
        assert list(catalog) == listed
        assert len(catalog) == 2
        assert catalog["a"] is catalog.get("a") is listed[1]
        assert "a" in catalog
        assert "c" not in catalog
        assert catalog.get("c") is None
        assert catalog.quarantined == (("#2", "not JSON"),)
        with pytest.raises(KeyError):
            catalog["c"]
        assert not hasattr(catalog, "__dict__")
        assert len(table.catalog([])) == 0

    def test_the_same_list_is_one_object(self):
        table = DefinitionTable()
        catalog = table.catalog(tools(table, "a", "b"))
        assert table.catalog(tools(table, "a", "b")) is catalog
        assert table.catalog(tools(table, "a", "b"), [("#2", "why")]) is not catalog
        assert table.catalog(tools(table, "b", "a")) is not catalog

    def test_what_is_a_difference(self):
        table = DefinitionTable()
        catalog = table.catalog(tools(table, "a", "b"))
        assert table.catalog(tools(table, "b", "a")).digest == catalog.digest
        assert table.catalog(tools(table, "a", "b"), [("#2", "why")]).digest == catalog.digest
        changed = [table.intern(raw(name="a", description="New.")), *tools(table, "b")]
        others = [changed, tools(table, "a"), tools(table, "a", "b", "c"), []]
        digests = {table.catalog(other).digest for other in others}
        assert len(digests) == 4
        assert catalog.digest not in digests

    def test_the_second_of_one_name_is_quarantined(self):
        table = DefinitionTable()
        first, other = tools(table, "a", "b")
        double = table.intern(raw(name="a", description="Mine."))
        catalog = table.catalog([first, other, double], [("#3", "why")])
        assert catalog["a"] is first
        assert catalog.definitions == (first, other)
        assert [name for name, _ in catalog.quarantined] == ["#3", "a"]
        # The very same tool twice is still two of one name.
        assert [name for name, _ in table.catalog([first, first]).quarantined] == ["a"]


class TestInSteps:
    def test_a_long_list_is_made_in_steps(self):
        table = DefinitionTable()
        listed = tools(table, *(f"tool-{number}" for number in range(3 * STEP)))
        steps = table.catalog_steps(listed)
        for _ in range(6):  # three parts, gone through once as listed and once by name
            next(steps)
        with pytest.raises(StopIteration) as done:
            next(steps)
        assert done.value.value is table.catalog(listed)

    def test_a_list_that_another_one_made_meanwhile_is_the_same_one(self):
        table = DefinitionTable()
        listed = tools(table, *(f"tool-{number}" for number in range(2 * STEP)))
        one, other = table.catalog_steps(listed), table.catalog_steps(listed)
        for _ in range(4):
            next(one)
            next(other)
        made = []
        for steps in (one, other):
            with pytest.raises(StopIteration) as done:
                next(steps)
            made.append(done.value.value)
        assert made[0] is made[1]

    def test_a_short_list_is_made_in_one(self):
        table = DefinitionTable()
        with pytest.raises(StopIteration):
            next(table.catalog_steps(tools(table, "a", "b")))
