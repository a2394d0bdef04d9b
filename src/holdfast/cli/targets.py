"""MODULE:OBJECT on the command line: a dataset, or a function without arguments that makes one.

    my_project.data:train_set       an object of a module that can be imported, also from the current directory
    data.py:make_train_set          the same by the name of its file

A file is imported as the module it is, by its stem, with its directory on the path: so worker processes of every start
method find what is defined in it. A link stands for its file. Code under `if __name__ == "__main__":` does not run.

Runs in: main process.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from difflib import get_close_matches
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import click

from holdfast.diagnosis.wording import error_line

FORM = "MODULE:DATASET"


def load_dataset(target: str) -> Any:
    """The dataset that `target` names. click.UsageError, with the remedy, if there is none."""
    module = _import(target)
    found = _attribute(module, split(target)[1], target)
    dataset = _made(found, target) if _makes_one(found) else found
    if not _is_dataset(dataset):
        raise click.UsageError(
            f"{target} is no dataset, but {_kind(dataset)}: it has neither __getitem__ nor __iter__. "
            f"Name a dataset, or a function without arguments that returns one."
        )
    return dataset


def load_function(target: str) -> Any:
    """What can be called and is named so, such as a collate_fn. click.UsageError, with the remedy, if there is none."""
    found = _attribute(_import(target), split(target)[1], target)
    if not callable(found):
        raise click.UsageError(f"{target} is no function, but {_kind(found)}: it cannot be called.")
    return found


def split(target: str) -> tuple[str, str]:
    """The module, or the path of its file, and the name in it."""
    module, _, name = target.rpartition(":")
    if not module or not name:
        raise click.UsageError(f"{target!r} is not of the form {FORM}, as in my_project.data:train_set.")
    return module, name


def check_module(target: str) -> None:
    """click.UsageError where there surely is no such file or module. No code of the user's is run: it may crash."""
    directory, module = _place(target)
    top = module.partition(".")[0]
    try:
        is_there = PathFinder.find_spec(top, [directory]) is not None or importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):  # whoever imports it will say more
        return
    if not is_there:
        raise _no_module(top, target, directory)


def _place(target: str) -> tuple[str, str]:
    """The directory that is to be on the path, and the module to import from there."""
    module, _ = split(target)
    if not module.endswith(".py"):
        return os.getcwd(), module  # noqa: PTH109 (as Python puts it on its path)
    path = Path(module)
    if not path.is_file():
        raise click.UsageError(f"There is no file {module}, which {target} names.")
    real = path.resolve()
    if real.suffix == ".py" and "." not in real.stem:  # of a link that file is meant, and the modules beside it
        return str(real.parent), real.stem
    if "." in path.stem:
        raise click.UsageError(f"{module} cannot be imported: no module has a dot in its name. Rename it.")
    return str(path.parent.resolve()), path.stem


def _no_module(name: str, target: str, directory: str) -> click.UsageError:
    return click.UsageError(
        f"There is no module {name!r}, which {target} names. It is looked for in {directory} and where "
        f"Python looks; install its package, or run this in its directory."
    )


def _import(target: str) -> Any:
    directory, module = _place(target)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise _no_module(error.name, target, directory) from None
        raise _failed(f"Importing {module} failed", error) from error
    except SystemExit as error:
        raise _exits(f"Importing {module}", error) from error
    except Exception as error:
        raise _failed(f"Importing {module} failed", error) from error
    _check_file(imported, split(target)[0], directory)
    return imported


def _check_file(imported: Any, file: str, directory: str) -> None:
    """Another module of that name may be found first, such as one of Python's own."""
    found = getattr(imported, "__file__", None)
    if not file.endswith(".py") or (found is not None and os.path.realpath(Path(found).parent) == directory):
        return
    other = found or "a module of Python's own"
    raise click.UsageError(
        f"{file} cannot be imported: {other} has the same name, and is found first. Rename the file."
    )


def remembered(target: str) -> str:
    """The same, for a command that is run from another directory: a file by its whole path."""
    module, name = split(target)
    return f"{Path(module).absolute()}:{name}" if module.endswith(".py") else target


def _attribute(module: Any, name: str, target: str) -> Any:
    found = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            near = get_close_matches(part, dir(found), n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"{module.__name__} has no {name!r}, which {target} names.{hint}") from None
    return found


def _makes_one(found: Any) -> bool:
    """A class or a function; an object that can be called and is a dataset as well is one."""
    return isinstance(found, type) or (callable(found) and not _is_dataset(found))


def _made(maker: Any, target: str) -> Any:
    try:
        return maker()
    except SystemExit as error:
        raise _exits(f"{target}()", error) from error
    except Exception as error:
        raise _failed(f"{target}() raised", error) from error


def _failed(what: str, error: Exception) -> click.UsageError:
    return click.UsageError(f"{what}: {error_line(error)}")


def _exits(what: str, error: SystemExit) -> click.UsageError:
    return click.UsageError(
        f"{what} ends the program, by sys.exit({error.code!r}). What a script does when it is run belongs under "
        f'if __name__ == "__main__":'
    )


def _is_dataset(thing: Any) -> bool:
    return not isinstance(thing, type) and (hasattr(type(thing), "__getitem__") or hasattr(type(thing), "__iter__"))


def _kind(thing: Any) -> str:
    return "None" if thing is None else f"an object of {type(thing).__qualname__}"
