"""Imported by every Python that has this directory on its PYTHONPATH: by `holdfast run`, and by what that starts.

Python imports one module of this name, and the user may have one: that is imported too, as if this were not there.
A Python of another environment, where holdfast is not installed, is left as it is.

Runs in: the script's process and those it starts, before anything else.
"""

import os
import sys


def _step_aside() -> None:
    """Take this directory from the path and import the user's module of this name in place of this one, if any."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (pathlib costs every start)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]  # noqa: PTH100
    this = sys.modules.pop(__name__)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, this)


def _begin() -> None:
    try:
        from holdfast.tasks.runner import hook
    except ImportError:
        return
    hook.begin()


try:
    _step_aside()
finally:
    _begin()
