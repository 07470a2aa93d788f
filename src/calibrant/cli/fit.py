"""``calibrant fit``: a policy that answers or abstains, with a risk that holds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant._files import check_output
from calibrant._numbers import allowed, count, difference, number, percent, round_percent
from calibrant.cli.console import print_json, print_table, remark, say, show_progress
from calibrant.cli.cost_file import read_costs
from calibrant.cli.options import (
    Centre,
    ClassNames,
    Column,
    IgnoreIndex,
    Json,
    Positive,
    Quiet,
    Segmentation,
    how_to_open,
)
from calibrant.cli.set_table import print_set_counts
from calibrant.predictions import Predictions
from calibrant.selective import Policy, Threshold, to_dict


def fit_command(
    files: Annotated[
        str,
        typer.Argument(
            metavar="PREDICTIONS",
            help="Held-out predictions: .npz, .npy, .parquet, .safetensors or .csv, a folder or a quoted glob.",
        ),
    ],
    target_risk: Annotated[
        float | None, typer.Option(help="Allowed share of wrong answers (0.05 if not given).")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the guaranteed risk.")] = 0.95,
    target_coverage: Annotated[
        float | None, typer.Option(help="Instead of a risk: share of samples to answer.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Policy to write.")] = Path("policy.json"),
    method: Annotated[
        str, typer.Option(help="How the threshold is found: best, fixed-sequence, sgr or empirical.")
    ] = "best",
    calibrator: Annotated[str, typer.Option(help="auto, none, temperature, ensemble, isotonic or vector.")] = "auto",
    score: Annotated[
        str, typer.Option(help="auto, msp, max_logit, margin, negative_entropy, energy or normalised_max_logit.")
    ] = "auto",
    centre: Centre = None,
    group: Annotated[str | None, typer.Option(help="Fit a separate threshold for each value of this column.")] = None,
    by_class: Annotated[
        bool, typer.Option("--by-class", help="Promise the risk for the answers of every predicted class, all at once.")
    ] = False,
    promise: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of a risk: precision=CLASS:SHARE (repeat for more classes), recall=CLASS:SHARE or "
            "expected-risk:SHARE."
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(help="Instead of a risk: a .csv or .json of what answers cost, a row per label, in order."),
    ] = None,
    target_cost: Annotated[float | None, typer.Option(help="With --costs: allowed mean cost of answers.")] = None,
    abstain_cost: Annotated[
        float | None, typer.Option(help="With --costs: give no answer that is expected to cost more.")
    ] = None,
    sets: Annotated[
        float | None, typer.Option(help="Also give prediction sets that hold the true class this often, such as 0.95.")
    ] = None,
    set_method: Annotated[
        str, typer.Option(help="How the sets are made: lac, aps, raps or class-conditional.")
    ] = "lac",
    set_penalty: Annotated[float | None, typer.Option(help="Penalty of RAPS (chosen if not given).")] = None,
    set_free_ranks: Annotated[
        int | None, typer.Option(help="Classes that RAPS has without a penalty (chosen if not given).")
    ] = None,
    set_randomised: Annotated[bool, typer.Option("--set-randomised", help="Randomise APS or RAPS, by --seed.")] = False,
    column: Column = None,
    class_names: ClassNames = None,
    positive: Positive = None,
    segmentation: Segmentation = False,
    ignore_index: IgnoreIndex = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repair a model and decide when it may answer: fit a calibrator, a score and a threshold on held-out predictions.

    A fifth of the samples chooses calibrator and score, the others set the threshold, so that with the given confidence
    the share of wrong answers stays below the target on new samples of the same kind.
    """
    if output.suffix.lower() != ".json":
        raise ValueError(f"--output {output}: a policy is written as .json, got {output.suffix!r}")
    check_output(output)
    opening = how_to_open(column, class_names, positive, segmentation, ignore_index)
    predictions = Predictions.open(files, groups=None if group is None else [group], **opening)
    with show_progress(quiet) as progress:
        policy = Policy.fit(
            predictions,
            target_risk,
            confidence,
            target_coverage=target_coverage,
            method=method,  # type: ignore[arg-type]  # checked there
            calibrator=calibrator,
            score=score,
            centre=centre,
            group=group,
            by_class=by_class,
            promise=promise or None,
            costs=None if costs is None else read_costs(costs, predictions.class_names),
            target_cost=target_cost,
            abstain_cost=abstain_cost,
            sets=sets,
            set_method=set_method,
            set_penalty=set_penalty,
            set_free_ranks=set_free_ranks,
            set_randomised=set_randomised,
            seed=seed,
            progress=progress,
        )
    policy.save(output)
    if as_json:
        print_json(to_dict(policy))
    elif not quiet:
        print_policy(policy)
    remark(f"wrote {output}", quiet)


