"""The buffers of a CUDA graph, stepped on a CPU: the answers are those of the loop, also when finished rows leave the graph."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from medloop.models.rollout import cuda_graph
from medloop.models.rollout.cuda_graph import CudaGraphs
from medloop.models.rollout.sampler import Sampler
from medloop.testing.models import tiny_model

PROMPTS = [[5, 6, 7], [9] * 12, [40, 41, 42, 43, 44], [5, 6, 7], [100]] * 4
STREAMS = [f"g{n}" for n in range(len(PROMPTS))]


class SteppedGraphs(CudaGraphs):
    """Steps where CUDA would replay a captured graph; the buffers are the same."""

    def _replay(self, buffers: cuda_graph.GraphBuffers) -> None:
        self._step(buffers)


@pytest.mark.parametrize(("stops", "temperature"), [((), 0.8), ((7, 8, 9, 10), 0.8), ((), 0.0)])
def test_the_graph_s_buffers_give_the_loop_s_answers(
    tmp_path: Path, stops: tuple[int, ...], temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_graph, "CHECK_EVERY", 4)
    monkeypatch.setattr(cuda_graph, "MIN_ROWS", 2)
    model = AutoModelForCausalLM.from_pretrained(tiny_model(tmp_path), dtype=torch.float32).eval()
    sampler = Sampler(model, stop_ids=stops, pad_id=0)
    loop = sampler(PROMPTS, STREAMS, max_new_tokens=80, temperature=temperature)
    assert sampler.fast_decoder is not None
    graphs = SteppedGraphs(sampler.fast_decoder, sampler.stop_ids)
    sampler._decode = lambda decoder, *batch: graphs.sample(*batch[:5])  # type: ignore[method-assign]
    rollouts = sampler(PROMPTS, STREAMS, max_new_tokens=80, temperature=temperature)
    assert [rollout.tokens for rollout in rollouts] == [rollout.tokens for rollout in loop]
    for ours, theirs in zip(rollouts, loop, strict=True):
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
    assert (len(graphs._by_shape) > 1) == bool(stops)  # finished rows leave the graph
