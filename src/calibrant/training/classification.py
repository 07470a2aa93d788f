"""Classification of samples or pixels: the model gives logits, and the recipe's loss trains it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.data import Batch, Batches, Dataset, learn_vectors, normalised, read_glove, sample_generator
from calibrant.models import evaluation_mode, physical_memory
from calibrant.predictions import Predictions
from calibrant.targets import adaptive_targets, mixed_adaptive_targets
from calibrant.training.datasets import DataSets, evaluation_pipeline
from calibrant.training.distributed import gather_rows
from calibrant.training.prediction import (
    ClassLogits,
    DatasetTally,
    check_logits_fit,
    forward,
    labels_at,
    logits_by_batch,
    object_numbers,
    predict_dataset,
    predictor,
)
from calibrant.training.recipe import Recipe
from calibrant.training.run import DivergedError, EventLog, MicroBatch, Run, Task, dtype_of, make_model, unwrap
from calibrant.training.run_folder import ABSTENTION, MODEL_FACTS, PREDICTIONS, RunFolder

# Random stream of mixing and blanking; samples have streams from 0 on, their order has -1.
_MIXING = -2


class Classification(Task):
    """A network with a logit for every class, trained by the recipe's loss, mixing and targets."""

    def check(self, recipe: Recipe, sets: DataSets) -> None:
        """Refuse settings that would have no effect on these data."""
        train = sets.train
        plain = "data of images with one class each"
        is_plain = train.kind == "image" and train.masks is None
        if recipe.mixing is not None and not is_plain:
            raise ValueError(f"mixing is for {plain}, and {train.title} is not")
        if recipe.targets.name == "adaptive" and (not is_plain or train.boxes is None):
            raise ValueError(f"adaptive targets are for {plain} and boxes, and {train.title} is not or has none")
        for dataset in sets.evaluated.values():
            check_logits_fit(evaluation_pipeline(recipe, dataset), recipe.data.pixels)

    def model(self, recipe: Recipe, sets: DataSets, *, trust_code: bool) -> nn.Module:
        """The recipe's network, with its word vectors if it has any."""
        text, vectors = recipe.data.text, None
        if text is not None and sets.vocabulary is not None:
            if text.vectors is not None:
                vectors = read_glove(text.vectors, sets.vocabulary, text.dimensions, seed=recipe.seed).values
            elif text.learn_vectors:
                rows = np.stack([sample.input for sample in sets.train])
                vectors = learn_vectors(rows, len(sets.vocabulary), text.dimensions)
        return make_model(recipe, len(sets.train.classes), sets.vocabulary_size, vectors, trust_code=trust_code)

    def rehearse(self, run: Run) -> None:
        """Raise a ValueError unless the model takes the inputs, gives a logit for each class, and the loss takes both.

        Where possible the model is run on tensors without values (device "meta"): this takes no time, draws no random
        numbers and changes nothing.
        """
        rows = list(range(min(2, len(run.pipeline), run.batches.size)))
        batch = run.pipeline.batch(rows).to(run.fabric.device)
        inputs, target = _inputs_and_target(run, batch)
        needed, memory = run.samples_per_batch / run.fabric.world_size * inputs[0].nbytes, physical_memory()
        if needed > memory:
            raise ValueError(
                f"a batch of {run.batches.size} inputs of shape {list(inputs.shape[1:])} takes "
                f"{needed / 2**30:,.0f} GB, and this machine has {memory / 2**30:,.0f} GB"
            )
        logits = _empty_logits(run, inputs)
        classes, more = len(run.pipeline.dataset.classes), run.loss.extra_logits
        if logits.dim() < 2 or len(logits) != len(inputs) or logits.shape[1] != classes + more:
            words = f"{classes} classes and {more} more" if more else f"{classes} classes"
            raise ValueError(
                f"model {run.recipe.model.name!r} gives {list(logits.shape)} for inputs of shape {list(inputs.shape)}: "
                f"logits of {words} are needed, [{len(inputs)}, {classes + more}, ...]"
            )
        with torch.no_grad():
            run.loss(logits, labels_at(target, logits), ids=batch.indices)

    def parts(self, run: Run, batch: Batch) -> list[MicroBatch]:
        """Micro-batches weighted by their samples, or by their labelled pixels."""
        inputs, target = _inputs_and_target(run, batch)
        number, world = run.recipe.training.accumulate, run.fabric.world_size
        chunks = list(zip(inputs.chunk(number), target.chunk(number), batch.indices.chunk(number), strict=True))
        if target.dim() == 3:
            counts = [int((t != run.loss.ignore_index).sum()) for _, t, _ in chunks]
            total = int(run.fabric.all_reduce(torch.tensor(sum(counts)), reduce_op="sum")) if world > 1 else sum(counts)
        else:
            counts, total = [len(x) for x, _, _ in chunks], run.batch_size
        # Gradients are averaged over processes, hence the factor ``world``.
        return [MicroBatch(*chunk, count * world / max(total, 1)) for chunk, count in zip(chunks, counts, strict=True)]

    def loss(self, run: Run, part: MicroBatch) -> tuple[Tensor | None, Tensor]:
        """The weighted loss of a part, None if its logits are not finite, and the logits."""
        logits = forward(run.model, part.inputs, run.recipe.model.name, is_first=not run.has_begun)
        run.has_begun = True
        try:
            value = run.loss(logits, labels_at(part.target, logits), ids=part.ids)
        except ValueError:
            if bool(torch.isfinite(logits).all()):
                raise
            return None, logits.detach()
        return (value if part.weight == 1.0 else value * part.weight), logits.detach()

    def terms(self, run: Run, part: MicroBatch, output: Any) -> dict[str, float]:
        """Fidelity and regulariser of a part."""
        terms = run.loss.terms(output, labels_at(part.target, output), ids=part.ids)
        return {name: float(term) for name, term in terms.items()}

    def remember(self, run: Run, parts: list[MicroBatch], outputs: list[Any]) -> None:
        """Update the loss's memory; in every process with the samples of all."""
        columns = (torch.cat(outputs), *(torch.cat(c) for c in ([p.target for p in parts], [p.ids for p in parts])))
        world = run.fabric.world_size
        logits, target, ids = (_gather(x, world, run.batch_size) for x in columns) if world > 1 else columns
        run.loss.update(logits, target, ids=ids)

    def validate(self, run: Run, val: Dataset) -> dict[str, float]:
        """Every metric of one pass over the data; each process takes its share of the samples."""
        settings = run.recipe.training
        pipeline = evaluation_pipeline(run.recipe, val)
        batches = Batches(len(pipeline), settings.eval_batch_size, shuffle=False, rank=run.fabric.global_rank,
                          world=run.fabric.world_size)  # fmt: skip
        tally = DatasetTally(val, run.fabric.device, exclude=run.recipe.data.exclude, shared=True)
        loader = pipeline.loader(batches, settings.workers)
        model = predictor(unwrap(run.model), run.recipe, len(val.classes))
        batches_with_logits = logits_by_batch(
            model, loader, *run.recipe.data.normalisation, run.fabric.device,
            interpolate=run.recipe.data.interpolate,
        )  # fmt: skip
        observed: list[Tensor] = []
        for batch, logits in batches_with_logits:
            if not bool(torch.isfinite(logits).all()):
                step = run.progress.step
                raise DivergedError(f"logits of validation samples became NaN or infinite after step {step}")
            target = batch.labels if batch.masks is None else batch.masks
            tally.update(logits, target)
            if run.loss.learns_from_validation:
                observed.append(run.loss.observe(logits, labels_at(target, logits).to(logits.device)))
        if run.loss.learns_from_validation:
            run.observed = gather_rows(observed, run.fabric.device)
        return tally.compute()

    def evaluate(self, run: Run, sets: DataSets, folder: RunFolder, event_log: EventLog) -> dict[str, dict[str, float]]:
        """Write the predictions of every set, and the model's input and classes."""
        model = predictor(unwrap(run.model), run.recipe, len(sets.train.classes))
        device, numbers = run.fabric.device, {}
        for name, dataset in sets.evaluated.items():
            event_log("predicting", {"set": name})
            tally = DatasetTally(dataset, device, exclude=run.recipe.data.exclude)
            abstaining = model if isinstance(model, ClassLogits) and dataset.masks is None else None
            if abstaining is not None:
                abstaining.reserved = []
            predictions = predict_dataset(run.recipe, model, dataset, device, tally=tally)
            predictions.save(folder / f"{name}{PREDICTIONS}")
            if abstaining is not None and abstaining.reserved:
                correct = np.asarray(predictions.logits).argmax(1) == np.asarray(predictions.labels)
                kept = 1 - torch.cat(abstaining.reserved).numpy()
                trust = Predictions.from_confidence(kept, correct, ids=np.asarray(predictions.ids))
                trust.save(folder / f"{name}{ABSTENTION}")
            numbers[name] = tally.compute() | object_numbers(predictions)
            event_log("predicted", {"set": name, **numbers[name]})
        inputs = evaluation_pipeline(run.recipe, sets.test).batch([0]).inputs
        facts = {
            "classes": list(sets.test.classes),
            "input_shape": list(inputs.shape[1:]),
            "images": sets.test.kind == "image",
            "input_dtype": str(inputs.dtype).removeprefix("torch."),
            "vocabulary_size": sets.vocabulary_size,
            "samples": {"train": len(sets.train), "test": len(sets.test)}
            | ({} if sets.val is None else {"val": len(sets.val)}),
        }
        folder.write(MODEL_FACTS, facts)
        return numbers


