"""Train `embedded:tiny` from scratch: tokenizer and model, on the generated corpus. `medloop embedded build`.

A Llama-style model of a few million parameters, small enough for a laptop to train SFT and RL on in minutes. The
recipe is one straight loop: generate rows, train a byte-level BPE, batch by length, AdamW with a cosine, save
bf16 safetensors. Same seed, versions and device: same weights. A GPU shortens it; a CPU does it too.
"""

import math
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import torch
import transformers
from pydantic import Field
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from medloop.contracts.base import Contract, canonical_json, sha256_id, utc_now
from medloop.contracts.model import TrainingCard
from medloop.embedded.corpus import generate
from medloop.embedded.rule_rows import generate_rule_rows
from medloop.models.runtime import keep_quiet, obey_umask
from medloop.store.files.artifacts import new_artifact

START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# Words with their space, single digits, punctuation, line ends; BPE never merges across these borders.
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class BuildConfig(Contract):
    """The recipe. `assets/tiny` was made with the defaults, `assets/obedient` with OBEDIENT."""

    seed: int = Field(20261115, description="Seed of corpus, weights and batch order.")
    rows: int = Field(40_000, ge=100, description="Generated conversations.")
    rule_rows: int = Field(0, ge=0, description="Further ones whose prompt has rules of a codebook that the answer follows.")
    epochs: int = Field(3, ge=1, description="Passes over them.")
    batch_rows: int = Field(64, ge=1, description="Conversations per step.")
    learning_rate: float = Field(1.5e-3, gt=0, description="Peak; linear warm-up over 3 % of the steps, then cosine to a tenth.")
    weight_decay: float = Field(0.05, ge=0)
    vocabulary: int = Field(4096, ge=400, description="BPE tokens, special ones included.")
    hidden: int = Field(256, ge=16)
    layers: int = Field(4, ge=1)
    heads: int = Field(4, ge=1, description="Attention heads; of 64 dimensions each, which every serving engine has kernels for.")
    kv_heads: int = Field(2, ge=1)
    feed_forward: int = Field(512, ge=16)
    context: int = Field(1024, ge=64, description="Longest sequence that the model accepts, in tokens.")


OBEDIENT = {"rule_rows": 40_000, "epochs": 4, "learning_rate": 2e-3}


def build_model(
    config: BuildConfig, target: Path, *, device: str, report: Callable[[int, int, float], None], replace: bool = False
) -> TrainingCard:
    """Run the whole recipe; the folder appears whole or not at all."""
    with new_artifact(target, replace=replace) as folder:
        return build(config, folder, name=target.name, device=device, report=report)


def build(
    config: BuildConfig, folder: Path, *, name: str, device: str, report: Callable[[int, int, float], None]
) -> TrainingCard:
    """Write model, tokenizer and `card.json` into `folder`, which exists and is empty.

    `report(step, steps, loss)` is called every 20 steps.
    """
    keep_quiet()
    torch.manual_seed(config.seed)
    started = utc_now()
    base = generate(config.rows, seed=config.seed, part="base")
    texts = [render(row["messages"]) for row in chain(base, generate_rule_rows(config.rule_rows, seed=config.seed))]
    tokenizer = train_tokenizer(texts, config.vocabulary)
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    model = new_model(config, tokenizer).to(device)
    # Rules have random sentences that nobody can foresee: with them, the system message is read and not learned.
    system = tokenizer.encode("system").ids[0] if config.rule_rows else None
    loss = fit(model, rows, config, report, system=system)
    save(model, tokenizer, folder)
    card = TrainingCard(
        name=name, method="pretrain", base="random weights", base_sha256=sha256_id(canonical_json(config.model_dump())),
        inputs={"corpus": sha256_id("\n".join(texts))}, config=config.model_dump(), seed=config.seed,
        metrics={"loss": round(loss, 4), "tokens": float(sum(map(len, rows)) * config.epochs), "rows": float(len(rows))},
        trainable_parameters=model.num_parameters(), total_parameters=model.num_parameters(),
        versions={"torch": torch.__version__, "transformers": transformers.__version__, "device": device}, started=started,
        finished=utc_now(),
    )  # fmt: skip
    (folder / "card.json").write_text(card.canonical_json() + "\n", encoding="utf-8")
    return card


