"""Which tests run a line, and in which order they are asked.

A test of more than `SLOW` seconds is left out: searches that walk through everything find much, but a mutant
that only they find has no test that says what is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SLOW = 8.0
AT_IMPORT = "<import>"  # in the place of a test's name


class Test(NamedTuple):
    name: str
    seconds: float  # as it was measured, on a machine that may have been busy
    work: float  # seconds that the processor worked for it
    cost: float  # at most that, and no more than three times what the processor worked for it
    breadth: int  # lines that it runs, of all files: the fewer, the nearer it is to each


class Reach:
    """Tests by line."""

    def __init__(self, gathered: Iterable[Mapping[str, Mapping[str, object]]]) -> None:
        self.tests: dict[str, Test] = {}
        self._by_line: dict[tuple[str, int], list[str]] = defaultdict(list)
        self._at_import: dict[tuple[str, int], list[str]] = defaultdict(list)
        for tests in gathered:
            for name, facts in tests.items():
                lines: dict[str, list[int]] = facts["lines"]  # type: ignore[assignment]
                seconds = float(facts["seconds"])  # type: ignore[arg-type]
                if name.endswith(AT_IMPORT):
                    for file, numbers in lines.items():
                        for number in numbers:
                            self._at_import[file, number].append(name.removesuffix(AT_IMPORT))
                    continue
                work = float(facts.get("work", seconds))  # type: ignore[arg-type]
                cost = min(seconds, 3 * work + 0.1)
                if cost > SLOW:
                    continue
                self.tests[name] = Test(name, seconds, work, cost, sum(map(len, lines.values())))
                for file, numbers in lines.items():
                    for number in numbers:
                        self._by_line[file, number].append(name)

    def of(self, places: Iterable[tuple[str, int]]) -> list[Test]:
        """The tests that run one of these lines: fastest and nearest first, of each function one in front."""
        return self._ordered({name for place in places for name in self._by_line.get(place, ())})

    def at_import(self, places: Iterable[tuple[str, int]]) -> list[Test]:
        """The tests of the files whose import alone runs one of these lines."""
        files = tuple({file for place in places for file in self._at_import.get(place, ())})
        return self._ordered({name for name in self.tests if name.startswith(files)}) if files else []

    def _ordered(self, names: Iterable[str]) -> list[Test]:
        # the n-th set of parameters of a function counts as n times as far away: others are asked before it
        turns: dict[str, int] = defaultdict(int)
        scored = []
        for test in sorted(map(self.tests.__getitem__, names), key=lambda test: (_distance(test), test.name)):
            function = test.name.partition("[")[0]
            turns[function] += 1
            scored.append((_distance(test) * turns[function], test.name, test))
        return [test for _, _, test in sorted(scored)]


def _distance(test: Test) -> float:
    return (test.cost + 0.02) * (test.breadth + 50)
