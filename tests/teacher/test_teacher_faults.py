"""Everything a paid service has been seen to do; each row ends in a verdict or in Missing with a reason, never in a made-up score."""

import json
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest

from medloop.contracts import Missing, Score
from medloop.store.files import jsonl
from medloop.testing.teacher_server import TeacherServer


def only(fault: str) -> Any:
    return lambda n: fault


def test_retry_after_of_a_second_is_honoured(desk: Any, first: Any) -> None:
    with TeacherServer(fault=first("rate_short", 2)) as server:
        began = time.monotonic()
        run = desk.judge(server)
    assert isinstance(run.results[0].score(), Score) and server.requests == 3
    assert 2.0 <= time.monotonic() - began < 4.5


def test_retry_after_of_an_hour_opens_the_circuit_at_once(desk: Any) -> None:
    with TeacherServer(fault=only("rate_long")) as server:
        began = time.monotonic()
        run = desk.judge(server, 10)
    assert server.requests == 1 and time.monotonic() - began < 2
    assert all("asked to wait" in result.missing or "429" in result.missing for result in run.results)


def test_errors_for_ever_cost_exactly_the_allowed_attempts(desk: Any) -> None:
    with TeacherServer(fault=only("error_500")) as server:
        run = desk.judge(server, 1, attempts=3)
    assert server.requests == 3 and run.missing.total() == 1


def test_the_circuit_opens_after_five_failures_and_probes_once_each_round(desk: Any) -> None:
    with TeacherServer(fault=only("error_500")) as server:
        run = desk.judge(server, 40, attempts=3, circuit_rounds=3)
    assert server.requests == 5 + 1 + 1  # then two half-open probes, one attempt each, and the run is over
    assert run.missing.total() == 40


def test_a_half_open_circuit_lets_one_request_through_not_one_per_worker(desk: Any) -> None:
    with TeacherServer(fault=only("error_500"), latency_s=0.05) as server:
        desk.judge(server, 40, attempts=1, in_flight=8, circuit_rounds=3)
    # Eight at once and four that went out before the fifth failure; then one probe in each of two rounds.
    assert server.requests <= 8 + 4 + 1 + 1


def test_a_good_probe_closes_the_circuit(desk: Any, first: Any) -> None:
    with TeacherServer(fault=first("error_500", 5)) as server:
        run = desk.judge(server, 10, attempts=3)
    assert len(run.judgements) == 8 and server.requests == 5 + 8


def test_no_balance_stops_everything_at_once(desk: Any) -> None:
    with TeacherServer(fault=only("no_balance")) as server:
        run = desk.judge(server, 50, in_flight=4)
    assert server.requests <= 4 and run.missing.total() == 50
    assert "no balance" in run.degraded and run.cost == 0


def test_a_wrong_key_stops_everything_at_once(desk: Any) -> None:
    with TeacherServer(fault=only("bad_key")) as server:
        run = desk.judge(server, 20)
    assert server.requests == 1 and "key was not accepted" in run.degraded


@pytest.mark.parametrize("fault", ["hang", "drip", "blanks"])
def test_the_deadline_is_total(desk: Any, fault: str) -> None:
    with TeacherServer(fault=only(fault), drip_s=0.3) as server:
        began = time.monotonic()
        run = desk.judge(server, deadline_s=1.0)
        took = time.monotonic() - began
    assert "timeout" in run.results[0].missing and 1.0 <= took <= 1.5
    assert run.cost > 0  # the service may have worked: an unknown cost is counted in full


def test_blank_lines_before_a_reply_are_read_over(desk: Any) -> None:
    with TeacherServer(fault=only("blanks"), drip_s=0.0) as server:
        assert isinstance(desk.judge(server).results[0].score(), Score)


@pytest.mark.parametrize("fault", ["truncated", "reset", "bad_json", "html", "empty", "length"])
def test_passing_faults_are_tried_again(desk: Any, first: Any, fault: str) -> None:
    with TeacherServer(fault=first(fault, 1)) as server:
        run = desk.judge(server)
    assert isinstance(run.results[0].score(), Score) and server.requests == 2


@pytest.mark.parametrize(("fault", "requests"), [("bad_json", 3), ("html", 3), ("empty", 3), ("truncated", 5)])
def test_lasting_faults_end_in_missing(desk: Any, fault: str, requests: int) -> None:
    with TeacherServer(fault=only(fault)) as server:
        run = desk.judge(server, attempts=5, circuit_failures=9)
    assert isinstance(run.results[0].score(), Missing) and server.requests == requests


def test_a_cut_off_reply_gets_twice_the_tokens_once(desk: Any) -> None:
    with TeacherServer(fault=only("length")) as server:
        run = desk.judge(server, attempts=5)
    assert [body["max_tokens"] for body in server.seen] == [1024, 2048] and run.judgements
    with TeacherServer(fault=only("length")) as server:
        run = desk.judge(server, attempts=5, max_tokens=512)
    assert [body["max_tokens"] for body in server.seen] == [512, 1024] and run.missing.total() == 1


