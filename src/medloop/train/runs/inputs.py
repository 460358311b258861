"""The files that a run reads, and the models it starts from. No torch: what is missing, damaged or wrong is told at once.

A name is looked up from here, then from the workspace; without a name the file is where the stage before it puts it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from medloop.contracts import ModelRef
from medloop.contracts.dataset import SPLIT_FILES
from medloop.errors import InputError
from medloop.models.find import parse_model, resolve, resolve_chat_model
from medloop.settings import Settings
from medloop.store.files.answer_lines import is_answered, read_conversations
from medloop.store.files.artifacts import verify_if_sealed
from medloop.train.configs.preference_config import DPOConfig, KTOConfig, PreferenceConfig
from medloop.train.configs.reward_model_config import RewardModelConfig
from medloop.train.configs.rl_config import RLConfig
from medloop.train.configs.run_config import RunConfig
from medloop.train.configs.sft_config import SFTConfig
from medloop.train.examples.pairs import check_both_sides, read_pairs, split_by_prompt
from medloop.train.examples.thumbs import check_both_kinds, read_thumbs


def check_inputs(config: RunConfig, settings: Settings) -> None:
    """Raise the error of the first model or file that is missing, damaged or of the wrong kind; every line is read."""
    match config:
        case RLConfig():
            resolve_chat_model(config.ref, settings)
            for path in _intact(prompt_files(config, settings).values()):
                _read(path)
        case PreferenceConfig():
            resolve_chat_model(ModelRef(base=config.model, adapter=config.adapter), settings)
            files = pair_files(config, settings)
            for role, path in zip(files, _intact(files.values()), strict=True):
                if role == "replay":
                    _check_answers(path)
                else:
                    _check_preferences(path, config)
        case RewardModelConfig():
            resolve(ModelRef(base=config.model), settings)
            if config.reference is not None:
                resolve_chat_model(parse_model("reference", config.reference), settings)
            sources = preference_files(config, settings)
            pairs = [pair for path in _intact(sources) for pair in read_pairs(path)]
            check_both_sides(sources[0], *split_by_prompt(pairs, config.test_share, config.seed), "pairs")
        case SFTConfig():
            resolve_chat_model(ModelRef(base=config.model, adapter=config.adapter), settings)
            for role, path in sft_files(config, settings).items():
                if role != "dev" or config.dev_rows:
                    _check_answers(*_intact([path]))


def _intact(paths: Iterable[Path]) -> Iterator[Path]:
    """The files, each checked against the manifest of its folder, where that has one."""
    for path in paths:
        verify_if_sealed(path.parent)
        yield path


def _read(path: Path) -> tuple[int, int]:
    """Conversations in a file, and how many of them have an answer; the first bad line raises its error."""
    lines = [is_answered(line.conversation) for line in read_conversations(path)]
    return len(lines), sum(lines)


def _check_answers(path: Path) -> None:
    count, answered = _read(path)
    if not answered:
        raise InputError(f"{path} has no usable example ({count:,} without an answer)", "Check the file")


def _check_preferences(path: Path, config: PreferenceConfig) -> None:
    if isinstance(config, KTOConfig):
        sides = split_by_prompt(read_thumbs(path).thumbs, config.test_share, config.seed)
        check_both_sides(path, *sides, "rows")
        check_both_kinds(path, *sides)
    else:
        train, test = split_by_prompt(read_pairs(path), config.test_share, config.seed)
        check_both_sides(path, train, test or getattr(config, "replay_data", None) or (), "rows")  # the replay is held out, too


def sft_files(config: SFTConfig, settings: Settings) -> dict[str, Path]:
    """The training file, the file of the replay if one is named, and the dev file if there is one."""
    processed = settings.workspace.processed
    train = settings.find(config.data) if config.data else processed / SPLIT_FILES["train"]
    if not train.is_file():
        raise InputError(f"There is no training file {train}", "Make it with: medloop data prepare, or name one with --data")
    files = {"train": train}
    if config.replay_data:
        files["replay"] = _replay_file(config.replay_data, settings)
    dev = settings.find(config.dev_data) if config.dev_data else processed / SPLIT_FILES["dev"]
    if config.dev_data or (config.data is None and dev.is_file() and dev.stat().st_size):
        files["dev"] = dev
    return files


def _replay_file(name: str, settings: Settings) -> Path:
    path = settings.find(name)
    if not path.is_file():
        raise InputError(f"There is no file of replay {path}", "Name a file of conversations with --replay-data")
    return path


def pair_files(config: PreferenceConfig, settings: Settings) -> dict[str, Path]:
    """The file of pairs or thumbs, and the file of the replay if one is named."""
    files = {"preference": preference_file(config, settings)}
    if isinstance(config, DPOConfig) and config.replay_data:
        files["replay"] = _replay_file(config.replay_data, settings)
    return files


def preference_file(config: PreferenceConfig | RewardModelConfig, settings: Settings) -> Path:
    """The file of pairs; for KTO the thumbs, where there are some."""
    folder = settings.workspace.preferences
    if config.data is not None:
        path = settings.find(config.data)
    elif isinstance(config, KTOConfig) and (folder / "thumbs.jsonl").is_file():
        path = folder / "thumbs.jsonl"
    else:
        path = folder / "preferences.jsonl"
    if not path.is_file():
        raise InputError(
            f"There is no file of preferences {path}", "Name one with --data, or build it from feedback: medloop data build"
        )
    return path


def preference_files(config: RewardModelConfig, settings: Settings) -> list[Path]:
    """The file of pairs, then the extra ones; each counts once."""
    extra = [config.model_copy(update={"data": name}) for name in config.extra_data]
    return list(dict.fromkeys(preference_file(part, settings) for part in (config, *extra)))


def prompt_files(config: RLConfig, settings: Settings) -> dict[str, Path]:
    """The files of prompts by role; a relative name is looked up from here, then from the workspace."""
    prompts = settings.find(config.prompts) if config.prompts else settings.workspace.rl / "training_prompts.jsonl"
    if not prompts.is_file():
        raise InputError(
            f"There is no file of questions {prompts}", "Make it with: medloop data prompts, or name one with --prompts"
        )
    files = {"prompts": prompts}
    if config.held_out_n:
        held_out = settings.find(config.held_out) if config.held_out else settings.workspace.processed / SPLIT_FILES["dev"]
        if not held_out.is_file():
            raise InputError(
                f"There is no file of held-out questions {held_out}", "Name one with --held-out, or set held_out_n=0"
            )
        files["held_out"] = held_out
    return files
