"""The kernels of training are the plain operations. On a GPU, or anywhere with TRITON_INTERPRET=1 and triton."""

import pytest
import torch

from medloop.models import forward_plain

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def near(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.allclose(first, second, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("adds", [False, True])
def test_norms(adds: bool) -> None:
    from medloop.models import forward_kernels

    torch.manual_seed(0)
    x, y, weight, by_normed, by_added = (
        torch.randn(*shape, device=DEVICE) for shape in ((5, 48), (5, 48), (48,), (5, 48), (5, 48))
    )
    plain, fused = (
        ops.add_and_norm(x.clone(), y if adds else None, weight, 1e-5, torch.float32) for ops in (forward_plain, forward_kernels)
    )
    assert all(near(*pair) for pair in zip(plain, fused, strict=True))
    back = [
        ops.add_and_norm_backward(plain[0], weight, plain[2], by_normed, by_added) for ops in (forward_plain, forward_kernels)
    ]
    assert near(back[0][0], back[1][0])


@pytest.mark.parametrize("rotary_dim", [16, 12])
@pytest.mark.parametrize("back", [False, True])
def test_rotation(rotary_dim: int, back: bool) -> None:
    from medloop.models import forward_kernels

    torch.manual_seed(0)
    source, positions = torch.randn(5, 6 * 16, device=DEVICE), torch.tensor([0, 3, 1, 9, 2], device=DEVICE)
    angles = torch.rand(10, rotary_dim // 2, device=DEVICE).repeat(1, 2)
    sign = torch.cat([-torch.ones(rotary_dim // 2), torch.ones(rotary_dim // 2)]).to(DEVICE)
    cos, sin = torch.ones(10, 16, device=DEVICE), torch.zeros(10, 16, device=DEVICE)
    cos[:, :rotary_dim], sin[:, :rotary_dim] = angles.cos(), angles.sin() * sign
    targets = []
    for ops in (forward_plain, forward_kernels):
        target = torch.zeros_like(source)
        ops.rotate(source, target, cos, sin, positions, heads=6, turned=4, rotary_dim=rotary_dim, back=back)
        targets.append(target)
    assert near(*targets) and torch.equal(targets[1][:, 64:], source[:, 64:]) and not near(targets[1], source)


@pytest.mark.parametrize("gelu", [False, True])
def test_gate(gelu: bool) -> None:
    from medloop.models import forward_kernels

    torch.manual_seed(0)
    gate_up, by_activated = torch.randn(5, 96, device=DEVICE), torch.randn(5, 48, device=DEVICE)
    assert near(forward_plain.gated(gate_up, gelu=gelu), forward_kernels.gated(gate_up, gelu=gelu))
    results = []
    for ops in (forward_plain, forward_kernels):
        gradient = gate_up.clone()
        results.append((ops.gated_backward(gradient, by_activated.clone(), gelu=gelu), gradient))
    assert near(results[0][0], results[1][0]) and near(results[0][1], results[1][1])
