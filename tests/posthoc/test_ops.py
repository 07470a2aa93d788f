"""Formulas in `TorchOps` go through `torch.export`, with every score and every calibrator."""

import pytest
import torch

from calibrant.posthoc import TemperatureScaling
from tests.helpers.exports import SCORES, calibrators, data, limit_of, make_policy, trial_logits


@pytest.mark.slow
@pytest.mark.parametrize("score", SCORES, ids=str)
def test_the_module_can_be_exported_by_torch(score):
    z, y = data(400)
    # Every score once, and every calibrator once with the first of them.
    for calibrator in calibrators() if score is SCORES[0] else [TemperatureScaling()]:
        if calibrator is not None:
            calibrator.fit(z, y)
        policy = make_policy(score, limit_of(score, calibrator, z), calibrator=calibrator)
        batch = {"inputs": {0: torch.export.Dim("batch")}}
        program = torch.export.export(policy.module(), (torch.from_numpy(z[:7]),), dynamic_shapes=batch)
        trial = torch.from_numpy(trial_logits())
        for one, other in zip(program.module()(trial), policy.module()(trial), strict=True):
            assert torch.equal(one, other)
