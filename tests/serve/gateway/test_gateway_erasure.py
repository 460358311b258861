"""An erasure of one person who asked through the gateway leaves everybody else's answers, and the server starts again."""

from __future__ import annotations

from gateway_world import COUGH
from typer.testing import CliRunner

from medloop.cli import app as cli
from medloop.contracts import Trace
from medloop.contracts.chat import is_from_gateway
from medloop.loop.erasure import erase_records
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.store.records import crud

OWN = "My phone is 13800138000. What helps against a cold?"


def test_one_person_is_erased_and_all_who_asked_without_an_id_stay(gateway_world) -> None:
    world = gateway_world(trace_share=1.0)
    store, home = world.client.app.state.store, world.settings.home
    settings = home / "medloop.yaml"
    settings.write_text(settings.read_text() + f"\ngateway:\n  backends: {world.servers[0].url}\n")
    log = home / "logs/model-server.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text(f"started at {world.servers[0].url}\n")
    before = settings.read_bytes(), log.read_bytes()
    mine = world.ask(OWN, user="patient 7").json()["medloop"]["inference_id"]
    others = [world.ask(text).json()["medloop"]["inference_id"] for text in ("What is asthma?", "hello", COUGH)]
    for trace_id in (mine, *others):
        world.client.portal.call(world.gateway.traces.ensure, trace_id)
    trace = crud.get(store, Trace, mine)
    assert trace is not None and is_from_gateway(trace.meta) and trace.meta["backend"] == world.servers[0].url
    dry = CliRunner().invoke(cli, ["--home", str(home), "erase", "--subject", "patient 7", "--reason", "asked", "--dry-run"])
    assert dry.exit_code == 0 and "        1  traces" in dry.output and "not named by the request" not in dry.output, dry.output
    proof = erase_records(store, ErasureRequest(reason="asked", subject="patient 7"), actor="test")
    assert proof.complete and {stone["record_id"] for stone in proof.tombstones} == {mine}
    assert all(crud.get(store, Trace, trace_id) is not None for trace_id in others)
    assert (settings.read_bytes(), log.read_bytes()) == before
