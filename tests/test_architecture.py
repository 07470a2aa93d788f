"""One direction of imports, and public names that nobody removes by accident."""

import ast
import functools
import importlib
from pathlib import Path

import pytest

from calibrant.losses import describe, names
from calibrant.metrics import METRICS

SOURCE = Path(__file__).parents[1] / "src" / "calibrant"

#: The arrow of the design, from left to right: a part imports only from parts before it.
ORDER = [
    "base",
    "data",
    "targets",
    "models",
    "losses",
    "predictions",
    "_lens",
    "metrics",
    "_tensor_sketch",
    "torchmetrics",
    "posthoc",
    "promises",
    "policy",
    "papers",
    "report",
    "auditing",
    "monitoring",
    "export",
    "sklearn",
    "recipes",
    "training",
    "detection",
    "experiments",
    "cli",
]

PUBLIC = {
    "calibrant": [
        "Audit", "Check", "Lens", "Monitor", "Policy", "Predictions", "activity", "audit", "check", "lens", "losses",
        "monitor",
    ],
    "calibrant.data": [
        "HOLD_OUTS", "NO_CLASS", "RICAP", "Batch", "Batches", "Boxes", "CentreCrop", "ColourJitter", "CutMix", "Cutout",
        "Dataset", "ImageArray", "ImageFiles", "Mixup", "Pad", "Pipeline", "RandomCrop", "RandomErasing", "RandomFlip",
        "RandomResizedCrop", "Resize", "Rows", "Sample", "TextFiles", "UnreadableError", "View", "Vocabulary", "by_ids",
        "context_only", "disjoint", "encoded", "hold_out", "layouts", "learn_vectors", "normalised", "objectness",
        "pixel_mean", "read", "read_glove", "resample", "single_object", "with_wrong_labels",
    ],
    "calibrant.detection": [
        "Backbone", "Detected", "Detection", "coco_metrics", "plan_run", "read_backbones",
    ],
    "calibrant.experiments": [
        "Comparison", "Contender", "Engine", "Failure", "Local", "Results", "Study", "compare", "engine_of", "methods",
        "papers", "space", "tables", "write",
    ],
    "calibrant.export": ["Exported", "TensorInfo", "export_onnx", "load_model"],
    "calibrant.losses": [
        *(describe(name).loss.__name__ for name in names()),
        "Loss", "Method", "Target", "Terms", "describe", "get", "names", "nll", "register",
    ],
    "calibrant.metrics": [
        "METRICS", "Approximate", "ConfidenceSketch", "ContextReliance", "Interval", "Judged", "Metric",
        "Reliability", "RiskCoverage", "Summary", "accuracy", "aece", "augrc", "aurc", "brier",
        "classwise_ece", "context_reliance", "coverage_at_risk", "describe", "e_aurc", "ece", "intervals", "mce",
        "mean_confidence", "mean_iou", "nll", "objectness_deviation", "overconfidence", "paired_differences", "pixels",
        "reliability", "risk_at_coverage", "risk_coverage_curve", "smooth_ece", "top_label", "underconfidence",
    ],
    "calibrant.models": ["Architecture", "build", "describe", "names"],
    "calibrant.monitoring": ["LabelShift", "Monitor", "confidence_sequence", "estimate_label_shift"],
    "calibrant.papers": [
        "ErrorsBySource", "MSPBin", "MaxLogitGivenMSP", "MethodCurve", "RankStatistics", "SortedLogits", "Windows",
        "errors_by_source", "max_logit_given_msp", "normalised_given_max_logit", "risk_coverage_by_method",
        "sorted_logits",
    ],
    "calibrant.policy": ["Decisions", "Policy"],
    "calibrant.posthoc": [
        "CALIBRATORS", "Calibrator", "EnsembleTemperatureScaling", "HistogramBinning", "IsotonicCalibration",
        "LogitNorm", "MatrixScaling", "TemperatureScaling", "VectorScaling", "energy", "margin", "max_logit", "msp",
        "negative_entropy", "normalised_max_logit",
    ],
    "calibrant.predictions": ["Predictions"],
    "calibrant.promises": [
        "Cost", "CostThreshold", "ExpectedRisk", "Precision", "PredictionSets", "Promise", "Recall", "Risk",
        "SetCounts", "Sets", "Threshold", "threshold_for_cost", "threshold_for_coverage", "threshold_for_risk",
        "thresholds_by_group",
    ],
    "calibrant.report": [
        "Cell", "ContactSheet", "draw_confidence_histogram", "draw_contact_sheet", "draw_data_summary",
        "draw_errors_by_source", "draw_lens", "draw_logit_scatter", "draw_max_logit_given_msp",
        "draw_reliability", "draw_risk_coverage", "draw_risk_coverage_by_method",
        "write_audit", "write_comparison", "write_data_page",
    ],
    "calibrant.sklearn": ["SelectiveClassifier"],
    "calibrant.targets": [
        "adaptive_targets", "hard_targets", "mixed_adaptive_targets", "objectness", "uniform_targets",
    ],
    "calibrant.training": [
        "DivergedError", "Recipe", "estimate", "load", "load_model", "predict", "predict_mean", "predict_run",
        "train",
    ],
}  # fmt: skip


