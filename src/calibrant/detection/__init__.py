"""Object detectors on the networks of finished runs: how well a classifier transfers to another task [ALS]."""

from calibrant.base.extras import needs_torch
from calibrant.detection.coco_metrics import Detected, coco_metrics
from calibrant.detection.task import Backbone, Detection, check_detection, plan_run, read_backbones

__all__ = ["Backbone", "Detected", "Detection", "coco_metrics", "plan_run", "read_backbones"]
