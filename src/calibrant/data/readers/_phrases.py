"""What several readers find, in the same words: findings are counted by them."""

from __future__ import annotations

#: Skipped.
UNREADABLE = "image that cannot be read"
MISSING = "image that is missing"
TWICE = "image that is listed twice"
NAME_OUT = "file name that leads out of the data folder"
NO_LABEL = "image without a label"
BAD_LABEL = "label outside the classes"
NO_PROBABILITIES = "soft labels that are no probabilities"
BAD_ANNOTATION = "annotation that cannot be read"
INVERTED = "inverted box"
NO_NUMBERS = "box that is not made of numbers"
NOT_NORMALISED = "box that is not normalised"

#: Left out.
HIDDEN = "hidden file"
NO_ANNOTATION = "image without an annotation"
NOT_ASKED_FOR = "image without an object of the classes asked for"

#: Odd.
NO_AREA = "box without area"
LEAVES = "box that leaves the image"
NO_BOX = "image without a box"
NO_OBJECTS = "image without objects"
ONLY_CROWDS = "image that shows only crowds"
NO_SINGLE = "image without a single object of a class asked for"
OTHER_CLASS = "box of a class that was not asked for"
OTHER_SIZE = "size in the annotation that is not the image's"
ROTATED = "image with an EXIF rotation, which is not applied"
ONE_STEM = "images of one stem, of which one is used"
LATIN_1 = "not UTF-8, read as latin-1"
