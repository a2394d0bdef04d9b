"""One file per cause: a pure function from evidence to a diagnosis, or None where its signs are not there.

A cause is a module with a `NAME`, a docstring whose first line says what happened and whose "Signs:" paragraph says how
it is told, and `diagnose(evidence)`. Causes do not know each other: `holdfast.diagnosis.engine` ranks what they say.
A new one is added to the table there, and gets its page in docs/failures (CONTRIBUTING.md, "How to add a cause").
"""
