from torch.utils.data import DataLoader  # before anything else, and by its name

import torch  # isort: skip
from photos import Photos


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in DataLoader(Photos(), batch_size=8, shuffle=True, num_workers=2):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.6f}")
    print("done")


if __name__ == "__main__":
    main()
