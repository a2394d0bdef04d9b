"""Batches on their way to an accelerator: slots that the device reads itself, and copies made ahead.

    worker ──► slot (registered with the driver once) ──copy engine──► device memory
                 └── used again only when every copy that may read it is done

Workers never import this package. Runs in: main process.
"""