@pytest.mark.parametrize("fault", ["nan", "out_of_range", "missing_field", "twice"])
def test_a_verdict_of_the_wrong_form_is_refused(desk: Any, fault: str) -> None:
    with TeacherServer(fault=only(fault)) as server:
        run = desk.judge(server, attempts=5)
    assert "verdict" in run.results[0].missing and server.requests == 2
    assert not desk.files.judgements.exists()


@pytest.mark.parametrize("fault", ["bomb", "huge"])
def test_a_body_without_end_is_cut_off(desk: Any, fault: str) -> None:
    with TeacherServer(fault=only(fault)) as server:
        began = time.monotonic()
        run = desk.judge(server)
    assert "too_large" in run.results[0].missing and time.monotonic() - began < 60  # the bomb would go on for ever


def test_another_model_than_asked_for_ends_the_run(desk: Any) -> None:
    with TeacherServer(fault=only("wrong_model")) as server:
        run = desk.judge(server, 10)
    assert server.requests == 1 and run.missing.total() == 10 and "another-model" in run.degraded


def test_a_changed_fingerprint_ends_the_run_and_keeps_what_was_paid(desk: Any) -> None:
    with TeacherServer(fault=lambda n: "new_fingerprint" if n == 3 else "ok") as server:
        run = desk.judge(server, 10)
        assert server.requests == 4 and len(run.judgements) == 3 and run.new_fingerprints == ("fp_2",)
        noted = desk.judge(server, 10, stop_on_change=False)
    assert len(noted.judgements) == 10 and server.requests == 10


def test_judgements_of_another_version_are_not_taken_from_the_cache(desk: Any) -> None:
    with TeacherServer(fault=lambda n: "new_fingerprint" if n == 3 else "ok") as server:
        desk.judge(server, 10)
        server.fault, server.fingerprint = lambda n: "ok", "fp_2"
        renewed = desk.judge(server, 10, fingerprints=("fp_2",))
        mixed = desk.judge(server, 10, fingerprints=("fp_1", "fp_2"))
    assert renewed.calls == 9 and len(renewed.judgements) == 10  # the one of the new version was paid for already
    assert mixed.calls == 0


def test_the_change_is_seen_in_a_later_run_too(desk: Any) -> None:
    with TeacherServer() as server:
        desk.judge(server, 3)
        server.fingerprint = "fp_9"
        run = desk.judge(server, 5)
    assert len(run.judgements) == 3 and run.new_fingerprints == ("fp_9",)


def test_nobody_there_is_missing(desk: Any) -> None:
    with TeacherServer() as server:
        pass
    run = desk.judge(server, 3)
    assert run.missing.total() == 3 and "ConnectError" in " ".join(run.missing)


def spent(run: Any, desk: Any) -> tuple[int, float, int, float]:
    """Tokens and cost of the run, requests that were sent, and the cost in the request log."""
    log = [json.loads(line) for path in desk.files.logs.glob("*.jsonl") for line in path.read_text().splitlines()]
    return run.tokens, run.cost, run.calls, sum(row["cost"] for row in log)


def test_a_refused_connection_costs_nothing_and_is_no_request(desk: Any) -> None:
    with TeacherServer() as server:
        pass
    run = desk.judge(server, 40, in_flight=8, circuit_failures=100)
    assert run.missing.total() == 40 and spent(run, desk) == (0, 0.0, 0, 0.0)
    assert {row["outcome"] for row in jsonl.read(next(desk.files.logs.glob("*.jsonl")))} == {"unreachable"}


def test_an_address_that_never_answers_the_connection_costs_nothing(desk: Any) -> None:
    with socket.socket() as full:  # its queue of connections is full, so the next one waits
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for connection in waiting:
            connection.setblocking(False)
            connection.connect_ex(address)
        run = desk.judge(SimpleNamespace(url=f"http://127.0.0.1:{address[1]}"), deadline_s=0.5)
        for connection in waiting:
            connection.close()
    assert "timeout" in run.results[0].missing and spent(run, desk) == (0, 0.0, 0, 0.0)


@pytest.mark.parametrize(("fault", "charged"), [("rate_short", False), ("error_500", True), ("reset", True), ("truncated", True)])
def test_what_was_sent_is_booked_unless_it_was_refused_before_any_work(desk: Any, fault: str, charged: bool) -> None:
    with TeacherServer(fault=only(fault)) as server:
        run = desk.judge(server, attempts=1)
        sent = server.requests
    tokens, cost, calls, logged = spent(run, desk)
    assert calls == sent == 1 and cost == logged and (tokens > 1024, cost > 0) == (charged, charged)
