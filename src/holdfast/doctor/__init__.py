"""What on this machine would kill a loader, before it does. Works without torch, and where torch itself crashes.

    examination ──for each check, in a thread and within a time──► look() at the machine ──► judge() what was seen
                                                                   the edge                 pure

A check is a file in `checks`: how to add one is in docs/doctor.md.
"""
