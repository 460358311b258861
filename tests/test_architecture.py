"""The import chain of the design, held by reading every import statement; and doors that open without torch."""

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src/medloop"
# Lower ranks never import higher ones; stages share a rank and never import one another.
RANKS = [
    {"errors", "patterns"},
    {"bootstrap", "contracts", "diagram", "isolation", "knobs", "plots", "sections", "service", "settings"},
    {"lexicon", "store", "models", "privacy"},
    {
        *{
            "annotate",
            "client",
            "codebook",
            "data",
            "deploy",
            "embedded",
            "evaluate",
            "experiment",
            "feedback",
            "registry",
            "release",
        },
        *{"reward", "serve", "teacher", "telemetry", "testing", "train"},
    },
    {"loop"},
    {"jobs"},
    {"api"},
    {"web"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}
MAY_MEET = {1, 2}  # contracts and settings may use each other, store and privacy too
HEAVY = {"torch", "transformers", "peft", "trl", "datasets", "accelerate", "pyarrow", "mlflow"}
OPTIONAL = HEAVY | {
    "bitsandbytes",
    "datasketch",
    "fastapi",
    "gguf",
    "google",
    "huggingface_hub",
    "langgraph",
    "matplotlib",
    "opentelemetry",
    "psycopg",
    "pypdf",
    "safetensors",
    "starlette",
    "tokenizers",
    "triton",
    "usearch",
    "uvicorn",
}
LONGEST_FILE = 400  # lines
MOST_LAZY_IMPORTS = 160

FILES = sorted(ROOT.rglob("*.py"))


def module_of(path: Path) -> str:
    """`src/medloop/store/db.py` -> `medloop.store.db`."""
    return ".".join(("medloop", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_of(path): path for path in FILES}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def calls_of(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]


def called(call: ast.Call) -> str:
    """`torch.load` of `torch.load(path)`; empty where no name is called."""
    return ast.unparse(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else ""


@cache
def imports_of(path: Path) -> list[tuple[str, bool]]:
    """(module, at the top of the file?) for each import; imports under TYPE_CHECKING do not run and do not count."""
    tree = tree_of(path)
    imports: list[tuple[str, bool]] = []

    def walk(node: ast.AST, top: bool) -> None:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            imports.extend((alias.name, top) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            imports.extend((name if name in MODULES else node.module or "", top) for name in names)
        for child in ast.iter_child_nodes(node):
            walk(child, top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    walk(tree, True)
    return imports


@cache
def loads(module: str) -> frozenset[str]:
    """The packages outside medloop that importing this module brings in, as far as its files say it at their top."""
    seen, packages, todo = set(), set(), [module]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if not name.startswith("medloop"):
            packages.add(name.split(".")[0])
            continue
        todo += [name.rpartition(".")[0]] if "." in name else []
        todo += [other for other, top in imports_of(MODULES[name]) if top] if name in MODULES else []
    return frozenset(packages)


def part_of(module: str) -> str | None:
    """`medloop.store.db` -> `store`; None for what is not ours or is the package itself."""
    parts = module.split(".")
    return parts[1] if parts[0] == "medloop" and len(parts) > 1 and parts[1] in RANK else None


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_chain(path: Path) -> None:
    mine = part_of(module_of(path))
    if mine is None:
        assert path in {ROOT / "__init__.py", ROOT / "__main__.py"}, f"{path} belongs to no part of the design: add it to RANKS"
        return
    for module, _ in imports_of(path):
        theirs = part_of(module)
        if theirs is None or theirs == mine:
            continue
        if RANK[theirs] == RANK[mine]:
            assert RANK[mine] in MAY_MEET, f"{mine} imports its sibling {theirs}"
        assert RANK[theirs] <= RANK[mine], f"{mine} imports {theirs}, which stands above it"


def test_the_lowest_parts_are_light() -> None:
    for path in FILES:
        if path.relative_to(ROOT).parts[0] in {"contracts", "lexicon", "errors.py", "knobs.py", "settings.py", "cli", "store"}:
            heavy = {m.split(".")[0] for m, _ in imports_of(path)} & HEAVY
            assert not heavy, f"{path.relative_to(ROOT)} imports {heavy}"


def test_sql_is_in_the_store_alone() -> None:
    for path in FILES:
        if path.relative_to(ROOT).parts[0] != "store":
            sql = {m.split(".")[0] for m, _ in imports_of(path)} & {"sqlalchemy", "alembic", "sqlite3", "psycopg"}
            assert not sql, f"{path.relative_to(ROOT)} imports {sql}; write the query in store/records"


def test_imports_stand_at_the_top_unless_they_bring_in_what_is_heavy_or_optional() -> None:
    lazy = [(module_of(path), module) for path in FILES for module, top in imports_of(path) if not top]
    light = {pair for pair in lazy if not loads(pair[1]) & OPTIONAL}
    assert light == {("medloop.cli", "medloop.cli.ui"), ("medloop.cli", "medloop.knobs")}  # `medloop --help` without pydantic
    assert len(lazy) < MOST_LAZY_IMPORTS


def test_no_two_classes_share_a_name() -> None:
    files: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name, []).append(module)
    assert not {name: where for name, where in files.items() if len(where) > 1}


def test_no_file_is_too_long() -> None:
    long = {path.name: lines for path in FILES if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST_FILE}
    assert not long


def test_every_command_loads_without_torch() -> None:
    code = (
        "import importlib, sys\nfrom medloop.cli import COMMANDS\n"
        "for file, _ in COMMANDS.values(): importlib.import_module(f'medloop.cli.{file}')\n"
        f"print(len(COMMANDS), sorted({HEAVY!r} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, heavy = out.stdout.split(maxsplit=1)
    assert int(count) >= 22 and heavy.strip() == "[]"


@pytest.mark.parametrize("door", ["medloop.cli", "medloop.web.app"])
def test_doors_open_without_torch(door: str) -> None:
    code = f"import {door}, sys; print(sorted({HEAVY!r} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['medloop', '--help']\n"
        "from medloop.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('HEAVY', sorted({'torch', 'transformers', 'sqlalchemy', 'pydantic', 'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "HEAVY []"


def test_no_unsafe_loading_anywhere() -> None:
    banned = ("pickle", "dill", "joblib", "cloudpickle", "marshal", "shelve")
    for path in FILES:
        assert not {m.split(".")[0] for m, _ in imports_of(path)} & set(banned), path
        for call in calls_of(path):
            name = called(call)
            assert name not in {"torch.load", "yaml.load", "eval", "exec"}, f"{path}: {name}"
            trusting = [k for k in call.keywords if k.arg == "trust_remote_code" and ast.unparse(k.value) != "False"]
            assert not trusting, f"{path}: trust_remote_code"


def test_print_only_in_the_cli_door() -> None:
    for path in FILES:
        assert not [call for call in calls_of(path) if isinstance(call.func, ast.Name) and call.func.id == "print"], path


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports them by their name alone, so one of the two would not run."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
