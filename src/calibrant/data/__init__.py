"""Data sets: readers, boxes and crops, variants, mixing, splits, batches, and embedded data sets."""

from calibrant.base.extras import needs_torch
from calibrant.data.batches import Batch, Batches, normalised
from calibrant.data.boxes import Boxes, objectness
from calibrant.data.dataset import NO_CLASS, Dataset, OnError, Sample
from calibrant.data.files import UnreadableError
from calibrant.data.inspection import NO_CLASS_PIXELS, Inspection, SplitFacts, inspect
from calibrant.data.label_noise import with_wrong_labels
from calibrant.data.layouts import Layout, layouts, read, recognise
from calibrant.data.mixing import RICAP, CutMix, Cutout, Mixed, Mixup, RandomErasing
from calibrant.data.pipeline import Pipeline
from calibrant.data.readers.calibrant_folder import check_folder, check_images, check_writable, write_dataset
from calibrant.data.readers.mnist import FASHION, find_mnist, name_of_files
from calibrant.data.rendering import boxes_in_view, image_to_view, objectness_of, sample_generator, view_to_image
from calibrant.data.sources import ImageArray, ImageFiles, Rows, TextFiles
from calibrant.data.splits import HOLD_OUTS, by_ids, disjoint, hold_out, resample
from calibrant.data.text import Vocabulary, encoded, learn_vectors, read_glove
from calibrant.data.transforms import (
    CentreCrop,
    ColourJitter,
    Pad,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    Step,
    View,
    draw_view,
)
from calibrant.data.variants import context_only, need_boxes, pixel_mean, single_object

__all__ = [
    "HOLD_OUTS",
    "NO_CLASS",
    "RICAP",
    "Batch",
    "Batches",
    "Boxes",
    "CentreCrop",
    "ColourJitter",
    "CutMix",
    "Cutout",
    "Dataset",
    "ImageArray",
    "ImageFiles",
    "Mixup",
    "Pad",
    "Pipeline",
    "RandomCrop",
    "RandomErasing",
    "RandomFlip",
    "RandomResizedCrop",
    "Resize",
    "Rows",
    "Sample",
    "TextFiles",
    "UnreadableError",
    "View",
    "Vocabulary",
    "by_ids",
    "context_only",
    "disjoint",
    "encoded",
    "hold_out",
    "layouts",
    "learn_vectors",
    "normalised",
    "objectness",
    "pixel_mean",
    "read",
    "read_glove",
    "resample",
    "single_object",
    "with_wrong_labels",
]
