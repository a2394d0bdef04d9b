"""The command line: `main.py` is the group, and every command has a file of its own.

Commands exit with 0 (as promised), 1 (a problem was found) or 2 (wrong usage, or an stdout that cannot be written).
Data goes to stdout, talk to stderr.
torch is not imported here: a command that needs it calls a package below that does.
"""
