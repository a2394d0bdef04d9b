"""What on this machine would kill a loader, before it does: one check per file in `checks`."""
