"""Small random models for tests: real folders in the Hugging Face layout, a few hundred kilobytes each.

    folder = tiny_model(tmp_path / "base")                     # ChatML template, byte-level tokenizer, 2 layers
    folder = tiny_model(tmp_path / "r1", template="thinking")  # a template that opens <think> itself

They know nothing. Tests use them for how models are loaded, prompted, trained and sampled, not for what they answer.
"""

from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModel, AutoModelForCausalLM, BertConfig, LlamaConfig, PretrainedConfig, PreTrainedTokenizerFast

from medloop.contracts import TrainingCard, utc_now
from medloop.models.adapter import fresh_lora, save_adapter
from medloop.models.runtime import keep_quiet
from medloop.models.safety import fingerprint

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEMPLATES: dict[str, str | None] = {
    "chatml": CHATML,
    "none": None,
    # Opens the reasoning itself, as distilled reasoning models do.
    "thinking": CHATML.replace("assistant\n' }}{% endif", "assistant\n<think>\n' }}{% endif"),
    # Removes the reasoning from answers.
    "stripping": CHATML.replace("message['content'] + '<|im_end|>", "message['content'].split('</think>')[-1] + '<|im_end|>"),
    # Has no system role.
    "no-system": "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML,
}
SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>")


def tiny_tokenizer(template: str = "chatml", *, special_think: bool = False) -> Any:
    """One token per byte, so that every text can be written; control tokens of ChatML; `<think>` as added tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    core.add_tokens([AddedToken(tag, special=special_think, normalized=False) for tag in ("<think>", "</think>")])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<|pad|>", eos_token="<|im_end|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = TEMPLATES[template]
    return tokenizer


def tiny_model(
    folder: Path,
    *,
    template: str = "chatml",
    seed: int = 0,
    layers: int = 2,
    width: int = 32,
    config: PretrainedConfig | None = None,
) -> Path:
    """Write a random model and its tokenizer; `config` is for another architecture than Llama (its vocabulary size is set)."""
    keep_quiet()
    tokenizer = tiny_tokenizer(template)
    config = config or LlamaConfig(
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,  # wide enough that greedy answers differ from prompt to prompt
    )
    config.vocab_size = len(tokenizer)
    config.bos_token_id, config.eos_token_id, config.pad_token_id = None, tokenizer.eos_token_id, tokenizer.pad_token_id
    return _save_random(AutoModelForCausalLM, config, tokenizer, folder, seed)


def tiny_adapter(folder: Path, base: Path, **config: Any) -> Path:
    """Write a fresh LoRA adapter on `base`, with a card whose `config` is this, as RL would leave it."""
    model = AutoModelForCausalLM.from_pretrained(base)
    folder.mkdir(parents=True)
    save_adapter(folder, get_peft_model(model, fresh_lora(model, r=2, lora_alpha=4, lora_dropout=0.0)), str(base))
    now = utc_now()
    card = TrainingCard(
        name=folder.name, method="irs", base=str(base), base_sha256=fingerprint(base), inputs={}, config=config, seed=0,
        trainable_parameters=1, total_parameters=2, versions={}, started=now, finished=now,
    )  # fmt: skip
    (folder / "card.json").write_text(card.canonical_json(), encoding="utf-8")
    return folder


def random_adapter(folder: Path, base: Path, seed: int, **lora: Any) -> Path:
    """Write a LoRA adapter on `base` that changes its answers; other seeds give other answers."""
    model = AutoModelForCausalLM.from_pretrained(base)
    adapted = get_peft_model(model, fresh_lora(model, **{"r": 4, "lora_alpha": 16, "lora_dropout": 0.0, **lora}))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.1)
    folder.mkdir(parents=True)
    save_adapter(folder, adapted, str(base))
    return folder


def tiny_encoder(folder: Path, *, seed: int = 0, layers: int = 2, width: int = 32) -> Path:
    """Write a random BERT, one token per byte, whose tokenizer joins two texts as [CLS] a [SEP] b [SEP]."""
    keep_quiet()
    control = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
    core = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, special=True) for token in control])
    ends = [(token, core.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=ends
    )
    names = {f"{token[1:-1].lower()}_token": token for token in control}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False, **names)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
        num_attention_heads=4, max_position_embeddings=512, pad_token_id=tokenizer.pad_token_id, initializer_range=0.2,
    )  # fmt: skip
    return _save_random(AutoModel, config, tokenizer, folder, seed)


def _save_random(kind: Any, config: Any, tokenizer: Any, folder: Path, seed: int) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
