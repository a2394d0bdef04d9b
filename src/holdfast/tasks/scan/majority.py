"""What samples have in common, and which of them differ. Pure: signatures and their numbers in, words out.

Each part of a sample is judged by itself: whether it is there, of which kind, with how many dimensions, and how long
each of them is. Where nearly all samples agree, the few that do not are odd. Where more than a few differ it is in the
nature of the data, such as the length of a text, and nobody is odd for that.

Runs in: main process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from holdfast.tasks.scan.signature import VARIES, Part, Signature

T = TypeVar("T")

_FEW = 3
_RARE_PER_CENT = 5
_MOST_DIFFERENCES = 3


@dataclass(frozen=True, slots=True)
class Common:
    """What nearly all samples have in common at one path. None, and VARIES of a size: nothing."""

    path: str
    is_there: bool | None
    kind: str | None
    sizes: tuple[int, ...] | None

    def __str__(self) -> str:
        sizes = "" if not self.sizes else f" {_times(self.sizes)}"
        if self.kind is None:
            return f"{self.path or 'values'} of several kinds"
        return f"{self.path} {self.kind}{sizes}".strip()


def most_odd(samples: int) -> int:
    """How many of so many may differ and be odd, and not just different."""
    return min(samples // 4, max(_FEW, samples * _RARE_PER_CENT // 100))


def find_common(counts: Mapping[Signature, int]) -> tuple[Common, ...]:
    """`counts`: how many samples have each signature. In the order in which a sample is read."""
    total = sum(counts.values())
    seen: defaultdict[str, Counter[Part]] = defaultdict(Counter)
    for signature, count in counts.items():
        for part in signature:
            seen[part.path][part] += count
    return tuple(_common_at(path, parts, total) for path, parts in seen.items())


def _common_at(path: str, parts: Counter[Part], total: int) -> Common:
    there = parts.total()
    is_there = _agreed(Counter({True: there, False: total - there}))
    kind = _agreed(_counted((part.kind, count) for part, count in parts.items()))
    alike = [(part.sizes, count) for part, count in parts.items() if kind in (part.kind, None)]
    dimensions = _agreed(_counted((len(sizes), count) for sizes, count in alike))
    if dimensions is None:
        return Common(path, is_there, kind, None)
    alike = [(sizes, count) for sizes, count in alike if len(sizes) == dimensions]
    sizes = (_agreed(_counted((sizes[k], count) for sizes, count in alike)) for k in range(dimensions))
    return Common(path, is_there, kind, tuple(VARIES if size is None else size for size in sizes))


def _counted(pairs: Iterable[tuple[T, int]]) -> Counter[T]:
    counter: Counter[T] = Counter()
    for value, count in pairs:
        counter[value] += count
    return counter


def _agreed(counter: Counter[T]) -> T | None:
    """What nearly all have; None if there is no such thing."""
    (value, count), *_ = counter.most_common(1)
    total = counter.total()
    return value if total - count <= most_odd(total) else None


def differences(signature: Signature, common: Sequence[Common]) -> str:
    """How a sample differs from the others, in words that go on from "sample 17"; empty if it does not."""
    parts = {part.path: part for part in signature}
    if "" in parts and any(each.path == "" and each.is_there is False for each in common):
        usual = ", ".join(str(each) for each in common if each.is_there)
        return f"is {_described(parts[''])}" + (f", not {usual}" if usual else "")
    found = (_difference(parts.get(each.path), each) for each in common)
    said = [words for words in found if words]
    more = f" and {len(said) - _MOST_DIFFERENCES} more" if len(said) > _MOST_DIFFERENCES else ""
    return "; ".join(said[:_MOST_DIFFERENCES]) + more


def _difference(part: Part | None, usual: Common) -> str:
    name = usual.path or "the sample"
    if part is None:
        if not usual.is_there or usual.path.endswith("[*]"):  # an empty list has no items that could be missing
            return ""
        return f"has no {name}" if usual.path else "is no single value"
    if usual.is_there is False:
        return f"has {name}, which others have not"
    if usual.kind not in (part.kind, None):
        return f"{name} is {_described(part)}, not {usual.kind}"
    if usual.sizes is None or _fits(part.sizes, usual.sizes):
        return ""
    return f"{name} is {_times(part.sizes) or 'a single value'}, not {_times(usual.sizes) or 'a single value'}"


def _fits(sizes: tuple[int, ...], usual: tuple[int, ...]) -> bool:
    return len(sizes) == len(usual) and all(
        VARIES in pair or pair[0] == pair[1] for pair in zip(sizes, usual, strict=True)
    )


def _described(part: Part) -> str:
    return f"{part.kind} {_times(part.sizes)}".strip()


def _times(sizes: Sequence[int]) -> str:
    return " x ".join("any" if size == VARIES else str(size) for size in sizes)
