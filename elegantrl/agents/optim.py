"""Adam on whole networks. Letters: K ensemble, P parameters of one member.

An update of a small network is all overhead, so a network's parameters, gradients and moments are one matrix each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from .functional import clip_by_norm

Objective = Callable[[Any], tuple[Tensor, ...]]  # of a batch: what is minimised (), and what else is of interest
Gradients = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]
MOMENTS = ("exp_avg", "exp_avg_sq")  # names in the state dict of torch.optim.Adam


def gradients(objective: Objective, params: Sequence[Tensor], batch: Any) -> Gradients:
    """Of the first value of objective(batch) by each of params; and all its values, detached."""
    values = objective(batch)
    grads = torch.autograd.grad(values[0], params, allow_unused=True, materialize_grads=True)
    return grads, tuple([value.detach() for value in values])


def compiled_gradients() -> Callable[..., Gradients]:
    """`gradients` as one program for each objective and shape of batch. Needs a C++ compiler on the CPU.

    RuntimeError where this PyTorch's compiler does not trace torch.autograd.grad.
    """
    config = torch._dynamo.config
    if not hasattr(config, "trace_autograd_ops"):
        raise RuntimeError(f"if_compile needs a newer PyTorch than {torch.__version__}: leave it off or upgrade.")
    config.trace_autograd_ops = True
    # the compiler counts its programs by code object and stops at eight: each agent has a code object of its own
    own = FunctionType(gradients.__code__.replace(), globals())
    return torch.compile(own, dynamic=False)


class FlatParameters:
    """Parameters as views into one matrix (K, P): one call moves them all, and an ensemble's member is a row.

    The modules keep their parameters and notice nothing. Parameters that were moved since (`net.to`, a layer that a
    second optimizer shares) are taken back, with the values they then have, where the matrix is next asked for.
    """

    def __init__(self, params: Iterable[nn.Parameter], members: int = 1):
        self.params, self.members = list(params), members
        dtypes = {p.dtype for p in self.params}
        if len(dtypes) > 1:
            raise TypeError(f"A network's parameters must have one dtype, got {dtypes}.")
        self.sizes = [p.numel() // members for p in self.params]
        self.addresses: list[int] = []
        self.rows: Tensor
        self.matrix()

    @torch.no_grad()
    def matrix(self) -> Tensor:
        """The parameters themselves, (K, P)."""
        if [p.data_ptr() for p in self.params] != self.addresses:
            self.rows = self.flatten(self.params)
            for p, part in zip(self.params, self.split(self.rows), strict=True):
                p.data = part
            self.addresses = [p.data_ptr() for p in self.params]
        return self.rows

    def flatten(self, tensors: Sequence[Tensor]) -> Tensor:
        """A copy of tensors in the parameters' shapes as one matrix (K, P)."""
        return torch.cat([x.reshape(self.members, -1) for x in tensors], 1)

    def split(self, rows: Tensor) -> list[Tensor]:
        """Views of a matrix (K, P) in the parameters' shapes."""
        return [part.view(p.shape) for p, part in zip(self.params, rows.split(self.sizes, 1), strict=True)]


class FlatAdam(torch.optim.Optimizer):
    """Adam, arXiv:1412.6980, one fused call for each parameter group. State dicts are those of torch.optim.Adam.

    A group's "members" is the K of a batched ensemble, whose parameters all have the axis K first.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        self.flats: list[FlatParameters] = []
        self.params: list[nn.Parameter] = []  # of all groups, in their order
        self.moments: list[list[Tensor]] = []  # running means of the gradient and of its square, (K, P) each
        self.steps: Tensor
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "members": 1})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        flat = FlatParameters(group["params"], group["members"])
        if not self.flats:
            self.steps = torch.zeros((), device=flat.rows.device)
        self.flats.append(flat)
        self.params += flat.params
        self.moments.append([torch.zeros_like(flat.rows) for _ in MOMENTS])
        self._name_state()

    def _name_state(self) -> None:
        """Shows the matrices as a state of each parameter."""
        for flat, moments in zip(self.flats, self.moments, strict=True):
            parts = [flat.split(moment) for moment in moments]
            for p, *own in zip(flat.params, *parts, strict=True):
                self.state[p] = {"step": self.steps, **dict(zip(MOMENTS, own, strict=True))}

    def descend(self, grads: Sequence[Tensor], max_norm: float = float("inf")) -> None:
        """One step along the gradients, one for each of `params`.

        Each group, and in it each member of an ensemble, is clipped to max_norm by itself. Where any of the gradients
        is not finite, nothing changes.
        """
        rows, start = [], 0
        for flat in self.flats:
            rows.append(flat.flatten(grads[start : start + len(flat.params)]))
            start += len(flat.params)
        norms = torch.cat([clip_by_norm(grad, max_norm) for grad in rows])
        found_inf = norms.sum().mul_(0).ne_(0)  # inf * 0 and NaN * 0 are NaN, which is not 0
        self.steps.add_(1 - found_inf)
        for group, flat, grad, (mean, square) in zip(self.param_groups, self.flats, rows, self.moments, strict=True):
            torch._fused_adam_(
                *([flat.matrix()], [grad], [mean], [square], [], [self.steps]),
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                eps=group["eps"],
                weight_decay=0.0,
                amsgrad=False,
                maximize=False,
                found_inf=found_inf,
            )

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step along the gradients that `loss.backward()` left."""
        self.descend([torch.zeros_like(p) if p.grad is None else p.grad for p in self.params])

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(dict(state_dict))
        for flat, moments in zip(self.flats, self.moments, strict=True):
            loaded = [self.state[p] for p in flat.params]
            self.steps.copy_(loaded[0]["step"])
            for name, moment in zip(MOMENTS, moments, strict=True):
                moment.copy_(flat.flatten([state[name] for state in loaded]))
        self._name_state()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()  # torch's own leaves out what a subclass adds
