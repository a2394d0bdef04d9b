"""Copies what holdfast and its tests need, and a machine without any package index may lack, into one folder.

    python tools/carry.py build/carried
    PYTHONPATH=src:tests:.:build/carried python3 -m pytest -m gpu tests/gpu        (there)

Only what runs on any Python from 3.11 on: pure Python, and libraries for the stable ABI. Not torch, nor numpy.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

NAMES = (
    "click",
    "cloudpickle",
    "iniconfig",
    "markdown_it",
    "mdurl",
    "packaging",
    "platformdirs",
    "pluggy",
    "psutil",
    "pygments",
    "_pytest",
    "pytest",
    "pytest_timeout",
    "rich",
)


def main() -> None:
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in NAMES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            sys.exit(f"{name} is not installed here")
        origin = Path(spec.origin)
        if spec.submodule_search_locations:
            shutil.copytree(origin.parent, target / name, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        else:
            shutil.copy(origin, target)
        for info in origin.parents[1 if spec.submodule_search_locations else 0].glob(f"{name}-*.dist-info"):
            shutil.copytree(info, target / info.name)  # pytest finds its plug-ins by them
    libraries = [path.name for path in target.rglob("*.so") if "abi3" not in path.name]
    if libraries:
        sys.exit(f"not for any Python: {libraries}")
    print(f"{sum(path.stat().st_size for path in target.rglob('*') if path.is_file()) / 1e6:.1f} MB in {target}")


if __name__ == "__main__":
    main()
