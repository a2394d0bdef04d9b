"""A training script with torch alone: two epochs, a loader with workers and one without. Prints its losses."""

import sys

import torch
import torch.utils.data
from photos import Photos


class Loader(torch.utils.data.DataLoader):
    """As projects have them."""

    def __init__(self, dataset, **options):
        self.device = "mine"
        super().__init__(dataset, batch_size=8, **options)


def train(model: torch.nn.Module, loader: torch.utils.data.DataLoader) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.6f}")


def main() -> None:
    method = sys.argv[1] if len(sys.argv) > 1 else None
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    loader = Loader(Photos(), shuffle=True, num_workers=2, multiprocessing_context=method)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert loader.device == "mine"
    for _ in range(2):
        train(model, loader)
    labels = torch.arange(4.0)
    print([y.item() for y in torch.utils.data.DataLoader(labels, num_workers=0)])
    print("done")


if __name__ == "__main__":
    main()
