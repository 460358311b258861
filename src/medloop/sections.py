"""Sections of the settings that concern models and the services beside them; `settings.py` has the others and joins them."""

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

Device = Literal["auto", "cpu", "cuda"]


def _networks(text: str) -> str:
    for part in text.replace(",", " ").split():
        try:
            ip_network(part, strict=False)
        except ValueError:
            raise ValueError("must be addresses or networks, such as 127.0.0.1, 10.0.0.0/8") from None
    return text


Networks = Annotated[str, AfterValidator(_networks)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DatabaseSettings(Section):
    url: SecretStr = Field(SecretStr(""), description="SQLAlchemy URL of the store; empty: SQLite in the workspace (medloop.db).")
    encryption_key: SecretStr = Field(
        SecretStr(""), description="Base64 of the 32 bytes that encrypt stored text; empty: the key file is used."
    )
    key_file: Path | None = Field(None, description="Key file; empty: keys/master.key in the workspace.")
    vectors: Literal["auto", "files"] = Field(
        "auto",
        description="Vectors of documents on PostgreSQL: auto: in the database, unencrypted, where its extension pgvector is "
        "enabled; files: in the workspace.",
    )


class TeacherSettings(Section):
    key: SecretStr = Field(SecretStr(""), description="API key of the teacher; the variable DEEPSEEK_API_KEY sets it too.")


class GatewaySettings(Section):
    """Of the live assistant behind /v1/chat/completions and the chat page."""

    backends: str = Field(
        "",
        description="Model servers that answer, separated by commas: URL or URL#MODEL, such as http://127.0.0.1:8001; "
        "several are replicas of one assistant. Empty: the one that 'medloop api serve --with-model' starts.",
    )
    fallback: str = Field(
        "", description="Model server that is asked when none of them answers: URL#MODEL; its answers carry its own name."
    )
    key: SecretStr = Field(SecretStr(""), description="API key of the model servers; empty: none.")
    allowed_networks: Networks = Field(
        "",
        description="Networks beyond this machine and the private ranges where a model server may stand, such as 203.0.113.0/24.",
    )
    timeout_s: float = Field(60, gt=0, le=3600, description="Seconds without a word after which a model server has failed.")
    deadline_s: float = Field(300, gt=0, le=3600, description="Seconds after which an answer is given up.")
    at_once: int = Field(128, ge=1, le=4096, description="Answers that are written at once; what is above gets a 429.")
    most_tokens: int = Field(
        8192, ge=1, le=1_000_000, description="Tokens that a request may ask for with max_tokens; what is above gets a 400."
    )  # fmt: skip
    answer_tokens: int = Field(
        1024, ge=1, le=1_000_000,
        description="Tokens of an answer at most where the request has no max_tokens; fewer where the model's context ends.",
    )  # fmt: skip
    trace_share: float = Field(
        1.0, ge=0, le=1,
        description="Share of the answers whose trace is stored; those in which a guard acted are always stored.",
    )  # fmt: skip
    model_tools: bool = Field(
        False,
        description="Offer the tools (dose by weight, interactions, triage) to the model, if servers know OpenAI's tool calls; "
        "without it they are called by the user's words alone.",
    )
    prompt_file: Path | None = Field(None, description="Text file with the system prompt of the assistant; empty: none.")
    widget_origins: str = Field(
        "",
        description="Origins of pages that may send feedback with the widget, separated by commas, such as https://chat.example.org.",
    )


class RewardSettings(Section):
    device: Device = Field(
        "cpu", description="Where reward models and the encoders of the relevance rewards run; REWARD_DEVICE sets it too."
    )
    encoder: str = Field(
        "",
        description="Sentence encoder of the relevance rewards, a folder or hub id; "
        "empty: BAAI/bge-m3 if it is installed, else embedded:minilm.",
    )
    cross_encoder: str = Field(
        "",
        description="Cross-encoder of the relevance reward, a folder or hub id; "
        "empty: BAAI/bge-reranker-v2-m3 if it is installed, else none.",
    )
    drift_hours: int = Field(
        24, ge=0, description="Hours between two looks for drift of the rewards with a card, beside the API; 0: never."
    )
    urgency_encoder: str = Field(
        "",
        description="Sentence encoder that helps to judge how urgent an English question is: embedded:minilm; empty: none.",
    )


class RolloutSettings(Section):
    key: SecretStr = Field(SecretStr(""), description="API key of the vLLM server that a run names in rollout_url.")


class EvaluateSettings(Section):
    key: SecretStr = Field(SecretStr(""), description="API key of the models behind a URL that 'medloop eval' asks.")


class RagasSettings(Section):
    """Of the suite `ragas`."""

    python: Path | None = Field(
        None, description="Python of the environment with RAGAS ('make ragas-env'); empty: .venv-ragas/bin/python."
    )
    url: str = Field(
        "",
        pattern=r"^(https?://[^\s@]+)?$",
        description="Judge of RAGAS: a service with OpenAI's chat completions and embeddings, such as http://127.0.0.1:8000/v1.",
    )
    model: str = Field("judge", min_length=1, description="Model of that service that judges.")
    embedding_model: str = Field("bge-m3", min_length=1, description="Model of that service that encodes texts.")
    key: SecretStr = Field(SecretStr(""), description="API key of that service; empty: none.")
    timeout_s: float = Field(120, gt=0, description="Seconds after which a score of RAGAS is missing.")


class RegistrySettings(Section):
    model: str = Field(
        "med-assistant", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="Name of the registered model in MLflow."
    )
    url: str = Field(
        "",
        pattern=r"^(https?://[^@]+)?$",
        description="MLflow server of the registry; empty: MLflow's SQLite store in the workspace (registry/).",
    )
    token: SecretStr = Field(
        SecretStr(""), description="Bearer token of that server; the variable MLFLOW_TRACKING_TOKEN sets it too."
    )


class LangfuseSettings(Section):
    """Of the import from Langfuse and of what is sent there."""

    url: str = Field(
        "",
        pattern=r"^(https?://[^\s@]+)?$",
        description="Address of Langfuse, such as https://cloud.langfuse.com; https unless it is this machine. "
        "LANGFUSE_BASE_URL sets it too.",
    )
    public_key: str = Field(
        "", pattern=r"^[\x21-\x39\x3b-\x7e]*$", description="Public key of the project; LANGFUSE_PUBLIC_KEY sets it too."
    )
    secret_key: SecretStr = Field(SecretStr(""), description="Secret key of the project; LANGFUSE_SECRET_KEY sets it too.")
    environment: str = Field("", max_length=100, description="Import only this environment, such as production; empty: all.")
    score_names: str = Field(
        "user-feedback, user_feedback, feedback, thumbs",
        description="Names of the scores that are a person's feedback; others are not imported.",
    )
    overlap_minutes: int = Field(
        60, ge=1, le=10_080, description="How far each import looks back behind the last one: Langfuse shows some data late."
    )
    send: bool = Field(False, description="Send traces and feedback to Langfuse: the API does it, or 'medloop telemetry send'.")
    send_text: bool = Field(
        False, description="Send questions, answers and comments, too, without identifiers; without it, only numbers and names."
    )


class LabelStudioSettings(Section):
    """Of the exchange with Label Studio: tasks out, annotations back."""

    url: str = Field(
        "",
        pattern=r"^(https?://[^\s@]+)?$",
        description="Address of Label Studio, such as https://labels.example.org; https unless it is this machine. "
        "LABEL_STUDIO_URL sets it too.",
    )
    token: SecretStr = Field(
        SecretStr(""),
        description="Token of a user there: a personal access token or, where its organisation allows them, a legacy token. "
        "LABEL_STUDIO_API_KEY sets it too.",
    )
    project: str = Field(
        "medloop", min_length=1, max_length=40, description="Begins the titles of the projects that are made there."
    )
    raters: str = Field(
        "",
        pattern=r"^(\s*[^\s,=]+=[^\s,=]+\s*(,|$))*$",
        description="Who annotates there and which user that is here, as EMAIL=USER, EMAIL=USER; what others annotate waits.",
    )


class TelemetrySettings(Section):
    """Of traces and feedback as OpenTelemetry spans."""

    otlp_url: str = Field(
        "",
        pattern=r"^(https?://[^\s@]+)?$",
        description="Collector that takes OTLP over HTTP as JSON, such as http://127.0.0.1:4318; empty: none. "
        "https unless it is this machine.",
    )
    otlp_headers: SecretStr = Field(SecretStr(""), description="Headers for it, as NAME=VALUE, NAME=VALUE.")
    send_text: bool = Field(False, description="Put questions, answers and comments into the spans, without identifiers.")


class DeploySettings(Section):
    replicas: str = Field(
        "",
        pattern=r"^(\s*https?://[^\s,@]+\s*(,|$))*$",
        description="Model servers to deploy to, separated by commas, such as http://127.0.0.1:8000; on private addresses only.",
    )
    key: SecretStr = Field(SecretStr(""), description="API key of the model servers; empty: none.")
    folder: Path | None = Field(
        None,
        description="Where the copies of deployed adapters lie, on a disk that the model servers see under the same path; "
        "empty: serving/ in the workspace.",
    )
    wave: int = Field(
        1, ge=1, description="Model servers that get a new version at once; the next ones follow after its canaries."
    )
    canaries: Path | None = Field(None, description="Canary questions (YAML) that replace ours; empty: the bundled ones.")
    answer_s: float = Field(60, gt=0, description="Seconds within which a model server must answer a canary.")
    drain_s: float = Field(
        30, ge=0, description="Longest wait for running answers of the old version before it is unloaded, seconds."
    )
    keep_versions: int = Field(3, ge=1, description="Copies of earlier versions that stay on the disk, to roll back to.")
    check_every_s: float = Field(
        10, ge=0, description="Seconds between two looks at the model servers and the alarms, in the API's process; 0: never."
    )
    probe_every_s: float = Field(30, ge=0, description="Seconds between two red-team probes of the live version; 0: never.")
    probe_questions: int = Field(4, ge=1, description="Canary questions of one probe; the next probe asks the next ones.")
    window_minutes: float = Field(60, gt=0, description="Minutes of live use, back from now, that the alarms count.")
    max_critical_flags: int = Field(
        2, ge=0, description="People whose critical flags in the window roll the live version back; 0: never."
    )
    min_satisfaction: float = Field(
        0.5, ge=0, le=1, description="Share of liked answers in the window below which the live version is rolled back; 0: never."
    )
    min_ratings: int = Field(20, ge=1, description="Judged answers in the window before satisfaction counts.")
    max_error_rate: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Share of failed answers in the window above which the live version is rolled back; 1: never.",
    )
    max_latency_s: float = Field(
        60, ge=0, description="95th percentile of seconds for an answer above which the live version is rolled back; 0: never."
    )
    min_answers: int = Field(20, ge=1, description="Answers in the window before error rate and latency count.")
    rollback_automatically: bool = Field(True, description="Roll back on an alarm; false: only record it.")

    @property
    def urls(self) -> tuple[str, ...]:
        """The model servers by their URL, without `/v1`."""
        return tuple(url.rstrip("/").removesuffix("/v1") for url in self.replicas.replace(",", " ").split())
