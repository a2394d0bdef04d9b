"""The random numbers of a worker go on where a lost one left them, or depend on the sample alone."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from holdfast.workers import rng
from holdfast.workers.rng import GeneratorStates, mix, seed_collate, seed_sample

DRAWS: dict[str, dict[str, Callable[[], Any]]] = {
    "torch": {
        "rand": lambda: torch.rand(3).tolist(),
        "randn": lambda: torch.randn(1).tolist(),
        "randn of 17": lambda: torch.randn(17).tolist(),
        "randperm": lambda: torch.randperm(5).tolist(),
        "seed": lambda: torch.manual_seed(5).initial_seed(),
    },
    "random": {
        "random": random.random,
        "gauss": lambda: random.gauss(0, 1),
        "normalvariate": lambda: random.normalvariate(0, 1),
        "shuffle": lambda: random.sample(range(100), 5),
        "seed": lambda: random.seed(5),
    },
    "numpy": {
        "rand": lambda: np.random.rand(3).tolist(),
        "randn": np.random.randn,
        "randn of 2": lambda: np.random.randn(2).tolist(),
        "normal": np.random.normal,
        "permutation": lambda: np.random.permutation(5).tolist(),
        "binomial": lambda: np.random.binomial(100, 0.3),
        "seed": lambda: np.random.seed(5),
    },
}
ALL = [(generator, name) for generator, draws in DRAWS.items() for name in draws]


pytestmark = pytest.mark.usefixtures("generators_restored")


def numbers() -> list[Any]:
    """What each way of drawing gives next, twice: the second of a pair of normal numbers is kept back."""
    ways = [draw for generator in DRAWS.values() for name, draw in generator.items() if name != "seed"]
    return [draw() for draw in (*ways, *ways)]


# --- rng="worker" ---------------------------------------------------------------------------------------------------


class Draws(RuleBasedStateMachine):
    """A worker that draws, and its main process, which hears of the changes only."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def start(self, seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        self.states = GeneratorStates()
        self.heard = self.states.read()
        self.used: set[str] = set()

    @rule(which=st.sampled_from(ALL))
    def a_number_is_drawn(self, which: tuple[str, str]) -> None:
        DRAWS[which[0]][which[1]]()
        self.used.add(which[0])

    @rule()
    def a_unit_is_finished(self) -> None:
        """Only of those that were used is anything said."""
        changes = self.states.changes()
        assert set(changes) <= self.used
        self.heard |= changes
        self.used.clear()
        assert self.states.changes() == {}

    @rule()
    def the_worker_is_replaced(self) -> None:
        """After a unit: the next life continues as the last would have."""
        self.a_unit_is_finished()
        here = random.getstate(), np.random.get_state(), torch.get_rng_state()
        expected = numbers()
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        self.states = GeneratorStates()
        self.states.restore(pickle.loads(pickle.dumps(self.heard)))
        assert self.states.changes() == {}
        assert numbers() == expected
        random.setstate(here[0])
        np.random.set_state(here[1])
        torch.set_rng_state(here[2])
        self.states.restore(self.heard)

    @invariant()
    def what_was_not_used_is_as_it_was_heard(self) -> None:
        now = self.states.read()
        for name in set(DRAWS) - self.used:
            assert now[name] == self.heard[name]


def test_after_any_draws_a_replacement_continues_as_the_lost_worker_would_have() -> None:
    """From nothing but the changes that came with finished units."""
    run_state_machine_as_test(Draws, settings=settings(max_examples=60, stateful_step_count=30))


@pytest.mark.parametrize(("generator", "name"), ALL)
def test_a_draw_is_a_change_of_its_generator_and_of_no_other(generator: str, name: str) -> None:
    """Also the second of a pair of normal numbers, for which nothing is generated; several times over."""
    states = GeneratorStates()
    for _ in range(5):
        DRAWS[generator][name]()
        changed = set(states.changes())
        assert changed == {generator} or (name == "seed" and not changed)  # the second time it changes nothing


