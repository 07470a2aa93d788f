"""ONNX graphs with calibration and the decision to answer or abstain inside."""

from calibrant.export.core import Exported, export_onnx
from calibrant.export.source import TensorInfo
from calibrant.export.torch_model import load_model

__all__ = ["Exported", "TensorInfo", "export_onnx", "load_model"]
