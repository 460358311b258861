"""Train the network that finds English names by their place (src/medloop/assets/phi/words_en.npz).

    python tools/train_phi_words.py --carriers texts.jsonl.gz ...      # same texts, seed and torch: same file

Texts and names are those of the tagger (tools/phi_corpus.py). Carriers are JSON lines of medical texts; only even rows are used.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import hashlib
import random
import time
from pathlib import Path

import numpy as np
import torch
from phi_batches import Row, batches
from phi_corpus import Maker, sentences
from torch import nn

from medloop.privacy.phi.english import network, tagger
from medloop.privacy.phi.find import find_structured
from medloop.privacy.phi.normalize import MASK

OUT = Path(__file__).parent.parent / "src/medloop/assets/phi/words_en.npz"
WIDTH, HIDDEN, LONGEST, MOST = 24, 64, 90, 9  # MOST: features of a word
DROPOUT, HIDDEN_WORDS = 0.15, 0.1  # share of hidden units, and of names whose word and letters are not shown
MISSED, BATCH = 2.0, 128


class Net(nn.Module):
    """As `network.WordNetwork`, which computes the same with numpy."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(network.SIZE + 1, WIDTH, mode="sum", padding_idx=network.SIZE)
        self.layers = nn.ModuleList(
            nn.Conv1d(WIDTH if not number else HIDDEN, HIDDEN, width, dilation=dilation, padding=dilation * (width // 2))
            for number, (width, dilation) in enumerate(network.LAYERS)
        )
        self.last, self.drop = nn.Linear(HIDDEN, 1), nn.Dropout(DROPOUT)
        nn.init.normal_(self.table.weight, std=0.3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:  # (B, T, MOST) -> (B, T)
        batch, longest, most = rows.shape
        inside = (rows[:, :, 0] < network.SIZE)[:, None, :].float()
        hidden = self.table(rows.reshape(-1, most)).reshape(batch, longest, WIDTH).transpose(1, 2) * inside
        for number, layer in enumerate(self.layers):
            new = torch.relu(layer(hidden)) * inside
            hidden = self.drop(new if not number else hidden + new)
        return self.last(hidden.transpose(1, 2))[:, :, 0]


def make_rows(maker: Maker, count: int, rng: random.Random) -> list[Row]:
    """Rows of the table for each token, and whether it is part of a name."""
    rows = list[Row]()
    while len(rows) < count:
        text, spans = maker.text()
        if rng.random() < 0.2:  # some identifiers are placeholders already
            for start, end, _ in spans:
                if rng.random() < 0.6:
                    text = text[:start] + MASK * (end - start) + text[end:]
        tokens = tagger.tokens(text, find_structured(text))[:LONGEST]
        if not tokens:
            continue
        ids = np.full((len(tokens), MOST), network.SIZE, np.int64)
        tags = np.zeros(len(tokens), np.float32)
        for place, token in enumerate(tokens):
            tags[place] = token.word[0] != MASK and any(
                start <= token.start and token.end <= end and tag == "NAME" for start, end, tag in spans
            )
            numbers = network.rows_of(token.word)
            if tags[place] and rng.random() < HIDDEN_WORDS and len(numbers) == MOST:
                numbers = numbers[1:4]  # tier and shape alone: where it stands must do
            ids[place, : len(numbers)] = numbers
        rows.append((ids, tags))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carriers", type=Path, nargs="*", default=[])
    parser.add_argument("--texts", type=int, default=40_000, help="texts made for each epoch")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=20_265)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    carriers = sentences(args.carriers)
    maker, began = Maker(args.seed, carriers), time.monotonic()
    rng, order = np.random.default_rng(args.seed), random.Random(args.seed)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=args.epochs * (args.texts // BATCH + 1))
    for epoch in range(args.epochs):
        total = 0.0
        for ids, tags in batches(make_rows(maker, args.texts, order), rng, BATCH, network.SIZE, -1):
            optimizer.zero_grad()
            losses = nn.functional.binary_cross_entropy_with_logits(net(ids), tags.clamp(min=0), reduction="none")
            loss = (losses * (tags >= 0) * (1 + (MISSED - 1) * (tags == 1))).sum() / (tags >= 0).sum()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total * BATCH / args.texts:.4f}, {time.monotonic() - began:.0f} s", flush=True)
    weights = {"table": net.table.weight[: network.SIZE], "last": net.last.weight.T, "last_bias": net.last.bias}
    for number, layer in enumerate(net.layers):
        weights |= {f"layer{number}": layer.weight.permute(2, 1, 0), f"bias{number}": layer.bias}
    np.savez(args.out, **{name: array.detach().numpy().astype(np.float16) for name, array in weights.items()})
    print(f"{args.out.stat().st_size / 1e6:.2f} MB, sha256 {hashlib.sha256(args.out.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
