"""SCRIPT or MODULE of `holdfast run`: whether Python can run it, before anything runs.

What is refused here would end in an error of Python's own that says less. Nothing is imported to find out.
A ValueError says what is wrong, and the remedy.

Runs in: the command.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import zipfile
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_STDIN = "-"
_LOOKED_AT_BYTES = 1 << 20


def check_script(script: str) -> Path:
    """Refuse what is no script. The directory that its pyproject.toml is looked for from."""
    if script == _STDIN:
        return Path.cwd()
    path = Path(script)
    if path.is_dir():
        if not (path / "__main__.py").is_file():
            raise ValueError(f"{script} is a directory without a __main__.py. Name a script in it, or a module with -m")
        return path.absolute()
    if not path.exists():
        hint = f". Did you mean -m {script}?" if _is_module(script) else ""
        raise ValueError(f"There is no file {script}{hint or ': name a script that exists, or a module with -m'}")
    if not _is_python(path):
        raise ValueError(f"{script} is not a Python file. Name the script that `python` is to run")
    return path.absolute().parent


def check_module(module: str) -> Path:
    """Refuse what `python -m` would not find. The directory that a pyproject.toml is looked for from."""
    spec = _find(module)
    if spec is None:
        raise ValueError(
            f"There is no module {module!r}. It is looked for in {Path.cwd()} and where Python looks; install its "
            f"package, or run this in its directory" + (". A file is run without -m" if Path(module).is_file() else "")
        )
    if spec.submodule_search_locations is not None and _find(f"{module}.__main__") is None:
        raise ValueError(f"{module} is a package without a __main__. Name a module of it, as in {module}.train")
    return Path.cwd()


def check_target(module: str) -> None:
    """Refuse the MODULE of a MODULE:DATASET that is not there. To look for its DATASET would be to import it."""
    is_file = module.endswith(".py")
    if Path(module).is_file() if is_file else _find(module) is not None:
        return
    what = "file" if is_file else "module"
    raise ValueError(f"dataset: there is no {what} {module!r}, which 'holdfast replay' would import from {Path.cwd()}")


def _is_module(name: str) -> bool:
    try:
        return all(part.isidentifier() for part in name.split(".")) and _find(name) is not None
    except (ImportError, ValueError):
        return False


def _find(module: str) -> ModuleSpec | None:
    """As the import system finds it, but without importing the packages it is in."""
    if not all(part.isidentifier() for part in module.split(".")):
        return None
    first, *rest = module.split(".")
    spec = PathFinder.find_spec(first, [os.getcwd()]) or _find_anywhere(first)  # noqa: PTH109
    for end, _ in enumerate(rest, 2):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join(module.split(".")[:end]), list(spec.submodule_search_locations))
    return spec


def _find_anywhere(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ValueError:  # __main__
        return sys.modules[name].__spec__ if name in sys.modules else None


def _is_python(path: Path) -> bool:
    """A file that is called so, an archive, or a text that compiles. Errors in a script are for Python to tell."""
    if path.suffix in {".py", ".pyw", ".pyc"} or zipfile.is_zipfile(path):
        return True
    if not path.is_file():  # a pipe, as in `holdfast run <(...)`
        return True
    with path.open("rb") as file:
        source = file.read(_LOOKED_AT_BYTES)
    try:
        compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
