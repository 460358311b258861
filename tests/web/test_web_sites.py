"""A user of a site in the browser: the chat and their account, a menu without the rest, and a page that says why."""

from web_world import PASSWORD, QUESTION, trace

from medloop.store.records import sites, users


def test_a_user_of_a_site_gets_the_chat_and_no_page_with_records(store, browse, fill):
    fill(trace("Rest."))
    user = users.add_user(store, "dr.ward", "clinician", password=PASSWORD, actor="test")
    sites.assign(store, user, "ward-7", actor="test")
    me = browse("dr.ward")
    home = me.get("/web/", follow_redirects=True)
    assert home.url.path == "/web/chat" and "/web/traces" not in home.text and "/web/search" not in home.text
    assert me.get("/web/account").status_code == 200
    refused = me.get("/web/traces")
    assert refused.status_code == 403 and "belongs to the site ward-7" in refused.text and QUESTION not in refused.text
    assert "站点 ward-7" in me.get("/web/traces", headers={"Accept-Language": "zh"}).text
