"""A training script of Lightning's: the Trainer has the loop, and may make the loaders anew. Prints its losses."""

import warnings

import lightning
import torch
from photos import Photos
from torch.utils.data import DataLoader


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        print(f"loss {loss.item():.6f}")
        return loss

    def validation_step(self, batch, number):
        x, y = batch
        print(f"validation {torch.nn.functional.mse_loss(self.layer(x), y).item():.6f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def train_dataloader(self):
        return DataLoader(Photos(), batch_size=8, shuffle=True, num_workers=2)


def main() -> None:
    warnings.simplefilter("ignore")
    lightning.seed_everything(0, workers=True)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        overfit_batches=0,
    )
    trainer.fit(Model(), val_dataloaders=DataLoader(Photos(), batch_size=24, num_workers=1))
    print("done")


if __name__ == "__main__":
    main()
