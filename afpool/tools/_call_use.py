"""What the door writes into the use of a call: the facts that outlive it, for whoever asks why.

Rules:

* A call that is dispatched has one use from before its tool is known to its end, and is among the running
  ones for just as long. It is filed once, with its end; so is each of the two of a call that was repeated.
* A use shows what an event may show and nothing else. Whatever becomes known as secret until the call ends is
  taken out of the names and arguments in it at once, also out of what others have kept of it by then.
* What a call may add is bounded: long arguments are told by their sizes, of refs and notes the first ones.
* Nothing here delays a call, and nothing that a listener does fails one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, final

from .._base.errors import ANSWERED, IN_DOUBT, NOT_SENT, AfpoolError, ToolFailed
from .._base.use import Use
from ..artifacts import ArtifactMinted, ArtifactRefused, ArtifactResolved
from ..protocol import encode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._base.identity import Identity
    from ..artifacts import ArtifactFact, ArtifactMeta
    from ..pool import Binding
    from ._scrub import Scrubber

logger = logging.getLogger("afpool")

MAX_SHOWN: Final = 16 * 1024
"""Bytes of shown arguments that a use holds; of longer ones it says how long each is."""
MAX_REFS: Final = 64
MAX_NOTES: Final = 32
_MAX_MEMBER: Final = 256
_MAX_NAME: Final = 128


@final
class Books:
    """Where the calls of all doors of one runtime are kept.

    Args:
        now: The runtime's clock.
        begin: Told of the use of each call once it says which tool is meant; must not raise.
        file: Takes the use of a call that has ended; must not raise.
        running: Where to keep those that run; a dict of its own when absent.
        on_minted: Told of each put of a call's: the ticket, without what is secret in it, whose it is, and
            the use as it is then.
        on_cleaned: Told of the use of a call that has put something, once more is known as secret, and of
            what takes that out of words.

    Attributes:
        running: The uses of the calls under way, oldest first.
        begin: As given.
        now: As given.
        on_minted: As given.
        on_cleaned: As given.
    """

    __slots__ = ("_file", "begin", "now", "on_cleaned", "on_minted", "running")

    def __init__(
        self,
        now: Callable[[], float],
        begin: Callable[[Use], object] | None = None,
        file: Callable[[Use], object] | None = None,
        running: dict[int, Use] | None = None,
        on_minted: Callable[[ArtifactMeta, Identity, Use], object] | None = None,
        on_cleaned: Callable[[Use, Callable[[str], str]], object] | None = None,
    ) -> None:
        self.now = now
        self.on_cleaned = on_cleaned
        self.running: dict[int, Use] = {} if running is None else running
        self.on_minted = on_minted
        self.begin = begin
        self._file = file

    def open(self, use: Use) -> None:
        """A call begins."""
        self.running[id(use)] = use

    def close(self, use: Use, now: float) -> None:
        """A call has ended: file it. Its outcome stands in it."""
        use.waits_for = None
        use.ended_at = now
        del self.running[id(use)]
        if self._file is not None:
            self._file(use)


def meant(use: Use, binding: Binding | None) -> None:
    """Say which tool a call means: a server's, or one of the host's own (or none)."""
    if binding is None:
        return
    use.server = binding.actor.server.name
    use.tool = binding.definition.name
    use.key = binding.actor.key  # as the pool does: a record must not keep a forgotten key alive
    use.method = "tools/call"


def repeated(use: Use, call_id: str, now: float) -> Use:
    """Make the use of the second attempt of a call, under an id of its own."""
    second = Use(call_id, use.server, use.tool, now)
    for name in ("name", "method", "run_id", "parent", "who", "key", "shown", "changed", "trace"):
        setattr(second, name, getattr(use, name))
    second.repeated_of = use.call_id
    return second


def cancelled(use: Use, *, begun: bool = False, answered: bool = False) -> None:
    """Write down that a call was cancelled; a pool that had a part in it has said how far it came.

    Args:
        use: Its use.
        begun: Whether the tool had been called.
        answered: Whether it had returned.
    """
    if answered:
        use.delivery = ANSWERED
    elif use.outcome is None:
        use.delivery = IN_DOUBT if begun else NOT_SENT
    got_over(use)
    use.outcome = use.code = "cancelled"


def got_over(use: Use, error: AfpoolError | None = None) -> None:
    """Forget what ended a pool's part in a call, where that is not how the call ends.

    Args:
        use: Its use, as the pool left it.
        error: What the call ends with; `None` where it ends by itself, or is cancelled.
    """
    ends: BaseException | None = error
    if isinstance(error, ToolFailed):
        ends = error.__cause__ or error  # it speaks of what a call inside the tool ended with
    if not isinstance(ends, AfpoolError) or ends.code != use.code:
        use.cause = use.happened = use.was = use.became = None


def of_artifact(use: Use, fact: ArtifactFact, now: float) -> None:
    """Write down what happened to an artifact in a call."""
    if isinstance(fact, ArtifactMinted):
        if use.minted is None:
            use.minted = []
        if len(use.minted) < MAX_REFS:
            use.minted.append(fact.meta.ref)
    elif isinstance(fact, ArtifactResolved):
        if fact.via != "get":
            return  # it was looked at, and not given
        if use.took is None:
            use.took = []
        if len(use.took) < MAX_REFS and fact.ref not in use.took:
            use.took.append(fact.ref)
    elif isinstance(fact, ArtifactRefused):
        note(use, "store", f"{fact.op} {fact.reason}", now)


def note(use: Use, stage: str, word: str, now: float) -> None:
    """File a fact, as long as there are few of them."""
    if use.facts is None or len(use.facts) < MAX_NOTES:
        use.note(stage, word, now)


def clean(use: Use, scrubber: Scrubber) -> None:
    """Take what has become known as secret out of what a model, a tool or a server chose the words of."""
    use.name = scrubber.text(use.name)
    use.tool = scrubber.text(use.tool)
    if use.changed:
        use.changed = tuple(map(scrubber.text, use.changed))
    if use.shown is not None:
        use.shown = scrubber.raw(use.shown)
    if use.facts is not None:
        use.facts = [(stage, scrubber.text(word), at) for stage, word, at in use.facts]


def fitted(raw: bytes, shown: Mapping[Any, Any] | None) -> bytes:
    """Give long arguments as a use holds them: what is short in them, and of the rest the sizes.

    Args:
        raw: As JSON.
        shown: The same, where all of it is JSON.
    """
    told: dict[str, Any] = {}
    size = 0
    for key, value in () if shown is None else shown.items():
        written = len(encode_json(value))
        name = key if len(key) <= _MAX_NAME else f"{key[:_MAX_NAME]}…"
        size += len(name) + min(written, _MAX_MEMBER) + 8
        if size > MAX_SHOWN // 2:  # a name may take several bytes for a character
            break
        told[name] = value if written <= _MAX_MEMBER else f"[{written} bytes of JSON]"
    left = len(shown or ()) - len(told)
    if left or not told:
        told["…"] = f"[{left or len(raw)} {'more' if left else 'bytes of JSON'}]"
    return encode_json(told)
