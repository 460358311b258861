"""The link to the other language leads to a page that opens, also from a page that answers a sent form."""

import re

import pytest
from web_world import BAD, GOOD, QUESTION

from medloop.contracts import Correction
from medloop.store.records import crud, users

LINK = re.compile(r'class="language"[^>]*href="([^"]+)"')


def follow_link(someone, page) -> str:
    """Where the link of a page leads, once it opens there."""
    (address,) = LINK.findall(page.text)
    opened = someone.get(address)
    assert opened.status_code == 200 and '<html lang="zh-Hans">' in opened.text, opened.url
    return opened.url.path


@pytest.mark.parametrize(("name", "sent", "leads_to"), [
    ("clinician", "/web/rate", "/web/rate"), ("clinician", "/web/inspect/draw", "/web/inspect"),
    ("clinician", "/web/gate/nothing/waive", "/web/gate/nothing"),
    ("clinician", "/web/codebook/nothing/drop", "/web/codebook/nothing"), ("clinician", "/web/nothing/at/all", "/web/"),
    ("clinician", "/web/codebook", "/web/codebook"), ("admin", "/web/users", "/web/users"),
    ("engineer", "/web/deployments/rollback", "/web/deployments"),
])  # fmt: skip
def test_the_language_of_an_answer_to_a_form_can_be_changed(browse, name, sent, leads_to):
    someone = browse(name)
    answer = someone.post(sent)
    assert answer.status_code >= 400, "nothing was filled in"
    (address,) = LINK.findall(answer.text)
    assert someone.get(address, follow_redirects=False).headers["location"] == leads_to
    if "nothing" not in sent:
        assert follow_link(someone, answer) == leads_to


def test_the_page_of_one_record_is_kept(browse, store):
    author = users.get_user(store, "clinician").user_id
    record = Correction(prompt=QUESTION, original=BAD, golden=GOOD, consent=(), recorded_by=author)
    crud.add(store, [record], actor="test")
    someone, page = browse("clinician"), f"/web/history/{record.correction_id}"
    answer = someone.post(f"{page}/ask")
    assert answer.url.path == f"{page}/ask"
    assert follow_link(someone, answer) == page


def test_the_login_leads_back_to_the_login(browse):
    nobody = browse(None)
    answer = nobody.client.post("/web/login", data={"name": "clinician", "password": "wrong"})
    assert answer.status_code == 401 and follow_link(nobody, answer) == "/web/login"
