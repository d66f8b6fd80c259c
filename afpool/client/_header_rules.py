"""What may stand in a header that somebody else made: an app's plan, a provider, a signer.

* Nothing reaches the HTTP layer unchecked, and what is refused is refused before anything was sent.
* A refusal names the header and says what is wrong; it holds no value, and no exception behind it does.
* What the protocol or the connection decides is afpool's own to say. A signer that gives back the headers it
  was shown, as many do, is not refused for it: a pair that is there already is passed over.
* One name, one header: a credential replaces a plan's static header, a signature replaces both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._base.errors import CredentialFailed
from .._base.header_rules import TOKEN, name_problem, value_problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..transports import Headers


def checked(given: Iterable[tuple[str, str]], whose: str, there: Headers | None = None) -> Headers:
    """Make header pairs of what a provider or signer gave.

    Args:
        given: Names and values.
        whose: `the credential` or `the signer`, for the refusal.
        there: What the request has already; an equal pair in `given` is passed over.

    Raises:
        CredentialFailed: A name or value that cannot be sent; nothing was sent.
    """
    pairs, problem = _read(given, there)
    del given, there  # no local of a frame that something is raised through holds a value
    if problem is not None:
        raise _refused(whose, *problem)
    return pairs


def _read(given: Iterable[tuple[str, str]], there: Headers | None) -> tuple[Headers, tuple[str, str] | None]:
    """Give the pairs, or no pairs and what is wrong: a header's name and the words for it. Raises nothing."""
    pairs: Headers = []
    names: set[str] = set()
    for raw_name, value in given:
        name = raw_name.lower() if isinstance(raw_name, str) else ""
        problem = value_problem(value)
        if problem is not None:
            return [], (name, f"its value {problem}")
        pair = (name.encode("ascii", "replace"), value.encode("latin-1"))
        if there is not None and pair in there:
            continue
        problem = name_problem(name)
        if problem is not None:
            return [], (name, f"its name {problem}")
        if name in names:
            return [], (name, "it is given twice")
        names.add(name)
        pairs.append(pair)
    return pairs, None


def merged(below: Headers, above: Headers) -> Headers:
    """Both, without what `above` replaces in `below`."""
    if not above:
        return below
    names = {name for name, _ in above}
    return [*(pair for pair in below if pair[0] not in names), *above]


def _refused(whose: str, name: str, problem: str) -> CredentialFailed:
    shown = f" {name!r}" if TOKEN.fullmatch(name) else ""
    return CredentialFailed(f"{whose} gives a header{shown} that cannot be sent: {problem}; nothing was sent")
