"""ONNX graphs with calibration and the decision to answer or abstain inside.

=================  =====================================================================================================
`export`           `export_onnx`, from a policy and a model to a file
`onnx_model`       ONNX models read, checked and run
`torch_model`      PyTorch models as ONNX models
`model_outputs`    which tensors of a model are the logits and its own label
`graph`            the policy's formula drawn as a graph, and attached to the model's
`inputs`           inputs for the check
`verify`           the check: the graph's answers against the policy's own
`agreement`        the model's outputs against its own label, and against what the policy saw at its fit
`expected`         the graph's answers against expected ones
=================  =====================================================================================================
"""

from typing import TYPE_CHECKING

from calibrant.base.extras import lazy_names
from calibrant.export.expected import read_decisions
from calibrant.export.export import Exported, export_onnx
from calibrant.export.inputs import read_inputs
from calibrant.export.onnx_model import TensorInfo

if TYPE_CHECKING:
    from calibrant.export.torch_model import load_model

__all__ = ["Exported", "TensorInfo", "export_onnx", "load_model"]

__getattr__, __dir__ = lazy_names(__name__, extras={"calibrant.export.torch_model": ("train", "torch")})
