"""The cut schema accepts what the whole one accepts with some value filled in, and is refused otherwise."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from afpool.tools._schema_cut import CannotCut, argument_names, cut_schema
from afpool.tools._schema_decide import decide
from afpool.tools._schema_document import Document
from afpool.tools._schema_value import Values, meets
from tests.tools.schemas import FIELDS, VALUES, accepted, instances, schemas, validator

given_fields = st.sampled_from(((FIELDS[0],), FIELDS))


def can_be_met(schema: dict[str, Any], fields: tuple[str, ...]) -> bool:
    """Whether what must be met of each value is met by one of the values that are tried."""
    document = Document(schema)
    truth = decide(document, frozenset(fields), Values(document))
    return all(
        any(
            all(
                meets(atom, text, document.draft) is met
                for (name, atom), met in truth.items()
                if name == field
            )
            for text in VALUES
        )
        for field in fields
    )


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=schemas(), fields=given_fields, shown=st.lists(instances, min_size=1, max_size=8))
def test_the_cut_schema_accepts_what_the_whole_one_does_with_some_value(
    schema: dict[str, Any], fields: tuple[str, ...], shown: list[dict[str, Any]]
) -> None:
    whole = validator(schema)
    assume(whole is not None)
    try:
        cut = cut_schema(schema, fields)
    except CannotCut as refused:
        event(refused.reason)
        if "no call at all" in refused.reason or "no value fits" in refused.reason:
            assert not any(any(accepted(whole, one, fields)) for one in shown)
        return
    assume(can_be_met(schema, fields))
    event("cut")
    judge = validator(cut)
    assert judge is not None, cut
    assert argument_names(cut, required=True).isdisjoint(fields), cut
    for one in shown:
        assert judge.is_valid(one) == any(accepted(whole, one, fields)), (one, cut)
