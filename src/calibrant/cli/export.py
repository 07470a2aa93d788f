"""``calibrant export``: a model and its policy as one ONNX file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant.base.checks import listing
from calibrant.base.files import parse_json
from calibrant.cli.console import print_json, print_line, print_table, remark, show_progress
from calibrant.cli.options import Column, Json, Quiet, TrustCode, check_kind, open_for_policy, parse_opening, trusts_run
from calibrant.cli.schema import versioned
from calibrant.export import Exported, export_onnx, read_decisions, read_inputs
from calibrant.policy import Policy


def export_command(
    policy: Annotated[Path, typer.Option(help="The policy's file, from `calibrant fit`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")] = Path("model.onnx"),
    model: Annotated[
        str | None,
        typer.Option(
            help="A PyTorch model: package.module:factory, a function or class that gives one; the current folder is "
            "looked in too."
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Its weights: .safetensors, or a state dict saved by torch.save.")
    ] = None,
    model_args: Annotated[
        str | None, typer.Option(help="Keywords for the factory as JSON: '{\"num_classes\": 10}'.")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="Or the folder of a run, from `calibrant train`: its model, taking images with values from 0 to 1."
        ),
    ] = None,
    onnx: Annotated[Path | None, typer.Option(help="Or an existing ONNX model, of any framework.")] = None,
    logits_only: Annotated[
        bool, typer.Option("--logits-only", help="Or no model: export a graph that takes the logits.")
    ] = False,
    tensor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which tensor of the model is the logits (or the probabilities, if the policy takes them), where "
            "several outputs could be; of an ONNX model any tensor may be named.",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Which output is the model's own label, where several could be; none: no output is."
        ),
    ] = None,
    logits_output: Annotated[str | None, typer.Option(hidden=True)] = None,  # what --tensor was called
    input_shape: Annotated[
        str | None, typer.Option(help="Shape of the model's input without the batch: 3,224,224.")
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="Real inputs for the check, .npy or .npz by name; else random ones.")
    ] = None,
    expected: Annotated[
        str | None,
        typer.Option(
            help="The right answers for the rows of --inputs: their predictions (as for calibrant fit), decisions of "
            "calibrant apply, or predicted labels in .npy or .npz. A graph that contradicts them is not written."
        ),
    ] = None,
    column: Column = None,
    opset: Annotated[int | None, typer.Option(help="Opset of the graph; an existing ONNX model keeps its own.")] = None,
    trust_code: TrustCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a model and its policy as one ONNX graph: label, calibrated confidence, accept, probabilities.

    Checked before it is written: onnxruntime must answer as the policy does, the largest output be the model's own
    label if it gives one, and the answers those of --expected. What could not be checked is printed.
    """
    sources = {"--model": model is not None, "--run": run is not None, "--onnx": onnx is not None}
    sources["--logits-only"] = logits_only
    if sum(sources.values()) != 1:
        options = " and ".join(name for name, is_set in sources.items() if is_set) or "none"
        raise ValueError(f"one of {', '.join(sources)} is needed, got {options}")
    for name, value in (("--weights", weights), ("--model-args", model_args)):
        if value is not None and model is None:
            raise ValueError(f"{name} goes with --model")
    if column is not None and expected is None:
        raise ValueError("--column goes with --expected")
    if trust_code and run is None:
        raise ValueError("--trust-code goes with --run: the model of --model is run as you name it")
    check_kind(output, "a graph", ".onnx", inputs=[policy, weights, onnx, inputs, expected])
    if not policy.exists():
        raise ValueError(f"--policy {policy}: there is no such file")
    fitted = Policy.load(policy)
    examples = None if inputs is None else _inputs(inputs)
    answers = None if expected is None else _expected(fitted, expected, column, has_inputs=inputs is not None)
    shape = None if input_shape is None else _shape(input_shape)
    network, names = None, list[str]()
    if model is not None:
        from calibrant.export import load_model  # here, because it imports PyTorch

        network = load_model(model, weights, _keywords(model_args))
    if run is not None:
        from calibrant.training import example_inputs
        from calibrant.training import load_model as model_of_run  # here, because it brings much along

        network, run_shape, names = model_of_run(run, trust_code=trusts_run(run, trust_code))
        shape = shape or run_shape
        examples = example_inputs(run) if inputs is None else examples
    with show_progress(quiet) as progress:
        progress("exporting", 0, None)
        exported = export_onnx(
            fitted,
            output,
            model=network,
            onnx_model=onnx,
            input_shape=shape,
            output=tensor or logits_output,
            labels=labels,
            inputs=examples,
            expected=answers,
            class_names=names or None,
            opset=opset,
        )
    if model is not None and weights is None:
        remark("no --weights: the model is exported as the factory made it", quiet)
    if as_json:
        print_json(versioned("export", _document(exported)))
    elif not quiet:
        _print(exported)
    if fitted.group_names is not None:
        indices = listing([f"{index} = {name}" for index, name in enumerate(fitted.group_names)], 20)
        remark(
            f"note: the input group is the index of a sample's {fitted.group}: {indices}; others are not accepted",
            quiet,
        )
    for text in exported.remarks:
        remark(f"note: {text}", quiet)
    remark(f"wrote {output}", quiet)


