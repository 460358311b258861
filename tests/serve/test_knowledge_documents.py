"""Documents: what can be read, what is refused and why; pieces keep their headings and their exact characters."""

from pathlib import Path

import pytest
from knowledge_world import CHINESE, GUIDELINE, make_pdf

from medloop.contracts.knowledge import DocumentPage
from medloop.errors import InputError
from medloop.serve.agent import documents
from medloop.serve.agent.chunks import chunk_pages, indexed_text
from medloop.serve.agent.documents import read_file
from medloop.serve.agent.identifiers import personal_spans, replace_spans
from medloop.serve.agent.words import query_words, search_words


def test_pdf_keeps_its_page_numbers(tmp_path: Path) -> None:
    path = make_pdf(
        tmp_path / "a.pdf", ["First page on sepsis, with words enough.", "Second page on stroke, with words enough."], "Two"
    )
    (read,) = read_file(path)
    assert read.title == "Two" and [page.number for page in read.pages] == [1, 2]
    assert "stroke" in read.pages[1].text and "stroke" not in read.pages[0].text


def encrypted(path: Path) -> Path:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(make_pdf(path.with_name("plain.pdf"), ["A page with enough words on it."])))
    writer.encrypt("secret", algorithm="RC4-128")
    with path.open("wb") as file:
        writer.write(file)
    return path


def test_what_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(make_pdf(tmp_path / "b.pdf", ["Words that will be cut off in the middle."]).read_bytes()[:120])
    (tmp_path / "no.pdf").write_bytes(b"hello")
    (tmp_path / "x.docx").write_bytes(b"PK")
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "bad.jsonl").write_text('{"title": "only"}\n')
    cases = {
        encrypted(tmp_path / "locked.pdf"): "is encrypted",
        make_pdf(tmp_path / "scan.pdf", ["", "", "One page with text on it, long enough."]): "2 of 3 pages hold no text",
        broken: "PDF", tmp_path / "no.pdf": "PDF", tmp_path / "x.docx": "cannot be read", tmp_path / "empty.txt": "is empty",
        tmp_path / "bad.jsonl": "line 1: has no 'text'", tmp_path: "cannot be read",
    }  # fmt: skip
    for path, reason in cases.items():
        with pytest.raises(InputError, match=reason):
            list(read_file(path))


def test_limits_on_pages_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_pdf(tmp_path / "a.pdf", ["A page with enough words on it."] * 3)
    monkeypatch.setattr(documents, "MOST_PAGES", 2)
    with pytest.raises(InputError, match="has 3 pages"):
        list(read_file(path))
    monkeypatch.setattr(documents, "MOST_BYTES", 10)
    with pytest.raises(InputError, match="bytes"):
        list(read_file(path))


def test_chunks_hold_exact_characters_under_their_headings() -> None:
    pages = (DocumentPage(number=1, text=GUIDELINE), DocumentPage(number=2, text="It goes on here on the next page."))
    chunks = chunk_pages("doc", pages)
    for chunk in chunks:
        assert pages[chunk.page_index].text[chunk.start : chunk.end] == chunk.text
    dantrolene = next(chunk for chunk in chunks if "Dantrolene" in chunk.text)
    assert dantrolene.headings == ("Heat Stroke", "Treatment")
    assert chunks[-1].page == 2 and chunks[-1].headings == ("Anaphylaxis", "Treatment")  # headings carry over the page
    assert "Heat Stroke > Treatment" in indexed_text("Emergencies", dantrolene)


def test_chinese_headings_and_long_lines() -> None:
    chunks = chunk_pages("doc", [DocumentPage(text=CHINESE), DocumentPage(text="没有标点的长行" * 400)])
    follow_up = next(chunk for chunk in chunks if "第4周" in chunk.text)
    assert follow_up.headings[:2] == ("新型冠状病毒肺炎诊疗", "一、出院标准")
    long = [chunk for chunk in chunks if chunk.page_index == 1]
    assert len(long) > 1 and "".join(chunk.text for chunk in long) == "没有标点的长行" * 400


def test_words_of_both_languages_meet_in_concepts() -> None:
    assert {"发烧", "#fever"} <= set(search_words("孩子发烧")) and "#fever" in search_words("febrile child")
    assert query_words("What is the dose of insulin?") == ["dose", "insulin", "#blood_sugar"]
    assert "怎么" not in query_words("发烧怎么办")


def test_identifiers_of_patients_count_and_names_of_parasites_do_not() -> None:
    letter = "出院小结：患者王芳，身份证号310104194903018466，联系电话13800138000。王芳术后恢复良好。"
    spans = personal_spans(letter)
    cleaned = replace_spans(letter, spans)
    assert {span.kind for span in spans} >= {"ID", "NAME"} and "王芳" not in cleaned and "13800138000" not in cleaned
    assert not personal_spans("Infection with Angiostrongylus. Dobutamine 2-20 mcg/kg/min. Call poison control: 1-800-222-1222.")