def print_policy(policy: Policy) -> None:
    """What the policy does, promises and rests on, on standard output."""
    say(policy.summary)
    if policy.kind == "segmentation" and not policy.abstains:
        say(policy.threshold.reason)
    say(policy.method_summary)
    for line in filter(None, (policy.calibration_summary, policy.calibration_warning, policy.majority_summary)):
        say(line)
    evidence = policy.evidence
    unit = "images" if policy.kind == "segmentation" else "samples"
    verb = "chose" if evidence["calibrators"] or evidence["scores"] else "planned the tests"
    chosen = f"{count(evidence['for_choice'])} {unit} {verb}" if evidence["for_choice"] else "nothing was chosen"
    say(f"Of {count(evidence['samples'])} {unit} {chosen}, {count(evidence['for_threshold'])} set the threshold.")
    if policy.part_column is not None:
        each = next(iter(policy.parts.values())).confidence
        head = ["", "samples", "answers", "wrong", "" if each is None else f"with {round_percent(each)} confidence"]
        if policy.classes is not None:
            head[-1] = "at once"
        print_table(
            f"\nBy {policy.part_column}", head, [_threshold_row(name, own) for name, own in policy.parts.items()]
        )
    print_sets(policy)
    for title, metric, rows in (
        ("\nCalibrators tried (cross-fitted)", "NLL", evidence["calibrators"]),
        ("\nScores tried (cross-fitted)", "AURC", evidence["scores"]),
    ):
        if len(rows) > 1:
            head = ["", metric, *["ECE"] * (metric == "NLL"), "change", "against", "by its standard error", "chosen"]
            print_table(title, head, [_row(row) for row in rows])


def print_sets(policy: Policy) -> None:
    """What the prediction sets promise, and what they are on the samples of the quantile."""
    if policy.sets is None:
        return
    for line in policy.sets.sentences(policy.class_names):
        say(line)
    if policy.sets.counts is not None:
        say("On the samples of the quantile:")
        print_set_counts(policy.sets.counts, policy.class_names)


def _threshold_row(name: str, threshold: Threshold) -> list[str]:
    samples = count(threshold.samples)
    if threshold.abstains:
        needed = "" if threshold.needed is None else f"{count(threshold.needed)} samples needed"
        return [name, samples, "never answers", "", needed]
    risk = threshold.risk
    limit = "" if threshold.confidence is None or math.isnan(risk.high) else f"at most {allowed(risk.high)}"
    return [name, samples, percent(threshold.coverage.value), percent(risk.value), limit]


def _row(tried: dict[str, Any]) -> list[str]:
    change, low, high = tried["change"], tried["low"], tried["high"]
    chosen = "yes" if tried["chosen"] else ""
    values = [number(tried["value"]), *([percent(tried["ece"])] if tried.get("ece") is not None else [])]
    if change is None:
        return [tried["name"], *values, "", "", "", chosen]
    is_tested = high is not None and low is not None and math.isfinite(high)
    beyond = "better" if is_tested and high < 0 else "worse" if is_tested and low > 0 else "no"
    return [tried["name"], *values, difference(change, "number"), tried["against"] or "", beyond, chosen]
