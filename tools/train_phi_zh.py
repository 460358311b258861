"""Train the network that finds Chinese names (src/medloop/assets/phi/hanzi.npz) and judge it on genres it has not seen.

    python tools/train_phi_zh.py --carriers texts.jsonl.gz ...                 # same texts, seed and torch: same file
    python tools/train_phi_zh.py --carriers ... --judge                        # a fold for each genre: none of it in training

Carriers are JSON lines of medical texts without patients (docs/stages/privacy.md names ours); only their even rows are used.
One processor thread, so that sums are made in one order.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from phi_corpus_zh import Maker, Span, sentences
from torch import nn

from medloop.privacy.phi.chinese import names as chinese_names
from medloop.privacy.phi.normalize import fold

OUT = Path(__file__).parent.parent / "src/medloop/assets/phi/hanzi.npz"
WIDTH, HIDDEN, LONGEST = 32, 64, 160
DROP, UNKNOWN, MISSED = 0.15, 0.04, 2.0  # a missed character of a name counts as much as so many false alarms
BATCH = 64
Row = tuple[np.ndarray, np.ndarray]


class Net(nn.Module):
    """Three convolutions that see eight characters to each side; `hanzi.Names` computes the same with numpy."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(size, WIDTH, padding_idx=0)
        self.layers = nn.ModuleList(
            nn.Conv1d(WIDTH if not at else HIDDEN, HIDDEN, width, dilation=gap, padding=gap * (width // 2))
            for at, (width, gap) in enumerate(chinese_names.LAYERS)
        )
        self.last, self.drop = nn.Linear(HIDDEN, 3), nn.Dropout(DROP)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:  # (B, T) -> (B, T, 3)
        inside = (ids > 0)[:, None, :].float()  # behind the end of a text is nothing, not even a layer's constant
        held = self.drop(self.table(ids)).transpose(1, 2)
        for at, layer in enumerate(self.layers):
            new = torch.relu(layer(held)) * inside
            held = self.drop(new if not at else held + new)
        return self.last(held.transpose(1, 2))


def letters(maker: Maker, count: int) -> np.ndarray:
    """Characters that occur at least three times, as the ids count them."""
    seen = Counter(char for _ in range(count) for char in set(maker.text()[0]) if chinese_names.is_own(char))
    for text in maker.carriers:
        seen.update(set(text))
    kept = sorted(char for char, times in seen.items() if times >= 3 and chinese_names.is_own(char))
    return np.array([ord(char) for char in kept if ord(char) < 0x10000], dtype=np.uint16)


def row(table: np.ndarray, text: str, spans: Sequence[Span]) -> Row:
    ids, places = chinese_names.ids_of(text, table)
    tags = np.zeros(len(text), dtype=np.int64)
    for a, b in spans:
        tags[a:b], tags[a] = 2, 1
    return ids[:LONGEST], tags[places][:LONGEST]


def batches(rows: list[Row], dice: np.random.Generator) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Rows of about the same length together, in random order."""
    rows = sorted((rows[at] for at in dice.permutation(len(rows))), key=lambda one: len(one[0]))
    out = []
    for at in range(0, len(rows), BATCH):
        part = rows[at : at + BATCH]
        long = max(len(ids) for ids, _ in part)
        ids, tags = np.zeros((len(part), long), np.int64), np.full((len(part), long), -100, np.int64)
        for i, (these, those) in enumerate(part):
            ids[i, : len(these)], tags[i, : len(those)] = these, those
        hide = (dice.random(ids.shape) < UNKNOWN) & (ids > chinese_names.UNKNOWN)
        ids[hide] = chinese_names.UNKNOWN
        out.append((torch.from_numpy(ids), torch.from_numpy(tags)))
    return [out[at] for at in dice.permutation(len(out))]


def train(maker: Maker, texts: int, epochs: int, seed: int, device: str = "cpu") -> dict[str, np.ndarray]:
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(device == "cpu")
    dice, began = np.random.default_rng(seed), time.monotonic()
    codes = letters(maker, 20_000)
    table = chinese_names.table_of(codes)
    net = Net(chinese_names.FIRST + len(codes)).to(device)
    steps = epochs * (texts // BATCH + 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
    plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    loss_of = nn.CrossEntropyLoss(weight=torch.tensor([1.0, MISSED, MISSED], device=device), label_smoothing=0.01)
    for epoch in range(epochs):
        rows = [one for one in (row(table, *maker.text()) for _ in range(texts)) if len(one[0])]
        net.train()
        total = 0.0
        for ids, tags in batches(rows, dice):
            optimizer.zero_grad()
            loss = loss_of(net(ids.to(device)).reshape(-1, 3), tags.to(device).reshape(-1))
            loss.backward()
            optimizer.step()
            plan.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total * BATCH / texts:.4f}, {time.monotonic() - began:.0f} s", flush=True)
    return weights_of(net, codes)


def weights_of(net: Net, codes: np.ndarray) -> dict[str, np.ndarray]:
    """Half precision and in the order of axes in which they are used."""
    held = {"codes": codes, "table": net.table.weight, "last": net.last.weight.T, "last_bias": net.last.bias}
    for at, layer in enumerate(net.layers):
        held |= {f"layer{at}": layer.weight.permute(2, 1, 0), f"bias{at}": layer.bias}
    return {name: one if name == "codes" else one.detach().cpu().numpy().astype(np.float16) for name, one in held.items()}


def judge(weights: dict[str, np.ndarray], maker: Maker, count: int, free: Sequence[str]) -> str:
    """Whole names found in these texts, share of characters taken without need, and finds in sentences without names."""
    names = chinese_names.Names(weights)
    hits = total = taken = right = 0
    for _ in range(count):
        text, spans = maker.template()
        found = np.zeros(len(text), bool)
        for a, b in names.find(fold(text))[0]:
            found[a:b] = True
        hits += sum(bool(found[a:b].all()) for a, b in spans)
        total += len(spans)
        taken += int(found.sum())
        right += sum(int(found[a:b].sum()) for a, b in spans)
    alarms = sum(len(names.find(fold(text))[0]) for text in free)
    found_whole, precision = hits / max(1, total), right / max(1, taken)
    return f"names whole {found_whole:.4f} of {total}, precision {precision:.3f}, alarms {alarms} in {len(free)}"


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--carriers", type=Path, nargs="*", default=[], help="JSON lines of medical texts")
    args.add_argument("--texts", type=int, default=60_000, help="texts made for each epoch")
    args.add_argument("--epochs", type=int, default=8)
    args.add_argument("--seed", type=int, default=20_263)
    args.add_argument("--without", nargs="*", default=[], help="genres left out")
    args.add_argument("--judge", nargs="*", default=None, help="train once for each fold (genres joined by +; default: one each)")
    args.add_argument("--device", default="cpu", help="cuda for quick folds; the shipped file is made on the processor")
    args.add_argument("--out", type=Path, default=OUT)
    chosen = args.parse_args()
    carriers, free = sentences(chosen.carriers, "train"), sentences(chosen.carriers, "dev")[::3]
    print(f"{len(carriers)} sentences carry, {len(free)} are for judging")
    if chosen.judge is not None:
        for part in chosen.judge or Maker(0).genres:
            left = [*chosen.without, *part.split("+")]
            weights = train(
                Maker(chosen.seed, carriers, left, half="seen"), chosen.texts, chosen.epochs, chosen.seed, chosen.device
            )
            if chosen.out != OUT:
                np.savez(f"{chosen.out}.{fold}.npz", **weights)
            for genre in fold.split("+"):
                print(genre, judge(weights, Maker(1, free, only=[genre], half="unseen"), 1500, free), flush=True)
        return
    weights = train(Maker(chosen.seed, carriers, chosen.without), chosen.texts, chosen.epochs, chosen.seed, chosen.device)
    np.savez(chosen.out, **weights)
    print(f"{chosen.out.stat().st_size / 1e6:.2f} MB, sha256 {hashlib.sha256(chosen.out.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
