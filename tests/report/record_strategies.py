"""Lines of records that nobody would write: any value in any field, for hypothesis.

Runs in: the test process.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from made_records import HOSTILE, end, incident, reading, skipped, start, worker

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from([1e300, -1e300, 10**40, -1, HOSTILE, "", "x" * 10_000]),
    st.text(max_size=20),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_WHOLE = (
    start(memory_limit_bytes=1, memory_budget_bytes=1),
    incident(),
    reading(5.0),
    worker(1.0, 0, "started", "first"),
    skipped(1),
    end(stages={}, slowest=[]),
)


@st.composite
def anything(draw: Any) -> dict[str, Any]:
    """A line with some of its fields replaced by whatever comes."""
    line = dict(draw(st.sampled_from(_WHOLE)))
    for name in draw(st.sets(st.sampled_from(sorted(line.keys() - {"kind"})), max_size=5)):
        line[name] = draw(_VALUES)
    return line
