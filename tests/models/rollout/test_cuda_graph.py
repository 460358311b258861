"""The graphs' buffers, stepped on a CPU: the answers are those of the loop, whenever a row enters, moves or leaves.

The last tests capture and replay, on a GPU.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from medloop.errors import ResultError
from medloop.models.rollout import cuda_graph
from medloop.models.rollout.cuda_graph import CudaGraphs, GraphBuffers
from medloop.models.rollout.rollouts import Rollout
from medloop.models.rollout.sampler import Sampler
from medloop.testing.models import tiny_model

PROMPTS = [[5, 6, 7], [9] * 12, [40, 41, 42, 43, 44], [5, 6, 7], [100]] * 8
STREAMS = [f"g{n}" for n in range(len(PROMPTS))]
STOPS = (7, 8, 9, 10, 11, 12)
NEW = 60


class SteppedGraphs(CudaGraphs):
    """Steps where CUDA would replay a captured graph; the buffers are the same."""

    def replay(self, buffers: GraphBuffers, rows: int, *, greedy: bool) -> None:
        self.step(buffers, rows, greedy=greedy)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows enter, move and leave often."""
    for name, value in {"CHECK_EVERY": 4, "MIN_ROWS": 2, "COLUMN_MULTIPLE": 4, "SPARE": 6}.items():
        monkeypatch.setattr(cuda_graph, name, value)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return AutoModelForCausalLM.from_pretrained(tiny_model(tmp_path_factory.mktemp("model")), dtype=torch.float32).eval()


def loop(model: Any, **kw: Any) -> Sampler:
    return Sampler(model, pad_id=0, **{"stop_ids": STOPS} | kw)


def stepped(model: Any, graphs: type[CudaGraphs] = SteppedGraphs, **kw: Any) -> Sampler:
    sampler = loop(model, **kw)
    assert sampler.fast_decoder is not None
    sampler._graphs = graphs(sampler.fast_decoder, sampler.stop_ids)
    return sampler


def assert_same(first: list[Rollout], second: list[Rollout], within: float = 1e-4) -> None:
    for ours, theirs in zip(first, second, strict=True):
        assert (ours.prompt, ours.stream, ours.tokens, ours.ended) == (theirs.prompt, theirs.stream, theirs.tokens, theirs.ended)
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=within)


@pytest.mark.parametrize("places", [1, 3, 8, 40, 64])
@pytest.mark.parametrize(("stops", "temperature"), [((), 0.8), (STOPS, 0.8), (STOPS, 0.0)])
def test_answers_are_those_of_the_loop_whenever_a_row_enters(
    model: Any, stops: tuple[int, ...], temperature: float, places: int
) -> None:
    if places == 1 and not stops:
        pytest.skip("long, and the others say it")
    options: dict[str, Any] = {"max_new_tokens": NEW, "temperature": temperature}
    expected = loop(model, stop_ids=stops)(PROMPTS, STREAMS, **options)
    assert_same(stepped(model, stop_ids=stops)(PROMPTS, STREAMS, batch_size=places, **options), expected)


def test_an_answer_is_that_of_its_row_alone(model: Any) -> None:
    sampler = stepped(model)
    together = sampler(PROMPTS, STREAMS, max_new_tokens=NEW, batch_size=8)
    alone = [sampler([prompt], [stream], max_new_tokens=NEW)[0] for prompt, stream in zip(PROMPTS, STREAMS, strict=True)]
    assert_same(together, alone)


def test_new_rows_enter_before_the_longest_has_ended(model: Any) -> None:
    """60 steps with 8 rows for each batch of 8 would be 5 batches; places that are given on need fewer steps."""
    steps = list[int]()

    class Counted(SteppedGraphs):
        def replay(self, buffers: GraphBuffers, rows: int, *, greedy: bool) -> None:
            steps.append(rows)
            super().replay(buffers, rows, greedy=greedy)

    answers = stepped(model, Counted)(PROMPTS, STREAMS, max_new_tokens=NEW, batch_size=8)
    lengths = [len(answer.tokens) for answer in answers]
    order = sorted(range(len(PROMPTS)), key=lambda row: (-len(PROMPTS[row]), PROMPTS[row]))
    in_batches = sum(max(lengths[row] for row in order[start : start + 8]) for start in range(0, len(order), 8))
    assert max(lengths) > 40 and len(steps) < 0.75 * in_batches
    assert steps[0] == 8 and steps[-1] == 2  # and at the end the rest continues in smaller graphs


