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
from calibrant.export.model_outputs import INPUT, LOGITS, NO_LABEL, LogitsModel, choose_label, prepare
from calibrant.export.onnx_model import TensorInfo, read
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


class SingleOutput(nn.Module):
    """A model of which the logits are taken, by key, attribute or position, and its own label where it gives one.

    The label is chosen when `look` sees what the model makes of a sample, among the entries of a tuple or mapping.
    """

    label: str | None = None  # the entry that is the model's own label

    def __init__(self, model: nn.Module, output: str | None, labels: str | None = None) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}{other_framework(model)}")
        self.model, self.output, self.labels = model, output, labels

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """The logits of a batch, and the model's own labels."""
        result = self.model(inputs)
        logits = self._choose(result)
        return (logits,) if self.label is None else (logits, _entries(result)[self.label])

    def look(self, inputs: Tensor, policy: Policy) -> None:
        """Run a sample, check the logits and choose the label."""
        result = self.model(inputs)
        logits = self._choose(result)
        check_logits(logits, policy)
        entries = {name: value for name, value in _entries(result).items() if isinstance(value, Tensor)}
        others = [_info(name, value) for name, value in entries.items() if value is not logits]
        self.label = choose_label(others, _info(LOGITS, logits), policy, self.labels)

    def _choose(self, result: Any) -> Tensor:
        if self.output is not None:
            entries = _entries(result)
            attribute = None if isinstance(result, Tensor) else getattr(result, self.output, None)
            if self.output in entries:
                result = entries[self.output]
            elif isinstance(attribute, Tensor):
                result = attribute
            else:
                raise ValueError(f"the model has no output {self.output!r}, it returns {_describe(result)}")
        if not isinstance(result, Tensor):
            raise ValueError(
                f"the model must return the logits as one tensor, got {_describe(result)}: name one by --tensor (in "
                "Python output=)"
            )
        return result

    @property
    def names(self) -> tuple[str, str]:
        """What logits and label are called in ONNX."""
        taken = self.label in (INPUT, LOGITS, NO_LABEL)
        return LOGITS, NO_LABEL if self.label is None else "label" if taken else self.label

    def answer(self, inputs: npt.NDArray[Any]) -> Tensor:
        """Logits of a batch that is an array."""
        with torch.no_grad():
            return self(torch.from_numpy(inputs).to(_weight(self).device))[0].cpu()


def _entries(result: Any) -> dict[str, Any]:
    """What a model returns besides one tensor, by key or position."""
    if isinstance(result, list | tuple):
        return {str(i): value for i, value in enumerate(result)}
    return {str(key): value for key, value in result.items()} if isinstance(result, Mapping) else {}


def _info(name: str, tensor: Tensor) -> TensorInfo:
    """A tensor as ONNX would describe it; whole numbers are called the same."""
    return TensorInfo(name, str(tensor.dtype).removeprefix("torch.").upper(), tuple(tensor.shape))


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
            model.look(sample, policy)
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
    source = prepare(read(proto), policy, *model.names, inside=False)
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
                output_names=[name for name in model.names if name != NO_LABEL],
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