def _keywords(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    excerpt = repr(text if len(text) <= 60 else f"{text[:60]}...")
    try:
        keywords = parse_json(text, "keywords")
    except ValueError as error:
        raise ValueError(f'--model-args must be JSON like {{"num_classes": 10}}, got {excerpt} ({error})') from None
    if not isinstance(keywords, dict):
        raise ValueError(f'--model-args must be keywords like {{"num_classes": 10}}, got {excerpt}')
    return keywords


def _shape(text: str) -> list[int]:
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdecimal() and len(part.strip()) < 10 and int(part) > 0 for part in parts):
        raise ValueError(f"--input-shape must be whole numbers above 0 like 3,224,224, got {text[:60]!r}")
    return [int(part) for part in parts]


def _inputs(path: Path) -> Any:
    if not path.exists():
        raise ValueError(f"--inputs {path}: there is no such file")
    try:
        return read_inputs(path)
    except ValueError as error:
        raise ValueError(f"--inputs {error}") from None


def _expected(policy: Policy, files: str, column: list[str] | None, *, has_inputs: bool) -> Any:
    """Decisions as a path, predictions opened as the policy needs them."""
    if not has_inputs:
        raise ValueError("--expected goes with --inputs: the inputs of the same rows")
    if column is None and Path(files).is_file() and read_decisions(Path(files)) is not None:
        return files
    opening = parse_opening(column, None, None, policy.kind == "segmentation", None)
    groups = None if policy.group is None else [policy.group]
    return open_for_policy(policy, files, groups=groups, unlabelled=True, **opening)


def _document(exported: Exported) -> dict[str, Any]:
    def describe(tensors: Any) -> list[dict[str, Any]]:
        return [{"name": t.name, "type": t.kind, "shape": t.dims and list(t.dims)} for t in tensors]

    return {
        "path": str(exported.path),
        "inputs": describe(exported.inputs),
        "outputs": describe(exported.outputs),
        "opset": exported.opset,
        "rows": exported.rows,
        "accepted": exported.accepted,
        "undecided": exported.undecided,
        "largest_difference": exported.difference,
        "checks": [dataclasses.asdict(agreement) for agreement in exported.checks],
        "not_checked": list(exported.not_checked),
        "remarks": list(exported.remarks),
    }


def _print(exported: Exported) -> None:
    rows = [
        [tensor.name, side, (tensor.kind or "?").lower(), _dims(tensor.dims)]
        for side, tensors in (("input", exported.inputs), ("output", exported.outputs))
        for tensor in tensors
    ]
    print_table(f"{exported.path} (opset {exported.opset})", ["", "", "type", "shape"], rows, numbers=False)
    for agreement in exported.checks:
        print_line(f"Checked: {agreement.text}.")
    for text in exported.not_checked:
        print_line(f"Not checked: {text}.")


def _dims(dims: Any) -> str:
    return "?" if dims is None else f"[{', '.join('?' if d is None else str(d) for d in dims)}]"
