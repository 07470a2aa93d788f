"""PyTorch models: made by a factory, filled with weights, exported to ONNX."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from calibrant.base import torchvision_operators
from calibrant.export.inputs import check_inputs, check_logits
from calibrant.export.logits_tensor import INPUT, LOGITS, LogitsModel, TensorInfo, prepare
from calibrant.export.onnx_model import read
from calibrant.models import (
    TERMINATED,
    call_factory,
    check_state_fits,
    find_factory,
    other_framework,
    read_state,
    strip_wrapper,
)

if TYPE_CHECKING:
    import numpy.typing as npt
    from onnx import ModelProto

    from calibrant.policy import Policy


_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class SingleOutput(nn.Module):
    """A model of which one output is taken, by key, attribute or position.

    After a look at a sample ``more`` are the names of outputs that hold whole numbers: one may be its own label.
    """

    more: tuple[str, ...] = ()

    def __init__(self, model: nn.Module, output: str | None) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}{other_framework(model)}")
        self.model, self.output = model, output

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """The logits of a batch, and `more`."""
        result = self.model(inputs)
        logits, entries = self._choose(result), _entries(result)
        return logits, *(entries[name] for name in self.more)

    def look(self, inputs: Tensor) -> Tensor:
        """The logits of a batch; `more` are set to the names of what may be a label."""
        result = self.model(inputs)
        logits = self._choose(result)
        self.more = tuple(
            name
            for name, value in _entries(result).items()
            if isinstance(value, Tensor)
            and value.dtype in _WHOLE
            and value.shape[:1] == logits.shape[:1]
            and name not in (INPUT, LOGITS)
        )
        return logits

    def _choose(self, result: Any) -> Tensor:
        if self.output is not None:
            if isinstance(result, Mapping) and self.output in result:
                result = result[self.output]
            elif isinstance(result, list | tuple) and self.output.isdigit() and int(self.output) < len(result):
                result = result[int(self.output)]
            elif isinstance(getattr(result, self.output, None), Tensor) and not isinstance(result, Tensor):
                result = getattr(result, self.output)
            else:
                raise ValueError(f"the model has no output {self.output!r}, it returns {_describe(result)}")
        if not isinstance(result, Tensor):
            raise ValueError(f"the model must return the logits as one tensor, got {_describe(result)}: name an output")
        return result

    def answer(self, inputs: npt.NDArray[Any]) -> Tensor:
        """Logits of a batch that is an array."""
        with torch.no_grad():
            return self(torch.from_numpy(inputs).to(_weight(self).device))[0].cpu()


def _entries(result: Any) -> dict[str, Any]:
    """What a model returns besides one tensor, by key or position."""
    if isinstance(result, list | tuple):
        return {str(i): value for i, value in enumerate(result)}
    return {str(key): value for key, value in result.items()} if isinstance(result, Mapping) else {}


def _weight(model: nn.Module) -> Tensor:
    """A floating-point weight that tells a model's device and precision, or a number where it has none."""
    tensors = (*model.parameters(), *model.buffers())
    return next((p for p in tensors if p.is_floating_point()), tensors[0] if tensors else torch.zeros(()))


def _describe(result: Any) -> str:
    if isinstance(result, Mapping):
        return f"a mapping with {', '.join(map(str, result))}"
    if isinstance(result, Tensor):
        return f"one tensor {list(result.shape)}"
    return f"a {type(result).__name__}" + (f" of {len(result)}" if isinstance(result, list | tuple) else "")


