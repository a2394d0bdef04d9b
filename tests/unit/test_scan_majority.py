"""What samples have in common, and which differ: `tasks/scan/majority.py`."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tasks.scan.majority import differences, find_common, most_odd
from holdfast.tasks.scan.signature import VARIES, Part, Signature

IMAGE = Part("[0]", "tensor float32", (3, 224, 224))
LABEL = Part("[1]", "int")
USUAL = (IMAGE, LABEL)


def odd_among(counts: dict[Signature, int]) -> dict[Signature, str]:
    common = find_common(counts)
    said = {signature: differences(signature, common) for signature in counts}
    return {signature: words for signature, words in said.items() if words}


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ((IMAGE._replace(sizes=(1, 224, 224)), LABEL), "[0] is 1 x 224 x 224, not 3 x 224 x 224"),
        ((IMAGE._replace(sizes=(224, 224)), LABEL), "[0] is 224 x 224, not 3 x 224 x 224"),
        ((IMAGE._replace(sizes=()), LABEL), "[0] is a single value, not 3 x 224 x 224"),
        ((IMAGE._replace(kind="tensor float64"), LABEL), "[0] is tensor float64 3 x 224 x 224, not tensor float32"),
        ((IMAGE, LABEL._replace(kind="None")), "[1] is None, not int"),
        ((IMAGE,), "has no [1]"),
        ((*USUAL, Part("[2]", "str")), "has [2], which others have not"),
        ((Part("", "None"),), "is None, not [0] tensor float32 3 x 224 x 224, [1] int"),
    ],
)
def test_a_rare_sample_is_odd_with_what_differs(odd: Signature, words: str) -> None:
    """In words that say what it is, and what it should be."""
    assert odd_among({USUAL: 99, odd: 1}) == {odd: words}


def test_a_length_that_varies_by_nature_makes_nobody_odd() -> None:
    """But the dimension beside it, which does not vary, does."""
    texts = {(Part("", "tensor int64", (length, 8)),): 1 for length in range(100)}
    odd = (Part("", "tensor int64", (17, 9)),)
    assert odd_among({**texts, odd: 1}) == {odd: "the sample is 17 x 9, not any x 8"}


def test_two_kinds_that_are_both_common_are_no_oddity() -> None:
    """One in three is not rare."""
    assert odd_among({USUAL: 60, (IMAGE._replace(kind="tensor uint8"), LABEL): 30}) == {}


def test_a_few_that_are_containers_among_single_values_of_several_kinds() -> None:
    """In words that can be read, though a single value has no name."""
    single: dict[Signature, int] = {(Part("", kind),): 10 for kind in ("int", "str", "bytes")}
    pair: Signature = (Part("[0]", "int"),)
    assert odd_among({**single, pair: 1}) == {pair: "is no single value; has [0], which others have not"}
    assert [str(each) for each in find_common(single)] == ["values of several kinds"]


def test_an_empty_list_lacks_no_items() -> None:
    """Of a list that may have any number of items none can be missing."""
    boxes = [(Part("", "list", (n,)), Part("[*]", "tensor float32", (4,))) for n in range(1, 50)]
    assert odd_among({**dict.fromkeys(boxes, 1), (Part("", "list", (0,)),): 1}) == {}


def test_a_size_that_was_not_kept_fits_any() -> None:
    """Of very many signatures the sizes are left out."""
    assert odd_among({USUAL: 99, (IMAGE._replace(sizes=(VARIES,) * 3), LABEL): 1}) == {}


def test_of_many_differences_a_few_are_told() -> None:
    """The rest is counted."""
    usual = tuple(Part(f"[{k}]", "int") for k in range(9))
    odd = tuple(Part(f"[{k}]", "str") for k in range(9))
    words = odd_among({usual: 99, odd: 1})[odd]
    assert words == "[0] is str, not int; [1] is str, not int; [2] is str, not int and 6 more"


@pytest.mark.parametrize(("samples", "most"), [(0, 0), (3, 0), (4, 1), (12, 3), (60, 3), (100, 5), (10_000, 500)])
def test_how_many_may_be_odd(samples: int, most: int) -> None:
    """A few of few, one in twenty of many, and never more than a quarter."""
    assert most_odd(samples) == most


parts = st.builds(
    Part,
    st.sampled_from(["", "[0]", "[1]", "['x']", "['x'][*]"]),
    st.sampled_from(["int", "str", "tensor float32", "tensor float64"]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
)
signatures = st.lists(parts, max_size=4, unique_by=lambda part: part.path).map(tuple)
tables = st.dictionaries(signatures, st.integers(1, 200), min_size=1, max_size=12)


@given(tables)
def test_the_odd_ones_are_always_few(counts: dict[Signature, int]) -> None:
    """For each thing that may differ, and there are not many: so a scan is never flooded with them."""
    total = sum(counts.values())
    features = sum(2 + 4 for _ in find_common(counts))
    assert sum(counts[signature] for signature in odd_among(counts)) <= features * most_odd(total)


@given(signatures, st.integers(1, 1000))
def test_equal_samples_are_never_odd(signature: Signature, count: int) -> None:
    """However few or many."""
    assert odd_among({signature: count}) == {}


@given(tables, st.randoms())
def test_the_order_does_not_matter(counts: dict[Signature, int], random: object) -> None:
    """Which samples are odd depends on how many have which signature, and not on which came first.

    Where two values are equally common, none is what nearly all have.
    """
    items = [*counts.items()]
    random.shuffle(items)  # type: ignore[attr-defined]
    assert odd_among(dict(items)).keys() == odd_among(counts).keys()


@given(tables)
def test_what_nearly_all_have_is_had_by_nearly_all(counts: dict[Signature, int]) -> None:
    """The kind that is told of a path is that of all its parts but the few that may be odd."""
    for common in find_common(counts):
        kinds = Counter[str]()
        for signature, count in counts.items():
            kinds.update({part.kind: count for part in signature if part.path == common.path})
        if common.kind is not None:
            assert kinds.total() - kinds[common.kind] <= most_odd(kinds.total())
