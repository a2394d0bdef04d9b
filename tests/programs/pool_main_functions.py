"""A user's script whose functions and classes live in `__main__`: 64 calls of a lambda, and one of each kind besides.

Usage: pool_main_functions.py METHOD, also as `python - METHOD < pool_main_functions.py`
Runs in: a child of the test process.
"""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import dataclass

import holdfast


@dataclass
class Point:
    x: int

    def moved(self) -> Point:
        return Point(self.x + 1)


def is_point(value: object) -> bool:
    return isinstance(value, Point)


def main(method: str) -> None:
    context = multiprocessing.get_context(method)
    with holdfast.ProcessPoolExecutor(2, context) as pool:
        values = list(pool.map(lambda number: -number, range(64)))
        print(len(values), "in order" if values == [-number for number in range(64)] else values)
        print(pool.submit(is_point, Point(1)).result(), pool.submit(Point(4).moved).result() == Point(5))

        def local(number: int) -> int:
            return number * len(context.get_start_method())

        print(pool.submit(local, 2).result() == 2 * len(method))
    print(sum(holdfast.map(lambda number: number, range(64), num_workers=2, mp_context=context)))


if __name__ == "__main__":
    main(sys.argv[1])
