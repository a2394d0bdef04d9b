"""A training script of the Hugging Face Trainer, on a tiny model with random weights. Prints its losses."""

import sys

import torch
from photos import Photos
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments


class Samples(Photos):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return {"x": x, "labels": y}


class Model(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(4, 1)
        self.post_init()

    def _init_weights(self, module):
        pass

    def forward(self, x, labels=None):
        made = self.layer(x)
        loss = torch.nn.functional.mse_loss(made, labels)
        if self.training:
            print(f"loss {loss.item():.6f}")
        return {"loss": loss, "logits": made}


def main() -> None:
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=sys.argv[1],
        num_train_epochs=1,
        per_device_train_batch_size=8,
        dataloader_num_workers=2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(model=Model(PretrainedConfig()), args=arguments, train_dataset=Samples())
    trainer.train()
    trainer.evaluate(Samples())
    print("done")


if __name__ == "__main__":
    main()
