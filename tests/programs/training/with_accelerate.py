"""A training script of Accelerate's: `prepare` makes the loader anew, as a class of its own. Prints its losses."""

import torch
from accelerate import Accelerator
from photos import Photos
from torch.utils.data import DataLoader


def main() -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Photos(), batch_size=8, shuffle=True, num_workers=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        print(f"loss {loss.item():.6f}")
    print("done")


if __name__ == "__main__":
    main()
