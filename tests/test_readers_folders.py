"""Folders that look like other folders, PACS's lists, CamVid as it was published; expected values by hand."""

import numpy as np
import pytest
from PIL import Image

from calibrant.data import layouts, read, recognise
from calibrant.data.readers.image_folder import DOMAINS, pacs
from calibrant.data.readers.image_folder import PACS as PACS
from calibrant.data.readers.segmentation import CAMVID, camvid
from tests.box_files import cut, image, odd, skipped, write

# As label_colors.txt of the published set has them.
COLOURS = {
    "Animal": (64, 128, 64),
    "Archway": (192, 0, 128),
    "Bicyclist": (0, 128, 192),
    "Bridge": (0, 128, 64),
    "Building": (128, 0, 0),
    "Car": (64, 0, 128),
    "CartLuggagePram": (64, 0, 192),
    "Child": (192, 128, 64),
    "Column_Pole": (192, 192, 128),
    "Fence": (64, 64, 128),
    "LaneMkgsDriv": (128, 0, 192),
    "LaneMkgsNonDriv": (192, 0, 64),
    "Misc_Text": (128, 128, 64),
    "MotorcycleScooter": (192, 0, 192),
    "OtherMoving": (128, 64, 64),
    "ParkingBlock": (64, 192, 128),
    "Pedestrian": (64, 64, 0),
    "Road": (128, 64, 128),
    "RoadShoulder": (128, 128, 192),
    "Sidewalk": (0, 0, 192),
    "SignSymbol": (192, 128, 128),
    "Sky": (128, 128, 128),
    "SUVPickupTruck": (64, 128, 192),
    "TrafficCone": (0, 0, 64),
    "TrafficLight": (0, 64, 64),
    "Train": (192, 64, 128),
    "Tree": (128, 128, 0),
    "Truck_Bus": (192, 128, 192),
    "Tunnel": (64, 0, 64),
    "VegetationMisc": (192, 192, 0),
    "Void": (0, 0, 0),
    "Wall": (64, 192, 0),
}


@pytest.mark.parametrize(
    "names",
    [
        ("train2017", "val2017", "annotations"),
        ("Train2014", "cat", "dog"),
        ("images", "masks"),
        ("Images", "labels"),
        ("JPEGImages", "SegmentationClass"),
        ("train", "train_labels", "val"),
        ("testing", "trainannot"),
        ("frames", "frames_masks"),
        ("701_StillsRaw_full", "LabeledApproved_full"),
        ("train", "test"),
    ],
)
def test_parts_of_other_layouts_are_no_classes(tmp_path, names):
    for name in names:
        image(tmp_path / name / "1.png")
    assert layouts()["image-folder"].splits(tmp_path) == ()
    (tmp_path / "train" / "inner").mkdir(parents=True, exist_ok=True)
    assert layouts()["image-folder"].splits(tmp_path) == ()


def test_classes_that_are_called_nearly_so(tmp_path):
    for name in ("train", "bus", "mask", "no_mask", "label"):  # a train is a class here
        image(tmp_path / "set" / name / "1.png")
    assert read(tmp_path / "set").classes == ("bus", "label", "mask", "no_mask", "train")


def test_a_set_without_a_name_has_its_folder_s(tmp_path, monkeypatch):
    for name in ("a/1.png", "b/1.png"):
        image(tmp_path / "pets" / name)
    monkeypatch.chdir(tmp_path / "pets")
    assert read(".").name == "pets"


def test_empty_splits_say_why(tmp_path):
    for name in "ab":
        cut(image(tmp_path / name / "1.png", (30, 30)), 0.5)
    with pytest.raises(ValueError, match=r"'all' holds no image that can be used: image that cannot be read \(2\)$"):
        read(tmp_path, on_error="skip")


