"""Definitions and lists: compared by content, kept once, never shared where they differ."""

from __future__ import annotations

import gc
import hashlib
import json
import weakref

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.canonical import ContentError, canonical_json
from afpool._base.definition import ListedTool, build_definition, build_tool, check_compare_without
from afpool._base.definition_table import SPELLINGS, STEP, DefinitionTable

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


def tools(table: DefinitionTable, *names: str) -> list[ListedTool]:
    return [table.intern(raw(name=name)) for name in names]


def sizes(table: DefinitionTable) -> tuple[int, ...]:
    index = table._index
    return len(table), len(index.spelled), table.catalog_count, len(index.shown)


class TestTable:
    def test_equal_tools_are_one_object(self):
        table = DefinitionTable()
        lists = [table.catalog([table.intern(raw())])]
        kept = table.find(raw())
        assert kept is not None
        assert table.intern(raw()) is kept
        respelled = json.dumps(dict(reversed(SEARCH.items())), indent=1).encode()
        assert table.find(respelled) is None
        lists.append(table.catalog([table.intern(respelled), *tools(table, "other")]))
        assert table.find(respelled) is kept
        assert lists[0]["search"] is lists[1]["search"]
        other = table.intern(raw(description="Other."))
        assert other is not kept
        lists.append(table.catalog([other]))
        assert lists[2]["search"] is not lists[0]["search"]
        assert len(table) == 3

    def test_a_definition_is_one_object_for_as_long_as_somebody_holds_it(self):
        table = DefinitionTable()
        catalog = table.catalog(tools(table, "a"))
        held = catalog["a"]
        assert catalog.get("a") is catalog["a"] is held
        compiled = weakref.WeakKeyDictionary({held: "for as long as the list is there"})
        del held
        held = catalog["a"]
        assert held in compiled
        del catalog
        assert len(table) == 0
        assert table.catalog(tools(table, "b", "a"))["a"] is held

    def test_pointers_are_part_of_the_look_up(self):
        table, without = DefinitionTable(), ("/_meta/trace",)
        plain, cut = table.intern(raw()), table.intern(raw(), without)
        assert plain.digest != cut.digest
        lists = table.catalog([plain]), table.catalog([cut])
        assert table.find(raw(), without) is cut
        assert table.find(raw()) is plain
        del lists

    def test_left_out_values_are_never_anothers(self):
        table, without = DefinitionTable(), ("/_meta",)
        alice = table.intern(raw(_meta={"for": "alice"}), without)
        bob = table.intern(raw(_meta={"for": "bob"}), without)
        assert alice.digest == bob.digest
        lists = table.catalog([alice]), table.catalog([bob])
        assert lists[0].digest == lists[1].digest
        assert lists[0]["search"].meta == {"for": "alice"}
        assert lists[1]["search"].meta == {"for": "bob"}
        assert table.intern(raw(_meta={"for": "alice"}), without) is alice

    def test_forgets_what_no_list_has(self):
        table = DefinitionTable()
        catalog = table.catalog([table.intern(raw())])
        other = table.catalog([table.intern(json.dumps(SEARCH, indent=1).encode()), *tools(table, "b")])
        watched = weakref.ref(catalog["search"])
        assert sizes(table) == (2, 3, 2, 1)
        del catalog
        assert watched() is other["search"]
        assert table.find(raw()) is not None
        del other
        assert watched() is None
        assert sizes(table) == (0, 0, 0, 0)

    def test_any_number_of_spellings_takes_no_more_room_than_a_few(self):
        table = DefinitionTable()
        lists = [
            table.catalog([table.intern(json.dumps(SEARCH, indent=indent).encode())])
            for indent in range(3 * SPELLINGS)
        ]
        assert len(set(map(id, lists))) == 1
        assert sizes(table)[:3] == (1, SPELLINGS, 1)
        lists.clear()
        assert sizes(table)[:3] == (0, 0, 0)

    def test_one_that_was_let_go_of_while_a_list_of_it_was_made_is_kept_again(self):
        table = DefinitionTable()
        respelled = json.dumps(SEARCH, indent=1).encode()
        catalog = table.catalog([table.intern(raw())])
        assert table.catalog([table.intern(respelled)]) is catalog
        found = table.find(respelled)
        assert found is not None
        del catalog
        assert len(table) == 0
        catalog = table.catalog([found])
        assert table.find(raw()) is table.find(respelled) is found
        del catalog
        assert sizes(table) == (0, 0, 0, 0)

    def test_goes_through_what_is_held(self):
        table = DefinitionTable()
        catalog = table.catalog(tools(table, "a", "b"))
        assert [tool.name for tool in table.tools()] == ["a", "b"]
        assert list(table.catalogs()) == [catalog]
        assert "Finds" not in repr(next(table.tools()))

    @given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 5), max_size=6)), max_size=20))
    def test_what_is_indexed_is_what_living_lists_have(self, turns):
        """Four holders whose lists replace each other, some in steps, some closed before their end."""
        table, held = DefinitionTable(), {}
        for turn, (holder, names) in enumerate(turns):
            spelled = [raw(name=str(name)) if name % 2 else raw(name=str(name)) + b" " for name in names]
            steps = table.catalog_steps([table.intern(each) for each in spelled])
            if turn % 5 == 4:
                steps.close()
                continue
            slowly = [table.slowly(held[holder])] if turn % 2 and holder in held else []
            with pytest.raises(StopIteration) as done:
                next(steps)
            held[holder] = done.value.value
            del done
            leaving = table.leave_steps(slowly)
            next(leaving, None)
            leaving.close()  # with steps of its own or cut short: nothing may stay behind
            living = {name for catalog in held.values() for name in catalog.names}
            assert sorted(tool.name for tool in table.tools()) == sorted(living)
            assert {tool.name: tool.holders for tool in table.tools()} == {
                name: len({id(catalog) for catalog in held.values() if name in catalog}) for name in living
            }
        held.clear()
        assert sizes(table) == (0, 0, 0, 0)