def _inputs_and_target(run: Run, batch: Batch) -> tuple[Tensor, Tensor]:
    recipe, classes = run.recipe, len(run.pipeline.dataset.classes)
    dtype = dtype_of(recipe)
    if run.pipeline.dataset.kind != "image":
        inputs = batch.inputs.to(dtype) if batch.inputs.is_floating_point() else batch.inputs
        return inputs, batch.labels
    inputs = normalised(batch.inputs, *recipe.data.normalisation, dtype)
    if recipe.training.channels_last:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    adaptive = recipe.targets.name == "adaptive"
    plain_target = run.mixing is batch.context is None and not adaptive
    if plain_target and run.blanking is None:  # and no generator is needed
        return inputs, batch.labels if batch.masks is None else batch.masks
    random = sample_generator(recipe.seed, run.progress.step, _MIXING)
    if run.blanking is not None:
        inputs = run.blanking(inputs, random)
    if batch.masks is not None:
        return inputs, batch.masks
    if plain_target:
        return inputs, batch.labels
    share = batch.objectness if adaptive and batch.objectness is not None else 1.0
    settings: dict[str, Any] = {"beta": recipe.targets.beta, "context": batch.context, "dtype": torch.float32}
    if run.mixing is None:
        return inputs, adaptive_targets(batch.labels, share, classes, unknown="hard", **settings)
    mixed = run.mixing(inputs, random)
    if adaptive and recipe.targets.object_aware_mixing and batch.boxes is not None:
        target = mixed_adaptive_targets(mixed, batch.labels, batch.boxes, batch.views, classes, **settings)
    else:
        target = mixed.targets(adaptive_targets(batch.labels, share, classes, unknown="hard", **settings))
    return mixed.images, target