@pytest.mark.parametrize("place", ["", "Train val splits and h5py files pre-read"])
def test_pacs_lists(tmp_path, place):
    for domain in DOMAINS:
        for name in PACS:
            image(tmp_path / domain / name / "1.jpg")
    image(tmp_path / "photo/dog/2.jpg")
    lines = "kfold/photo/person/1.jpg 7\nphoto/dog/2.jpg 1\n\nphoto/dog/1.jpg 1\n"
    write(tmp_path / place / "photo_train_kfold.txt", lines)
    assert layouts()["pacs"].splits(tmp_path) == (*DOMAINS, "all", "photo-train")
    data = pacs(tmp_path, "photo-train")
    assert data.ids == ("photo/person/1.jpg", "photo/dog/2.jpg", "photo/dog/1.jpg")
    assert (data.labels.tolist(), data.groups) == ([6, 0, 0], ("photo",) * 3)
    assert len(pacs(tmp_path, "all")) == 29
    for line, what in (
        ("photo/dog/1.jpg 2", "label in the list that is not its folder's"),
        ("photo/dog/1.jpg", "line that names no image of the domain"),
        ("sketch/dog/1.jpg 1", "line that names no image of the domain"),
        ("photo/dog/9.jpg 1", "image that is missing"),
        ("photo/dog/.. 1", "file name that leads out of the data folder"),
        ("photo/dog/2.jpg 1", "image that is listed twice"),
    ):
        write(tmp_path / place / "photo_train_kfold.txt", f"photo/dog/2.jpg 1\n{line}\n")
        with pytest.raises(ValueError, match=what):
            pacs(tmp_path, "photo-train")
        data = pacs(tmp_path, "photo-train", on_error="skip")
        assert (data.ids, skipped(data.report), odd(data.report)) == (("photo/dog/2.jpg",), {what: 1}, {})


def published(root, names, colours=COLOURS):
    write(root / "label_colors.txt", "".join(f"{r} {g} {b}\t{n}\r\n" for n, (r, g, b) in colours.items()))
    image(root / "701_StillsRaw_full/0001.png", (len(names), 1))
    (root / "LabeledApproved_full").mkdir()
    pixels = np.array([[COLOURS.get(name, (1, 2, 3)) for name in names]], dtype=np.uint8)
    Image.fromarray(pixels).save(root / "LabeledApproved_full/0001_L.png")
    return root


def test_camvid_as_it_was_published(tmp_path):
    assert len(COLOURS) == 32
    assert sum(map(len, CAMVID.values())) == 31
    assert list(CAMVID)[:3] == ["Sky", "Building", "Pole"]
    names = ["Sky", "Bridge", "LaneMkgsDriv", "SUVPickupTruck", "Void", "Animal", "MotorcycleScooter", "Wall"]
    root = published(tmp_path, names)
    assert recognise(root)[0].name == "camvid"
    data = read(root)
    assert (data.split, data.ids, data.ignore_index) == ("all", ("701_StillsRaw_full/0001.png",), 11)
    assert np.asarray(data[0].mask).tolist() == [[0, 1, 3, 8, 11, 9, 10, 1]]
    assert np.asarray(data.take([0]).masks[0]).tolist() == [[0, 1, 3, 8, 11, 9, 10, 1]]


def test_camvid_with_other_colours(tmp_path):
    root = published(tmp_path / "a", ["Sky", "no such"])
    with pytest.raises(ValueError, match=r"0001_L\.png: the mask holds the colour \(1, 2, 3\), which is no label"):
        camvid(root, "all").masks[0]
    with pytest.raises(ValueError, match=r"holds no image that can be used: mask that cannot be read \(1\)"):
        camvid(root, "all", on_error="skip")
    for text in ("64 128 64 Sheep\n", "64 128 Animal\n", "64 128 256 Animal\n", "a b c Animal\n", "\n"):
        write(root / "label_colors.txt", text)
        with pytest.raises(ValueError, match=r"label_colors\.txt: (line 1 is not a colour|the file names no colour)"):
            camvid(root, "all")
