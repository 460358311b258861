"""Rows without padding: what each token sees is what it would see in its own row."""

import torch

from medloop.models.packing import PackedRows, pack

CPU = torch.device("cpu")
PROMPTS, ANSWERS = [[1, 2, 3], [1, 2, 3], [9]], [[4, 5, 6], [7], [8, 4]]


def seen(rows: PackedRows, query: int) -> list[int]:
    """The tokens that a packed token attends to: the keys of its segment up to its own (causal, aligned at the end)."""
    starts, keys = rows.query_starts.tolist(), rows.key_starts.tolist()
    segment = next(n for n in range(len(starts) - 1) if starts[n] <= query < starts[n + 1])
    after = starts[segment + 1] - 1 - query
    return rows.tokens[rows.key_index[keys[segment] : keys[segment + 1] - after]].tolist()  # type: ignore[no-any-return]


def test_every_predictor_sees_its_prompt_and_its_own_answer() -> None:
    rows, predictors = pack(PROMPTS, ANSWERS, CPU)
    for row, (prompt, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
        for place in range(len(answer)):
            assert seen(rows, int(predictors[row, place])) == [*prompt, *answer[:place]]
            assert rows.positions[predictors[row, place]] == len(prompt) + place - 1


def test_a_shared_prompt_is_computed_once_and_last_tokens_not_at_all() -> None:
    rows, _ = pack(PROMPTS, ANSWERS, CPU)
    assert rows.tokens.tolist() == [1, 2, 3, 9, 4, 5, 8]
    assert (rows.longest_query, rows.longest_key) == (3, 5)


def test_beyond_the_end_of_an_answer_stands_0() -> None:
    assert pack(PROMPTS, ANSWERS, CPU)[1][1].tolist() == [2, 0, 0]
