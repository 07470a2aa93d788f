"""timm's own train script, unchanged, with a Calibrant loss.

    python examples/timm_script.py acls:margin=6 train.py --data-dir DIR --model resnet18 --smoothing 0.1 ...

The script builds its loss from flags and cannot be given one. With `--smoothing` above 0 and no mixing it builds
`timm.loss.LabelSmoothingCrossEntropy`; with `--mixup` or `--cutmix`, `timm.loss.SoftTargetCrossEntropy`. Here both
names give the Calibrant loss before the script is read. The value of `--smoothing` is then a switch only, except with
mixing, where timm smooths the labels by it: pass 0 there. Validation keeps its cross-entropy. Leave out `--bce-loss`
and `--jsd-loss`. Losses that need sample ids (CRL, CaPE) cannot be used: the script does not pass any.

The first argument is a loss as in `calibrant lens --losses`; the second the path of timm's `train.py`, which is in
timm's repository, not in its package.
"""

from __future__ import annotations

import runpy
import sys

from calibrant.cli.options import parse_losses
from calibrant.losses import Loss
from calibrant.torchmetrics import ConfidenceSketch  # noqa: F401  (supplies torchvision's operators where they do not load)


def main(arguments: list[str]) -> None:
    """Run the script with its own arguments.

    Args:
        arguments: the loss, the script, and what the script takes.
    """
    name, script, *rest = arguments
    ((_, loss),) = parse_losses(name).items()

    def chosen(**_: object) -> Loss:
        print(f"timm_script: training with {loss}", file=sys.stderr)
        return loss

    import timm.loss

    timm.loss.LabelSmoothingCrossEntropy = timm.loss.SoftTargetCrossEntropy = chosen
    sys.argv = [script, *rest]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
