"""`python -m holdfast`: the command line, where the `holdfast` script is not on the path.

Runs in: main process.
"""

from holdfast.cli.main import main

if __name__ == "__main__":
    main(prog_name="holdfast")
