"""How much memory there is, who uses it, and whom the kernel killed for want of it. Runs in: main | supervisor."""
