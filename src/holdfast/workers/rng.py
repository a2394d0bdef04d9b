"""The random numbers of a worker: taken up where a lost one left them, or made to depend on the sample alone.

    rng="worker"   torch's way: one stream per worker. Each header carries the generators that changed since the last,
                   and a replacement starts from them.
    rng="sample"   every sample is seeded by (seed, epoch, position), so its numbers do not depend on workers at all.

Three global generators: torch's, `random`'s and numpy's. To read the last two is slow (10 and 60 µs), to compare some
words of their memory is not (0.2 µs).
Runs in: worker process; the seeding of samples also in the main process, without workers.
"""

from __future__ import annotations

import ctypes
import pickle
import random
from typing import Any, Protocol

import numpy as np
import numpy.random  # numpy imports it at first use: here once, and not in each worker that is forked (6 ms)
import torch

States = dict[str, bytes]
"""Generator name to its pickled state; opaque outside this module."""

_WORDS = 624
_TWISTER_BYTES = (_WORDS + 1) * 4  # a Mersenne twister: its words and its position
_OBJECT_HEAD = object.__basicsize__


def _memory(address: int) -> memoryview:
    """A twister's words and its position, in the order in which they lie there.

    A number drawn moves the position; after the last word all of them are made anew, so that a few tell a change.
    """
    return memoryview((ctypes.c_uint32 * (_WORDS + 1)).from_address(address)).cast("B").cast("I")


class _Generator(Protocol):
    def peek(self) -> object:
        """Something that differs when the state does."""

    def read(self) -> object: ...

    def write(self, state: Any) -> None: ...


class _Torch:
    def peek(self) -> object:
        return torch.default_generator.get_state().numpy().tobytes()

    read = peek

    def write(self, state: Any) -> None:
        torch.default_generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


class _Python:
    def __init__(self) -> None:
        self._generator: Any = random.getstate.__self__  # type: ignore[attr-defined]
        self._address = id(self._generator) + _OBJECT_HEAD
        self._memory = _memory(self._address) if self._lies_as_in_cpython() else None

    def _lies_as_in_cpython(self) -> bool:
        if random.Random.__basicsize__ < _OBJECT_HEAD + _TWISTER_BYTES:
            return False
        seen = np.frombuffer(ctypes.string_at(self._address, _TWISTER_BYTES), dtype=np.uint32).tolist()
        *words, position = random.getstate()[1]
        return bool(seen == [position, *words])

    def peek(self) -> object:
        memory = self._memory
        if memory is None:
            return self.read()
        return memory[0], memory[1], memory[2], memory[3], self._generator.gauss_next

    def read(self) -> object:
        return random.getstate()

    def write(self, state: Any) -> None:
        random.setstate(state)


class _Numpy:
    def __init__(self) -> None:
        self._has_gauss = True  # the second of a pair of normal numbers lies outside of what we peek at; unknown yet
        self._twister: object = None  # whose memory we know; the user may put another generator in its place
        self._memory = memoryview(b"")

    def peek(self) -> object:
        generator = np.random.get_bit_generator()  # type: ignore[attr-defined]  # not in numpy's stubs
        is_twister = generator is self._twister or isinstance(generator, np.random.MT19937)
        if self._has_gauss or not is_twister:
            state = pickle.dumps(self.read())
            if self._has_gauss or not is_twister:
                return state
        if generator is not self._twister:
            self._twister, self._memory = generator, _memory(generator.ctypes.state_address)
        memory = self._memory
        return memory[0], memory[1], memory[2], memory[_WORDS]

    def read(self) -> object:
        state: Any = np.random.get_state(legacy=False)
        self._has_gauss = bool(state.get("has_gauss"))
        return state

    def write(self, state: Any) -> None:
        np.random.set_state(state)
        self._has_gauss = True


class GeneratorStates:
    """The generators of this process, and what was last told of them."""

    def __init__(self) -> None:
        self._generators: dict[str, _Generator] = {"torch": _Torch(), "random": _Python(), "numpy": _Numpy()}
        self._seen = self._peek_all()

    def _peek_all(self) -> dict[str, object]:
        return {name: generator.peek() for name, generator in self._generators.items()}

    def changes(self) -> States:
        """The states of the generators that were used since the last call."""
        changed: States = {}
        for name, generator in self._generators.items():
            seen = generator.peek()
            if seen != self._seen[name]:
                changed[name] = pickle.dumps(generator.read())
                self._seen[name] = generator.peek()
        return changed

    def read(self) -> States:
        """All states."""
        return {name: pickle.dumps(generator.read()) for name, generator in self._generators.items()}

    def restore(self, states: States) -> None:
        """Go on from where another process was."""
        for name, state in states.items():
            self._generators[name].write(pickle.loads(state))
        self._seen = self._peek_all()


# -- rng="sample" ------------------------------------------------------------------------------------------------------

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_COLLATE = 1 << 63  # apart from every position of a sample


def mix(seed: int, number: int) -> int:
    """64 bits that depend on every bit of both, so that neighbouring numbers have nothing in common (splitmix64)."""
    z = (seed + (number + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def seed_sample(epoch_seed: int, position: int) -> None:
    """Seed all generators for the sample at this position of the epoch."""
    seed = mix(epoch_seed, position)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)


def seed_collate(epoch_seed: int, first_position: int) -> None:
    """The same for the batch that starts there."""
    seed_sample(epoch_seed, first_position | _COLLATE)