@pytest.mark.parametrize("kept_back", [False, True])
def test_nothing_drawn_is_nothing_to_say(kept_back: bool) -> None:
    """At the first look, later, and after a restore; also while a normal number is kept back."""
    if kept_back:
        random.gauss(0, 1)
        np.random.randn()
        torch.randn(1)
    states = GeneratorStates()
    assert states.changes() == {}
    assert states.changes() == {}
    states.restore(states.read())
    assert states.changes() == {}


def test_random_is_read_in_full_where_its_memory_is_not_as_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another Python than CPython, or a later one: slower, and as right."""
    monkeypatch.setattr(rng._Python, "_lies_as_in_cpython", lambda self: False)
    states = GeneratorStates()
    assert states.changes() == {}
    random.random()
    assert set(states.changes()) == {"random"}


def test_this_python_keeps_its_generator_where_we_look() -> None:
    """Or else every batch costs 10 µs more, and nobody would notice."""
    assert rng._Python()._memory is not None


@pytest.mark.parametrize("draw", [lambda: random.getrandbits(32), lambda: np.random.bytes(4)], ids=["random", "numpy"])
def test_a_generator_that_came_round_to_the_same_place_has_changed(draw: Callable[[], Any]) -> None:
    states = GeneratorStates()
    for _ in range(rng._WORDS):
        draw()
    assert len(states.changes()) == 1


def test_another_bit_generator_of_numpy_is_followed() -> None:
    """`np.random.set_bit_generator`."""
    before = np.random.get_bit_generator()  # type: ignore[attr-defined]
    np.random.set_bit_generator(np.random.PCG64(3))  # type: ignore[attr-defined]
    try:
        states = GeneratorStates()
        assert states.changes() == {}
        here = states.read()
        expected = np.random.rand(3).tolist()
        assert set(states.changes()) == {"numpy"}
        states.restore(here)
        assert np.random.rand(3).tolist() == expected
    finally:
        np.random.set_bit_generator(before)  # type: ignore[attr-defined]


# --- rng="sample" ---------------------------------------------------------------------------------------------------

words = st.integers(0, 2**64 - 1)


@given(seed=words, number=words)
def test_a_mix_is_64_bits_and_always_the_same(seed: int, number: int) -> None:
    """Whatever goes in."""
    assert 0 <= mix(seed, number) < 2**64
    assert mix(seed, number) == mix(seed, number)


@given(seed=words, number=st.integers(0, 2**63), bit=st.integers(0, 63))
def test_one_bit_changes_about_half_of_the_others(seed: int, number: int, bit: int) -> None:
    """Of the seed or of the number: neighbouring samples have nothing in common."""
    one = mix(seed, number)
    assert 8 <= (one ^ mix(seed ^ 1 << bit, number)).bit_count() <= 56
    assert 8 <= (one ^ mix(seed, number ^ 1 << bit)).bit_count() <= 56


@given(seed=words)
def test_no_two_numbers_of_one_seed_are_mixed_into_the_same(seed: int) -> None:
    """For a fixed seed it is one to one."""
    assert len({mix(seed, number) for number in range(1000)}) == 1000


@given(seed=words, position=st.integers(0, 2**62), draws=st.integers(0, 3))
@settings(max_examples=30)
def test_the_numbers_of_a_sample_depend_on_seed_and_position_alone(seed: int, position: int, draws: int) -> None:
    """Not on what was drawn before, nor on a normal number that was kept back."""
    seed_sample(seed, position)
    expected = numbers()
    for _ in range(draws):
        random.gauss(0, 1), np.random.randn(), torch.randn(1)
    seed_sample(seed, position)
    assert numbers() == expected


@given(seed=words, position=st.integers(0, 2**62), other=st.integers(0, 2**62))
@settings(max_examples=30)
def test_other_samples_have_other_numbers_and_so_has_the_batch(seed: int, position: int, other: int) -> None:
    """In all three generators; the collation of a batch draws none of those of its first sample."""

    def drawn(seed_it: Callable[[int, int], None], where: int) -> tuple[Any, ...]:
        seed_it(seed, where)
        return random.random(), np.random.rand(), torch.rand(2).tolist()

    own = drawn(seed_sample, position)
    assert all(a != b for a, b in zip(own, drawn(seed_collate, position), strict=True))
    if other != position:
        assert all(a != b for a, b in zip(own, drawn(seed_sample, other), strict=True))
