"""One check per file: `look` reads what there is, `judge`, a pure function, says what that means.

    NAME        in the output, and in the table of docs/doctor.md, which has the first line of the docstring as well
    LIMIT_S     past it the check is given up
    Facts       what `look` returns and `judge` takes: a test makes its own

Runs in: main process.
"""
