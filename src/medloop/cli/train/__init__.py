"""`medloop train`: one file per family of methods; `runner.py` shows a run on the terminal."""

import typer

from medloop.cli.train import preference, rl, sft

train_app = typer.Typer(no_args_is_help=True, help="Train a model: SFT, a reward model, DPO, KTO, PPO, GRPO or IRS.")
train_app.command("sft")(sft.train_sft)
train_app.command("reward")(sft.train_reward)
train_app.command("dpo")(preference.train_dpo)
train_app.command("kto")(preference.train_kto)
train_app.command("ppo")(rl.train_ppo)
train_app.command("grpo")(rl.train_grpo)
train_app.command("irs")(rl.train_irs)


def register(app: typer.Typer) -> None:
    app.add_typer(train_app, name="train")
