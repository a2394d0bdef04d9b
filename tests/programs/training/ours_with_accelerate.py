"""A training script with a loader of ours that is given to Accelerate. Says of what classes the loaders are."""

import inspect

from accelerate import Accelerator
from photos import Photos

import holdfast


def main() -> None:
    loader = holdfast.DataLoader(Photos(), batch_size=8, num_workers=2)
    inspect.getmembers(loader)  # as a debugger looks at it
    kept = holdfast.DataLoader(Photos(), batch_size=8, num_workers=2)
    kept._is_accelerate_prepared = True
    accelerator = Accelerator(cpu=True)
    for name, given in [("prepared", loader), ("again", loader), ("kept", kept)]:
        made = accelerator.prepare(given)  # the line that is warned of
        is_ours = isinstance(made, holdfast.DataLoader)
        print(name, "ours" if is_ours else "torch's", sum(len(y) for _, y in made))


if __name__ == "__main__":
    main()