def _gather(rows: Tensor, world: int, total: int) -> Tensor:
    """The rows of all processes as one batch, in the order they had before they were distributed."""
    padding = -(-total // world) - len(rows)  # some processes have one row less if the batch does not divide evenly
    rows = torch.cat([rows, rows[:1].expand(padding, *rows.shape[1:])]) if padding else rows.contiguous()
    parts = [torch.empty_like(rows) for _ in range(world)]
    torch.distributed.all_gather(parts, rows)
    return torch.stack(parts, dim=1).flatten(0, 1)[:total]


def _empty_logits(run: Run, inputs: Tensor) -> Tensor:
    """Zeros of the shape of the logits of a few inputs."""
    model, name = unwrap(run.model), run.recipe.model.name
    count = -(-run.samples_per_batch // (run.fabric.world_size * run.recipe.training.accumulate))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            tensors = dict(model.named_parameters()) | dict(model.named_buffers())
            shapes = {key: torch.empty_like(tensor, device="meta") for key, tensor in tensors.items()}
            without_values = inputs.new_empty((count, *inputs.shape[1:]), device="meta")
            call = functools.partial(torch.func.functional_call, model, shapes)
            shape = forward(call, without_values, name, is_first=True).shape
            shape = torch.Size((len(inputs), *shape[1:])) if shape[:1] == (count,) else shape
        except ValueError:
            if ":" not in name and "/" not in name:
                raise
            # A model of other code may read values, which "meta" does not have, or learn its sizes from them.
            with evaluation_mode(model):
                shape = forward(model, inputs, name, is_first=True).shape
    return torch.zeros(shape, dtype=inputs.dtype if inputs.is_floating_point() else None, device=inputs.device)
