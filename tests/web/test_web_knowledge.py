"""The page of the documents: search as the assistant does it, the cited characters marked, removal by those who may."""

import html

import pytest

from medloop.contracts.knowledge import DocumentPage
from medloop.loop import knowledge
from medloop.serve.agent.documents import ReadDocument
from medloop.serve.agent.library import Library
from medloop.store import audit

TEXT = "# Heat Stroke\n\n## Treatment\n\nDantrolene is NOT effective in heat stroke <script>alert(1)</script> and should not be used."
ZH = {"Accept-Language": "zh"}


@pytest.fixture
def document(settings, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(knowledge, "encoder_place", lambda settings: None)  # words alone: a model would take seconds to load
    read = ReadDocument("Heat & Stroke", "pdf", "heat.pdf", "sha256:" + "b" * 64, (DocumentPage(number=1, text=TEXT),))
    return Library(settings.home).add(read, actor="test").document.document_id


def test_search_and_follow_a_citation(document: str, browse) -> None:
    clinician = browse("clinician")
    page = clinician.get("/web/knowledge?q=Does+dantrolene+help+in+heat+stroke").text
    assert "Dantrolene is NOT effective" in page and "<script>alert" not in page and "Heat &amp; Stroke" in page
    link = html.unescape(page.split(f'href="/web/knowledge/{document}?')[1].split('"')[0])
    cited = clinician.get(f"/web/knowledge/{document}?{link}").text
    marked = cited.split('<mark id="cited">')[1].split("</mark>")[0]
    assert "Dantrolene is NOT effective" in marked and "<script>alert" not in cited
    assert "Not in the documents" in clinician.get("/web/knowledge?q=renew+a+passport+in+Lisbon").text
    assert "资料中没有" in clinician.get("/web/knowledge?q=股票今天涨了吗", headers=ZH).text


def test_only_engineers_and_admins_remove(document: str, browse, store, settings) -> None:
    for name in ("clinician", "annotator", "auditor"):
        assert browse(name).post(f"/web/knowledge/{document}/remove", confirm="yes").status_code == 403
    engineer = browse("engineer")
    engineer.post(f"/web/knowledge/{document}/remove")
    assert Library(settings.home).documents()  # the box was not ticked
    done = engineer.post(f"/web/knowledge/{document}/remove", confirm="yes").text
    assert "was removed" in done and not Library(settings.home).documents()
    assert "knowledge.remove" in audit.recent_actions(store)


def test_what_does_not_exist_is_not_found(document: str, browse) -> None:
    admin = browse("admin")
    for path in ("doc_nothing", f"{document}?page=7", "doc"):
        assert admin.get(f"/web/knowledge/{path}").status_code == 404
    assert admin.get(f"/web/knowledge/{document}?start=5&end=999999").status_code == 200


def test_without_documents_the_page_says_how_to_add_some(browse) -> None:
    assert "medloop knowledge add FILE" in browse("engineer").get("/web/knowledge").text
