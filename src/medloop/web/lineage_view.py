"""The lineage of a record, model or release for people: the drawing and its tables in their language; also as one file."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from medloop import diagram
from medloop.contracts.lineage import LineageEdge, LineageGraph, LineageNode, NodeKind, TaughtRecords
from medloop.web.words import Language, Translator

GROUPS: dict[NodeKind, int] = {
    "record": 0, "records": 0, "file": 1, "dataset": 1, "model": 2, "evaluation": 3, "gate": 4, "version": 5, "release": 6,
    "rule": 1,
    "criterion": 1,
}  # fmt: skip
COLOURS: dict[NodeKind, int] = {
    "record": 5, "records": 5, "file": 4, "dataset": 4, "model": 0, "evaluation": 1, "gate": 2, "version": 3, "release": 2,
    "rule": 3,
    "criterion": 3,
}  # fmt: skip
MOST_DRAWN = 60  # boxes; the table has all


@dataclass(frozen=True)
class LineageView:
    """`groups` are the nodes by kind, in the order of the loop; `edges` are rows of texts; `hidden` were not drawn."""

    drawing: Markup
    answer: str
    groups: list[tuple[str, list[LineageNode]]]
    edges: list[tuple[str, str, str, str]]
    hidden: int


def view(graph: LineageGraph, t: Translator, page: str = "") -> LineageView:
    """`page` is the address of the page, to link every box to its own lineage; without it nothing is linked."""
    nodes = sorted(
        graph.nodes, key=lambda node: (GROUPS[node.kind], node.created is None, node.created and -node.created.timestamp())
    )
    drawn = [graph.subject, *(node for node in nodes if node != graph.subject)][:MOST_DRAWN]
    boxes = [_box(node, graph, t, page) for node in drawn]
    lines = [
        diagram.Line(edge.source, edge.target, _count(edge), _sentence(edge, graph, t), not edge.teaches) for edge in graph.edges
    ]
    svg = diagram.draw(boxes, lines, title=t("lineage_of", name=graph.subject.label), about=t("lineage_drawing_about"))
    groups = [(kind, [node for node in nodes if node.kind == kind]) for kind in GROUPS]
    labels = {node.id: label(node, t) for node in graph.nodes}
    edges = [(labels[edge.source], labels[edge.target], role(edge.role, t), _count(edge)) for edge in graph.edges]
    return LineageView(
        Markup(svg), answer(graph, t), [(kind, members) for kind, members in groups if members], edges, len(nodes) - len(drawn)
    )  # fmt: skip


def answer(graph: LineageGraph, t: Translator) -> str:
    """The question that brings people here, in one sentence; a second one where the graph is only a part."""
    sentence = _answer(graph, t)
    return t.sentences(sentence, t("lineage_truncated", n=f"{graph.truncated:,}")) if graph.truncated else sentence


def _answer(graph: LineageGraph, t: Translator) -> str:
    if graph.subject.kind != "record":
        return t("lineage_from_records", n=f"{graph.records:,}")
    if graph.subject.detail == "erased":
        return t("lineage_erased", n=len(graph.nodes) - 1 + graph.truncated)
    learnt = {edge.target for edge in graph.edges if edge.teaches}
    counts = {kind: sum(node.kind == kind and node.id in learnt for node in graph.nodes) for kind in ("model", "release")}
    datasets = sum(node.kind in ("dataset", "file") for node in graph.nodes)
    return t("lineage_learnt", datasets=datasets, models=counts["model"], releases=counts["release"])


def label(node: LineageNode, t: Translator) -> str:
    if node.kind == "records":
        return t("lineage_records", n=node.label)
    return node.label


def detail(node: LineageNode, t: Translator) -> str:
    """The second line of a box: what it is, and what is wrong with it."""
    words = [t(f"lineage_kind_{node.kind}")]
    if node.detail and node.detail not in (node.kind, "records"):
        words.append(t.or_plain(f"lineage_detail_{node.detail.replace(' ', '_')}", node.detail))
    words += [t.or_plain(f"lineage_flag_{flag}", flag) for flag in node.flags]
    words += [t("lineage_replaced")] if node.replaced else []
    return " · ".join(words)


def role(name: str, t: Translator) -> str:
    return t.or_plain(f"lineage_role_{name.replace(' ', '_')}", name)


def _box(node: LineageNode, graph: LineageGraph, t: Translator, page: str) -> diagram.Box:
    about = f"{label(node, t)}{t('list_comma')}{detail(node, t)}"
    href = f"{page}?{urlencode({'of': node.id})}" if page and node.kind not in ("records", "file") else ""
    return diagram.Box(
        node.id, GROUPS[node.kind], label(node, t), detail(node, t), href, about, COLOURS[node.kind],
        strong=node == graph.subject, dashed=bool(node.flags) or node.replaced,
    )  # fmt: skip


def _count(edge: LineageEdge) -> str:
    return "" if edge.records is None else f"{edge.records:,}"


def _sentence(edge: LineageEdge, graph: LineageGraph, t: Translator) -> str:
    names = {node.id: label(node, t) for node in graph.nodes}
    words = f"{names[edge.source]} → {names[edge.target]}{t('colon')}{role(edge.role, t)}"
    return words if edge.records is None else f"{words}{t('list_comma')}{t('lineage_records', n=_count(edge))}"


@cache
def _templates() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def page_file(graph: LineageGraph, records: TaughtRecords | None, language: Language) -> str:
    """The page as a file of its own, without scripts and links."""
    t = Translator(language)
    template = _templates().get_template("lineage_file.html")
    return template.render(t=t, language=language, graph=graph, view=view(graph, t), records=records, detail=detail)