def test_rows_of_one_length_never_halve_and_end_at_the_limit(model: Any) -> None:
    answers = stepped(model, stop_ids=())(PROMPTS, STREAMS, max_new_tokens=5, batch_size=8)
    assert {len(answer.tokens) for answer in answers} == {5} and not any(answer.ended for answer in answers)
    assert {len(answer.tokens) for answer in stepped(model)(PROMPTS, STREAMS, max_new_tokens=1, batch_size=8)} == {1}


def test_the_prompts_of_a_group_are_read_once(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = stepped(model)
    assert sampler.fast_decoder is not None
    read, plain = list[int](), sampler.fast_decoder.prefill
    monkeypatch.setattr(sampler.fast_decoder, "prefill", lambda ids, *rest: read.append(len(ids)) or plain(ids, *rest))
    sampler(PROMPTS, STREAMS, max_new_tokens=NEW, batch_size=4)
    assert sum(read) == len({tuple(prompt) for prompt in PROMPTS}) == 4


def test_the_buffers_hold_the_longest_row_and_some_columns(model: Any) -> None:
    sampler = stepped(model)
    sampler(PROMPTS, STREAMS, max_new_tokens=NEW, batch_size=8)
    assert sampler._graphs is not None and sampler._graphs._buffers is not None
    buffers = sampler._graphs._buffers
    assert buffers.size == (8, 80)  # 12 + 60 + 6, in multiples of 4
    sampler(PROMPTS[:3], STREAMS[:3], max_new_tokens=NEW, batch_size=8)
    assert sampler._graphs._buffers is buffers  # and so are its graphs
    sampler([[4] * 30], STREAMS[:1], max_new_tokens=NEW, batch_size=8)
    assert sampler._graphs._buffers.size == (8, 92)


def test_columns_that_hold_the_rows_exactly_are_enough_where_none_enters(model: Any) -> None:
    sampler = stepped(model, stop_ids=())
    answers = sampler([[9] * 12] * 8, STREAMS[:8], max_new_tokens=28, batch_size=8)
    assert sampler._graphs is not None and sampler._graphs._buffers is not None
    assert sampler._graphs._buffers.size == (8, 40)
    assert_same(answers, loop(model, stop_ids=())([[9] * 12] * 8, STREAMS[:8], max_new_tokens=28))


def test_lack_of_memory_halves_the_places_and_keeps_what_has_ended(model: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Poor(SteppedGraphs):
        room, steps = 4, 0

        def replay(self, buffers: GraphBuffers, rows: int, *, greedy: bool) -> None:
            Poor.steps += 1
            if rows > self.room and Poor.steps > 30:
                raise torch.OutOfMemoryError("no room")
            super().replay(buffers, rows, greedy=greedy)

    taken: list[int] = []
    sampler = stepped(model, Poor)
    answers = sampler(PROMPTS, STREAMS, max_new_tokens=NEW, batch_size=16, on_rollouts=lambda new: taken.extend(new))
    assert sampler.batch_limit == 4 and caplog.text.count("answers at once in sampling") == 2
    assert sorted(taken) == list(range(len(PROMPTS)))  # each once
    assert_same(answers, loop(model)(PROMPTS, STREAMS, max_new_tokens=NEW))
    Poor.room = 0
    with pytest.raises(ResultError, match="not enough memory"):
        sampler(PROMPTS, STREAMS, max_new_tokens=NEW)


def test_progress_counts_answers_up_to_all(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medloop.models.rollout.sampler.PULSE_S", 0.0)
    seen: list[tuple[int, int]] = []
    stepped(model)(PROMPTS, STREAMS, max_new_tokens=NEW, batch_size=8, progress=lambda *told: seen.append(told))
    assert seen == sorted(seen) and len(seen) > 5 and seen[-1] == (40, 40)


def test_a_call_that_is_stopped_in_the_middle_leaves_nothing_behind(model: Any) -> None:
    class StopError(Exception):
        pass

    def stop(new: Mapping[int, Rollout]) -> None:
        raise StopError

    sampler = stepped(model)
    with pytest.raises(StopError):
        sampler(PROMPTS, STREAMS, max_new_tokens=NEW, batch_size=8, on_rollouts=stop)
    assert_same(sampler(PROMPTS, STREAMS, max_new_tokens=NEW, batch_size=8), loop(model)(PROMPTS, STREAMS, max_new_tokens=NEW))


def test_what_is_beyond_the_rotary_tables_is_left_to_the_library(model: Any) -> None:
    sampler = stepped(model)
    assert sampler.fast_decoder is not None
    long = [[5, 6] * (sampler.fast_decoder.max_positions // 2 - 10), *PROMPTS[:4]]
    seen: list[tuple[int, int]] = []
    answers = sampler(long, STREAMS[:5], max_new_tokens=30, progress=lambda *told: seen.append(told))
    assert sampler.backend == "mixed" and seen[-1] == (5, 5)
    assert_same(answers, loop(model)(long, STREAMS[:5], max_new_tokens=30, batch_size=1))


@pytest.fixture
def on_gpu(model: Any) -> Iterator[Any]:
    yield model.cuda()
    model.cpu()


@pytest.mark.gpu
@pytest.mark.parametrize("places", [4, 8, 16, 64])
@pytest.mark.parametrize("temperature", [0.8, 0.0])
def test_captured_graphs_give_the_library_s_answers_whenever_a_row_enters(on_gpu: Any, places: int, temperature: float) -> None:
    options: dict[str, Any] = {"max_new_tokens": NEW, "temperature": temperature}
    sampler = loop(on_gpu)
    assert sampler.backend == "cuda_graph"
    expected = loop(on_gpu, library=True)(PROMPTS, STREAMS, **options)
    for _ in range(2):  # the second time everything is captured
        assert_same(sampler(PROMPTS, STREAMS, batch_size=places, **options), expected, within=1e-3)


@pytest.mark.gpu
def test_rows_that_enter_beside_others_are_as_alone_in_bfloat16(on_gpu: Any) -> None:
    """The kernels: a row's logarithms differ by rounding from those of the row alone, up to the first token that differs."""
    sampler = loop(on_gpu.to(torch.bfloat16))
    try:
        together = sampler(PROMPTS, STREAMS, max_new_tokens=NEW, batch_size=8)
        for row, (prompt, stream) in enumerate(zip(PROMPTS, STREAMS, strict=True)):
            alone = sampler([prompt], [stream], max_new_tokens=NEW)[0]
            same = [a == b for a, b in zip(together[row].tokens, alone.tokens, strict=False)]
            end = same.index(False) if False in same else len(same)
            assert together[row].logprobs[:end] == pytest.approx(alone.logprobs[:end], abs=0.1)
    finally:
        on_gpu.float()


@pytest.mark.gpu
def test_entering_rows_take_no_more_memory_than_the_cache_and_its_spare_columns(on_gpu: Any) -> None:
    sampler = loop(on_gpu)
    sampler(PROMPTS[:8], STREAMS[:8], max_new_tokens=NEW, batch_size=8)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        sampler(PROMPTS, STREAMS, max_new_tokens=NEW, batch_size=8)
    decoder = sampler.fast_decoder
    assert decoder is not None
    column = decoder.new_cache(8, 1).nbytes + 8 * 2 * 20
    assert torch.cuda.memory_allocated() - before < 16 * column + 4e6  # spare columns; what the graphs of 8, 4 and 2 rows keep