def to_logits_model(
    model: SingleOutput, policy: Policy, shape: Sequence[int] | None, inputs: Any, opset: int
) -> LogitsModel:
    """The model, in eval mode, as an ONNX graph that a policy can follow, after a look at what it makes of a sample."""
    sample = _sample(model, shape, inputs)
    with torch.no_grad():
        try:
            check_logits(model.look(sample), policy)
        except ValueError:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and error.code == TERMINATED:
                raise
            reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            shape_text = ", ".join(["N", *map(str, sample.shape[1:])])
            raise ValueError(f"the model does not take inputs [{shape_text}]: {reason}") from None
    # A batch of one would be taken for a constant.
    sample = sample.repeat(2, *[1] * (sample.dim() - 1)) if len(sample) == 1 else sample
    proto = to_onnx(model, sample, opset, free=policy.kind == "segmentation")
    source = prepare(read(proto), policy, None, inside=False)
    if source.opset != opset:
        source.remarks.append(f"PyTorch gave the graph opset {source.opset}: it cannot write this model in {opset}.")
    return source


def _sample(model: nn.Module, shape: Sequence[int] | None, inputs: Any) -> Tensor:
    """Two rows of real inputs, or random ones of the shape, in the model's precision and on its device."""
    weight = _weight(model)
    dtype = weight.dtype if weight.is_floating_point() else torch.get_default_dtype()
    if inputs is not None:
        feeds, _ = check_inputs((TensorInfo(INPUT, None, None),), inputs)
        sample = torch.from_numpy(feeds[INPUT][:2])
        if shape is not None and list(sample.shape[1:]) != list(shape):
            raise ValueError(f"inputs must have the input_shape {list(shape)}, got {list(sample.shape[1:])}")
    elif shape is not None:
        sample = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    else:
        raise ValueError("the shape of the model's input is not known: give input_shape (without the batch) or inputs")
    return sample.to(weight.device, dtype if sample.is_floating_point() else None)


def to_onnx(model: SingleOutput, sample: Tensor, opset: int, *, free: bool) -> ModelProto:
    """The model as ONNX with a batch of any size, and with ``free`` an image of any size where it allows that."""
    dim = torch.export.Dim
    dims: dict[int, Any] = {0: dim("batch")}
    if free:
        dims |= dict.fromkeys(range(2, sample.dim()), dim.AUTO)
    with contextlib.suppress(ImportError):
        torchvision_operators.ensure()  # PyTorch's exporter imports it where it is installed
    logging.disable(logging.ERROR)
    try:
        output = io.StringIO()
        muted = contextlib.redirect_stdout(output), contextlib.redirect_stderr(output)
        with warnings.catch_warnings(), muted[0], muted[1], torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                model,
                (sample,),
                dynamo=True,
                dynamic_shapes=(dims,),
                input_names=[INPUT],
                output_names=[LOGITS, *model.more],
                opset_version=opset,
                verbose=False,
            )
            assert program is not None
            proto: ModelProto = program.model_proto
    except Exception as error:
        raise ValueError(f"PyTorch cannot export the model to ONNX: {_reason(error)}") from None
    finally:
        logging.disable(logging.NOTSET)
    return proto


def _reason(error: BaseException) -> str:
    """The innermost reason, whose first line tells most."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next((line for line in lines if not line.endswith("=")), type(error).__name__)
    return text if len(text) <= 300 else text[:297] + "..."


def load_model(
    factory: str, weights: str | Path | None = None, arguments: Mapping[str, Any] | None = None
) -> nn.Module:
    """A model from a factory named ``package.module:name``, with weights if given.

    Args:
        factory: a function or class that gives a module, or a module; looked for in the current folder too.
        weights: a .safetensors file, or a state dict saved by ``torch.save``; nothing in it is executed.
        arguments: keywords for the factory.

    Example:
        >>> from calibrant.export import load_model
        >>> load_model("torch.nn:Linear", arguments={"in_features": 4, "out_features": 3})
        Linear(in_features=4, out_features=3, bias=True)
    """
    maker = find_factory(factory)
    model: nn.Module = maker if isinstance(maker, nn.Module) else call_factory(factory, maker, arguments or {})
    if weights is not None:
        path, expected = Path(weights), model.state_dict()
        state = strip_wrapper(read_state(path), expected)
        check_state_fits(expected, state, str(path))
        model.load_state_dict(state)
    return model