@functools.cache
def modules():
    return sorted(SOURCE.rglob("*.py"))


@functools.cache
def nodes_of(path):
    """All nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text())))


def part(path):
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_parts(path):
    """Names of the parts of calibrant that a file imports."""
    for node in nodes_of(path):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [
                f"{node.module}.{alias.name}" if node.module == "calibrant" else node.module for alias in node.names
            ]
        for name in names:
            head, *rest = name.split(".")
            assert head != "tests", path
            if head == "calibrant" and rest:
                yield rest[0]


def against_the_arrow(path, here):
    """Imports that point the wrong way, of a file of the part ``here``."""
    if here in ("__init__", "__main__"):
        return []
    others = set(imported_parts(path)) - {"__version__"}
    return [f"{path}: {here} imports {other}" for other in others if ORDER.index(other) > ORDER.index(here)]


@pytest.mark.slow
def test_imports_follow_the_arrow():
    assert not [line for path in modules() for line in against_the_arrow(path, part(path))]


MEASURING = (
    "base", "predictions", "metrics", "posthoc", "promises", "policy", "papers", "auditing", "monitoring", "report",
)  # fmt: skip
TRAINING = {
    "data", "targets", "models", "losses", "_lens", "_tensor_sketch", "torchmetrics", "training", "detection",
}  # fmt: skip
#: Of the measuring half, what hands its formulas or numbers over to PyTorch; imported by nothing else there.
BRIDGES = {
    "base/arrays.py": {"torch"},
    "base/torchvision_operators.py": {"torch", "torchvision"},
    "posthoc/ops.py": {"torch"},
    "policy/module.py": {"torch", "needs_torch"},
}


def test_the_measuring_half_needs_no_pytorch():
    assert not [line for path in modules() if part(path) in MEASURING for line in foreign_imports(path)]


def foreign_imports(path):
    """Imports of the training half by a file of the measuring half."""
    name = path.relative_to(SOURCE).as_posix()
    typing_only = {
        id(inner)
        for node in nodes_of(path)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    heads = set()
    for node in nodes_of(path):
        if id(node) not in typing_only and isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names}
            heads |= names if isinstance(node, ast.Import) or node.module == "calibrant.base.extras" else {node.module}
    foreign = {head.split(".")[0] for head in heads} & {
        "needs_torch", "torch", "torchvision", "torchmetrics", "lightning_fabric",
    }  # fmt: skip
    others = set() if name in BRIDGES else TRAINING & set(imported_parts(path))
    return [f"{name} imports {other}" for other in sorted(foreign - BRIDGES.get(name, set()) | others)]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name):
    module = importlib.import_module(name)
    added = METRICS if name == "calibrant.metrics" else ()  # a new metric is public by its line in the catalogue
    assert sorted(module.__all__) == sorted({*PUBLIC[name], *added})
    for public in module.__all__:
        assert getattr(module, public) is not None
        assert getattr(module, public).__doc__


PLAIN = {"CALIBRATORS", "Calibrator", "METRICS", "Loss", "Method", "Target", "Terms", "nll", "register"}


@pytest.mark.parametrize("part", ["losses", "metrics", "papers", "policy", "posthoc", "promises", "targets"])
def test_every_public_function_and_method_has_an_example(part):
    """Of classes losses, calibrators and the sketch; tables and what others are made of have none."""
    module = importlib.import_module(f"calibrant.{part}")
    for name in set(PUBLIC[f"calibrant.{part}"]) - PLAIN:
        if name[0].islower() or name == "ConfidenceSketch" or part in ("losses", "posthoc"):
            assert ">>>" in (getattr(module, name).__doc__ or ""), name


@pytest.mark.slow
def test_a_class_name_has_one_meaning():
    """Public ones of `calibrant.torchmetrics` mirror those they wrap."""
    homes: dict[str, list[str]] = {}
    for path in modules():
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and path.name != "torchmetrics.py":
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert not {name: paths for name, paths in homes.items() if len(paths) > 1}
