"""An erasure reaches a person's words in a document, and the index follows."""

from pathlib import Path

from knowledge_world import word_encoder

from medloop.contracts import Feedback
from medloop.contracts.knowledge import DocumentPage
from medloop.loop.erasure import erase_records
from medloop.loop.workspace import init_workspace
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.serve.agent.documents import ReadDocument
from medloop.serve.agent.library import Library
from medloop.serve.agent.search import open_index
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud

OWN = "Nobody but me ever wrote a remark quite like this one about cold porridge on rainy Thursdays and my sore left knee."


def test_an_erasure_removes_the_words_and_their_vectors(tmp_path: Path) -> None:
    home = tmp_path / "clinic"
    init_workspace(home)
    pages = (
        DocumentPage(number=1, text=f"Case report. {OWN}"),
        DocumentPage(number=2, text="Heat stroke is treated by cooling."),
    )
    read = ReadDocument("Cases", "pdf", "cases.pdf", "sha256:" + "d" * 64, pages)
    document = Library(home).add(read, actor="user:test").document.document_id
    assert open_index(home, word_encoder()) is not None
    (before,) = (home / "knowledge/vectors").glob("*.f32")
    with open_store(Settings(home=home)) as store:
        feedback = Feedback(
            session_id="s", agent_name="a", user_query=OWN, agent_response="Rest a while.", thumb="down", consent=("training",),
            subject=subject_of(store, "patient 7"),
        )  # fmt: skip
        crud.add(store, [feedback], actor="test")
        proof = erase_records(store, ErasureRequest(reason="asked on 3 May", subject="patient 7"), actor="test")
    assert proof.complete
    assert not any(b"porridge" in path.read_bytes() for path in home.rglob("*") if path.is_file())
    index = open_index(home, word_encoder())
    assert index is not None and not Library(home).damaged()
    assert "cooling" in index.search("How is heat stroke treated? cooling").passages[0].text
    assert not before.exists() and document in index.cards