class TestCatalog:
    def test_reads_like_a_mapping(self):
        table = DefinitionTable()
        listed = tools(table, "b", "a")
        catalog = table.catalog(listed, [("#2", "not JSON")])
        assert [each.raw for each in catalog.definitions] == [each.raw for each in listed]
        assert catalog.names == ("b", "a")
        assert [each.name for each in catalog] == ["b", "a"]
        assert len(catalog) == 2
        assert catalog["a"] is catalog.get("a")
        assert catalog["a"].digest == listed[1].digest
        assert catalog.shows("a", listed[1].digest)
        assert not catalog.shows("a", listed[0].digest)
        assert not catalog.shows("c", listed[0].digest)
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
        assert catalog["a"].raw == first.raw
        assert catalog.names == ("a", "b")
        assert [name for name, _ in catalog.quarantined] == ["#3", "a"]
        assert [tool.holders for tool in (first, other, double)] == [1, 1, 0]
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
        with pytest.raises(StopIteration) as done:
            next(one)
        next(other)  # what it has counted is let go of in parts, too
        with pytest.raises(StopIteration) as likewise:
            next(other)
        assert done.value.value is likewise.value.value
        assert {tool.holders for tool in listed} == {1}

    @pytest.mark.parametrize("done", range(5))
    def test_closed_before_its_end_it_leaves_nothing(self, done):
        table = DefinitionTable()
        steps = table.catalog_steps(tools(table, *map(str, range(2 * STEP))))
        for _ in range(done):
            next(steps)
        steps.close()
        assert sizes(table) == (0, 0, 0, 0)

    def test_a_short_list_is_made_in_one(self):
        table = DefinitionTable()
        with pytest.raises(StopIteration):
            next(table.catalog_steps(tools(table, "a", "b")))

    def test_what_has_gone_leaves_in_steps_where_that_was_asked_for(self):
        table = DefinitionTable()
        catalog = table.catalog(tools(table, *map(str, range(3 * STEP))))
        leaving = [table.slowly(catalog)]
        del catalog
        assert len(table) == 3 * STEP
        assert [len(table) for _ in table.leave_steps(leaving)] == [2 * STEP, STEP]
        assert sizes(table) == (0, 0, 0, 0)

    @pytest.mark.parametrize("done", range(1, 4))
    def test_cut_short_the_rest_of_all_leaves_at_once(self, done):
        table = DefinitionTable()
        lists = [table.catalog(tools(table, *(f"{n}-{m}" for m in range(2 * STEP)))) for n in range(3)]
        leaving = [table.slowly(each) for each in lists]
        lists.clear()
        steps = table.leave_steps(leaving)
        for _ in range(done):
            next(steps)
        steps.close()
        assert sizes(table) == (0, 0, 0, 0)

    def test_a_list_that_lives_on_goes_at_once_later(self):
        table = DefinitionTable()
        catalog = table.catalog(tools(table, *map(str, range(2 * STEP))))
        assert list(table.leave_steps([table.slowly(catalog)])) == []
        assert len(table) == 2 * STEP
        del catalog
        assert sizes(table) == (0, 0, 0, 0)

    def test_a_list_of_another_table_cannot_be_let_go_of(self):
        catalog = DefinitionTable().catalog([])
        with pytest.raises(LookupError):
            DefinitionTable().slowly(attrs.evolve(catalog))


class TestTheCollectorsWork:
    """Counted, not timed: what the collector looks after is what its whole rounds are made of."""

    COUNT = 3000

    @pytest.fixture(autouse=True)
    def quiet(self):
        gc.collect()
        gc.disable()
        yield
        gc.enable()

    def listed(self, word: str) -> list[bytes]:
        return [raw(name=f"tool-{number}", description=word) for number in range(self.COUNT)]

    def test_a_list_of_any_length_is_a_few_objects(self):
        table, texts = DefinitionTable(), self.listed("before")
        before = len(gc.get_objects())
        catalog = table.catalog([table.intern(each) for each in texts])
        gc.collect(0)  # as the first of its rounds does: tuples of text are looked at once and never again
        assert len(catalog) == self.COUNT
        assert len(gc.get_objects()) - before < 20
        assert not gc.is_tracked(build_tool(texts[0]))
        catalog = None
        assert len(gc.get_objects()) - before < 20

    def test_a_definition_that_was_touched_is_two(self):
        table = DefinitionTable()
        catalog = table.catalog(map(table.intern, self.listed("before")))
        before = len(gc.get_objects())
        held = [catalog[f"tool-{number}"] for number in range(100)]
        assert len(gc.get_objects()) - before <= 2 * len(held) + 10
        assert catalog["tool-7"] is held[7]
        del held, catalog
        assert len(gc.get_objects()) - before <= 10

    def test_reading_replacing_and_letting_go_bring_no_round(self):
        rounds = []
        table, catalog = DefinitionTable(), None
        texts = [self.listed(f"list {turn}") for turn in range(3)]
        gc.callbacks.append(lambda phase, told: rounds.append((phase, told["generation"])))
        gc.enable()
        try:
            for each in texts:
                catalog = table.catalog([table.intern(one) for one in each])
            catalog = None
        finally:
            gc.disable()
            gc.callbacks.pop()
        assert catalog is None
        assert len(table) == 0
        assert [each for each in rounds if each[0] == "start"] in ([], [("start", 0)])
