"""ONNX graphs with calibration and the decision to answer or abstain inside."""

from typing import TYPE_CHECKING

from calibrant._imports import lazy_names
from calibrant.export.export import Exported, export_onnx
from calibrant.export.inputs import read_inputs
from calibrant.export.logits_tensor import TensorInfo

if TYPE_CHECKING:
    from calibrant.export.torch_model import load_model

__all__ = ["Exported", "TensorInfo", "export_onnx", "load_model"]

__getattr__, __dir__ = lazy_names(__name__, extras={"calibrant.export.torch_model": ("train", "torch")})
