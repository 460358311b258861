"""Train the network that finds Chinese names (src/medloop/assets/phi/hanzi.npz) and judge it on genres it has not seen.

    python tools/train_phi_zh.py --carriers texts.jsonl.gz ...                 # same texts, seed and torch: same file
    python tools/train_phi_zh.py --carriers ... --judge                        # a fold for each genre: none of it in training

With `--tagged` and `--reviews` it also learns from contexts of others (tools/phi_contexts_zh.py).
Carriers are JSON lines of medical texts without patients (docs/stages/privacy.md names ours); only their even rows are used.
On the processor it runs on one thread, on an accelerator with deterministic algorithms: sums are computed in one order.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from phi_batches import Row, batches
from phi_contexts_zh import ContextMaker, review_sentences
from phi_corpus_zh import Maker, Span, sentences
from phi_tagged_zh import tagged_sentences
from torch import nn

from medloop.privacy.phi.chinese import names, network
from medloop.privacy.phi.normalize import fold

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS sums in any order
OUT = Path(__file__).parent.parent / "src/medloop/assets/phi/hanzi.npz"
WIDTH, HIDDEN, LONGEST = 32, 64, 160
DROPOUT, UNKNOWN = 0.15, 0.04  # share of hidden units, and of characters shown as unknown
MISSED = 2.0  # a missed character of a name counts as much as so many false alarms
BATCH = 128


class Net(nn.Module):
    """Three convolutions that see eight characters to each side; `network.NameNetwork` computes the same with numpy."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(size, WIDTH, padding_idx=0)
        self.layers = nn.ModuleList(
            nn.Conv1d(WIDTH if not number else HIDDEN, HIDDEN, width, dilation=dilation, padding=dilation * (width // 2))
            for number, (width, dilation) in enumerate(network.LAYERS)
        )
        self.last, self.drop = nn.Linear(HIDDEN, 3), nn.Dropout(DROPOUT)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:  # (B, T) -> (B, T, 3)
        inside = (ids > 0)[:, None, :].float()  # padding stays zero: without this a layer's bias would fill it
        hidden = self.drop(self.table(ids)).transpose(1, 2)
        for number, layer in enumerate(self.layers):
            new = torch.relu(layer(hidden)) * inside
            hidden = self.drop(new if not number else hidden + new)
        return self.last(hidden.transpose(1, 2))


def frequent_codes(maker: Maker, count: int) -> np.ndarray:
    """Codes of the characters that get an id to themselves: those that occur at least three times."""
    counts = Counter(char for _ in range(count) for char in set(maker.text()[0]) if network.has_own_id(char))
    for text in maker.carriers:
        counts.update(set(text))
    chars = sorted(char for char, times in counts.items() if times >= 3 and network.has_own_id(char))
    return np.array([ord(char) for char in chars if ord(char) < 0x10000], dtype=np.uint16)


def make_row(table: np.ndarray, text: str, spans: Sequence[Span]) -> Row:
    ids, offsets = network.ids_of(text, table)
    tags = np.zeros(len(text), dtype=np.int64)
    for start, end in spans:
        tags[start:end], tags[start] = 2, 1
    return ids[:LONGEST], tags[offsets][:LONGEST]


def hide_some(ids: np.ndarray, rng: np.random.Generator) -> None:
    """Show some characters as unknown."""
    ids[(rng.random(ids.shape) < UNKNOWN) & (ids > network.UNKNOWN)] = network.UNKNOWN


def train(
    maker: Maker, texts: int, epochs: int, seed: int, device: str = "cpu", start: Path | None = None
) -> dict[str, np.ndarray]:
    """`start`: weights to go on from, instead of random ones."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    rng, began = np.random.default_rng(seed), time.monotonic()
    codes = frequent_codes(maker, 20_000)
    table = network.id_table(codes)
    net = Net(network.FIRST + len(codes))
    if start:
        go_on(net, codes, dict(np.load(start, allow_pickle=False)))
    net.to(device)
    steps = epochs * (texts // BATCH + 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3 if start else 4e-3, total_steps=steps)
    loss_of = nn.CrossEntropyLoss(weight=torch.tensor([1.0, MISSED, MISSED], device=device), label_smoothing=0.01)
    for epoch in range(epochs):
        rows = [row for row in (make_row(table, *maker.text()) for _ in range(texts)) if len(row[0])]
        net.train()
        total = 0.0
        for ids, tags in batches(rows, rng, BATCH, 0, -100, partial(hide_some, rng=rng)):
            optimizer.zero_grad()
            loss = loss_of(net(ids.to(device)).reshape(-1, 3), tags.to(device).reshape(-1))
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total * BATCH / texts:.4f}, {time.monotonic() - began:.0f} s", flush=True)
    return weights_of(net, codes)


def go_on(net: Net, codes: np.ndarray, weights: dict[str, np.ndarray]) -> None:
    """Put these weights into the network; characters that they do not know stay random."""
    with torch.no_grad():
        old = torch.from_numpy(weights["table"].astype(np.float32))
        net.table.weight[: network.FIRST] = old[: network.FIRST]
        place = {int(code): index for index, code in enumerate(weights["codes"])}
        for index, code in enumerate(codes.tolist()):
            if code in place:
                net.table.weight[network.FIRST + index] = old[network.FIRST + place[code]]
        for number, layer in enumerate(net.layers):
            layer.weight.copy_(torch.from_numpy(weights[f"layer{number}"].astype(np.float32)).permute(2, 1, 0))
            layer.bias.copy_(torch.from_numpy(weights[f"bias{number}"].astype(np.float32)))
        net.last.weight.copy_(torch.from_numpy(weights["last"].astype(np.float32)).T)
        net.last.bias.copy_(torch.from_numpy(weights["last_bias"].astype(np.float32)))


def weights_of(net: Net, codes: np.ndarray) -> dict[str, np.ndarray]:
    """Half precision and in the order of axes in which they are used."""
    weights = {"codes": codes, "table": net.table.weight, "last": net.last.weight.T, "last_bias": net.last.bias}
    for number, layer in enumerate(net.layers):
        weights |= {f"layer{number}": layer.weight.permute(2, 1, 0), f"bias{number}": layer.bias}
    return {
        name: array if name == "codes" else array.detach().cpu().numpy().astype(np.float16) for name, array in weights.items()
    }


def judge(weights: dict[str, np.ndarray], maker: Maker, count: int, free: Sequence[str]) -> str:
    """Recall of whole names, precision by character, and false alarms in sentences without names."""
    model = network.NameNetwork(weights)
    hits = total = removed = right = 0
    for _ in range(count):
        text, spans = maker.template()
        covered = np.zeros(len(text), bool)
        for start, end in names.find(fold(text), network=model)[0]:
            covered[start:end] = True
        hits += sum(bool(covered[start:end].all()) for start, end in spans)
        total += len(spans)
        removed += int(covered.sum())
        right += sum(int(covered[start:end].sum()) for start, end in spans)
    alarms = sum(len(names.find(fold(text), network=model)[0]) for text in free)
    recall, precision = hits / max(1, total), right / max(1, removed)
    return f"names whole {recall:.4f} of {total}, precision {precision:.3f}, alarms {alarms} in {len(free)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carriers", type=Path, nargs="*", default=[], help="JSON lines of medical texts")
    parser.add_argument("--tagged", type=Path, help="words with tags (tools/phi_tagged_zh.py)")
    parser.add_argument("--reviews", type=Path, nargs="*", default=[], help="plain text, a review a line")
    parser.add_argument("--texts", type=int, default=60_000, help="texts made for each epoch")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=20_263)
    parser.add_argument("--without", nargs="*", default=[], help="genres left out")
    parser.add_argument(
        "--judge", nargs="*", default=None, help="one training per fold (genres joined by +; default: each genre)"
    )
    parser.add_argument("--device", default="cpu", help="cuda: the shipped file was made with it")
    parser.add_argument("--start", type=Path, help="weights to go on from")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    carriers, free = sentences(args.carriers, "train"), sentences(args.carriers, "dev")[::3]
    print(f"{len(carriers)} sentences to train on, {len(free)} to judge on")
    if args.judge is not None:
        for genres in args.judge or Maker(0).genres:
            without = [*args.without, *genres.split("+")]
            weights = train(Maker(args.seed, carriers, without, half="seen"), args.texts, args.epochs, args.seed, args.device)
            if args.out != OUT:
                np.savez(f"{args.out}.{genres}.npz", **weights)
            for genre in genres.split("+"):
                print(genre, judge(weights, Maker(1, free, only=[genre], half="unseen"), 1500, free), flush=True)
        return
    maker = Maker(args.seed, carriers, args.without)
    if args.tagged:
        maker = ContextMaker(args.seed, carriers, tagged_sentences(args.tagged), review_sentences(args.reviews))
    weights = train(maker, args.texts, args.epochs, args.seed, args.device, args.start)
    np.savez(args.out, **weights)
    print(f"{args.out.stat().st_size / 1e6:.2f} MB, sha256 {hashlib.sha256(args.out.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