def render(messages: list[dict[str, str]]) -> str:
    """The chat template by hand (a test compares the two); only for our own text, which contains no control tokens."""
    return "".join(f"{START}{m['role']}\n{m['content']}{END}\n" for m in messages)


def train_tokenizer(texts: list[str], vocabulary: int) -> Tokenizer:
    """Byte-level BPE; no token spans more than 12 bytes (four Chinese characters), so new wordings still fit."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 2,  # <think> and </think> join below
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=12,
        show_progress=False,
    )
    tokenizer.train_from_iterator((t.replace(START, "\n").replace(END, "\n") for t in texts), trainer)
    tokenizer.add_tokens(["<think>", "</think>"])  # plain tokens: they survive decoding
    return tokenizer


def new_model(config: BuildConfig, tokenizer: Tokenizer) -> LlamaForCausalLM:
    end, pad = tokenizer.token_to_id(END), tokenizer.token_to_id(PAD)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=-(-tokenizer.get_vocab_size() // 64) * 64,  # a multiple of 64 suits matrix kernels and vLLM
            hidden_size=config.hidden,
            intermediate_size=config.feed_forward,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            max_position_embeddings=config.context,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=end,
            pad_token_id=pad,
        )
    )


def fit(
    model: LlamaForCausalLM,
    rows: list[list[int]],
    config: BuildConfig,
    report: Callable[[int, int, float], None],
    *,
    system: int | None,
) -> float:
    """Next-token loss, in fp32 (bf16 autocast on a GPU); with the token `system`, the system message is left out of it.

    Returns the mean loss of the last 50 steps.
    """
    device = model.device
    steps = config.epochs * math.ceil(len(rows) / config.batch_rows)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(step, steps))
    last: list[float] = []
    model.train()
    for step, batch in enumerate(batches(rows, config, model.config.pad_token_id), start=1):
        ids = batch.to(device)  # (B, T)
        labels = ids.masked_fill(
            (ids == model.config.pad_token_id) | system_message(ids, model.config.eos_token_id, system), -100
        )
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss = model(input_ids=ids, attention_mask=(ids != model.config.pad_token_id).long(), labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0 or step == steps:
            last = [*last[-2:], loss.item()]
            report(step, steps, last[-1])
    return sum(last) / len(last)


def system_message(ids: torch.Tensor, end: int, system: int | None) -> torch.Tensor:
    """Where a row has its system message, which begins with the token `system`; nowhere without that."""
    ends = (ids == end).int().argmax(dim=1, keepdim=True)
    inside = torch.arange(ids.shape[1], device=ids.device)[None] <= ends
    return inside & (ids[:, 1:2] == (-1 if system is None else system))


def batches(rows: list[list[int]], config: BuildConfig, pad: int) -> Iterator[torch.Tensor]:
    """Every row once per epoch, in batches of similar length; each epoch has its own order of batches."""
    draw = torch.Generator().manual_seed(config.seed)
    for _ in range(config.epochs):
        order = torch.randperm(len(rows), generator=draw).tolist()
        pool = 50 * config.batch_rows  # sort within pools, so that an epoch does not run from short to long
        chunks = []
        for start in range(0, len(order), pool):
            by_length = sorted(order[start : start + pool], key=lambda i: len(rows[i]))
            chunks += [by_length[i : i + config.batch_rows] for i in range(0, len(by_length), config.batch_rows)]
        for number in torch.randperm(len(chunks), generator=draw).tolist():
            longest = max(len(rows[i]) for i in chunks[number])
            yield torch.tensor([rows[i] + [pad] * (longest - len(rows[i])) for i in chunks[number]])


def learning_rate_factor(step: int, steps: int) -> float:
    warm = max(1, int(0.03 * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, additional_special_tokens=[START],
        chat_template=CHAT_TEMPLATE, model_max_length=model.config.max_position_embeddings, clean_up_tokenization_spaces=False,
        padding_side="left",
    )  # fmt: skip
    wrapped.save_pretrained(folder)
    model.to(torch.bfloat16).save_pretrained(folder)
    obey_umask(folder)
