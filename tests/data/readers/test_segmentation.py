"""Label masks: CamVid and Cityscapes."""

import numpy as np
import pytest
from PIL import Image

from calibrant.data import ImageFiles, read, recognise
from calibrant.data.readers._folder import UNREADABLE
from calibrant.data.readers.segmentation import CAMVID, CITYSCAPES, FROM_IDS, camvid, cityscapes
from tests.helpers.box_files import image, write
from tests.helpers.errors import facts
from tests.helpers.reader_data import mask, picture, skipped_in, truncated

#: Some lines of the label_colors.txt of the published set.
COLOURS = {
    "Animal": (64, 128, 64), "Bridge": (0, 128, 64), "Building": (128, 0, 0), "LaneMkgsDriv": (128, 0, 192),
    "MotorcycleScooter": (192, 0, 192), "Pedestrian": (64, 64, 0), "SUVPickupTruck": (64, 128, 192),
    "Sky": (128, 128, 128), "Void": (0, 0, 0), "Wall": (64, 192, 0),
}  # fmt: skip


def published(root, names, colours=COLOURS):
    write(root / "label_colors.txt", "".join(f"{r} {g} {b}\t{n}\r\n" for n, (r, g, b) in colours.items()))
    image(root / "701_StillsRaw_full/0001.png", (len(names), 1))
    (root / "LabeledApproved_full").mkdir()
    pixels = np.array([[COLOURS.get(name, (1, 2, 3)) for name in names]], dtype=np.uint8)
    Image.fromarray(pixels).save(root / "LabeledApproved_full/0001_L.png")
    return root


def test_camvid_as_it_was_published(tmp_path):
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
    with pytest.raises(ValueError, match=facts("0001_L.png", "2", "3")):
        camvid(root, "all").masks[0]
    with pytest.raises(ValueError, match=facts("all", "1")):
        camvid(root, "all", on_error="skip")
    for text in ("64 128 64 Sheep\n", "64 128 Animal\n", "64 128 256 Animal\n", "a b c Animal\n", "\n"):
        write(root / "label_colors.txt", text)
        with pytest.raises(ValueError, match=facts("label_colors.txt")):
            camvid(root, "all")


@pytest.mark.parametrize("prefix", ["/SegNet/CamVid/", "CamVid/", ""])
def test_camvid_lists_with_any_prefix(tmp_path, prefix):
    root = tmp_path / "CamVid"
    for name, value in (("b", 3), ("a", 11)):
        picture(root / "train" / f"{name}.png", size=(3, 2))
        mask(root / "trainannot" / f"{name}.png", [[0, 1, value], [10, 2, value]])
    (root / "train.txt").write_text(
        f"{prefix}train/b.png {prefix}trainannot/b.png\n\n{prefix}train/a.png {prefix}trainannot/a.png\r\n"
    )
    data = read(tmp_path, "train")
    assert (data.name, len(data.classes), data.ignore_index) == ("camvid", 11, 11)
    assert data.ids == ("train/b.png", "train/a.png")
    assert data.labels.tolist() == [-1, -1]
    assert np.asarray(data[1].mask).tolist() == [[0, 1, 11], [10, 2, 11]]
    assert np.asarray(data.take([0])[0].mask).tolist() == [[0, 1, 3], [10, 2, 3]]
    assert isinstance(data.masks, ImageFiles)


def test_camvid_without_lists_and_with_broken_pairs(tmp_path):
    for name in ("1", "2", "3", "4", "5", "6", "7"):
        picture(tmp_path / "val" / f"{name}.jpg", size=(2, 1))
    mask(tmp_path / "valannot" / "1.png", [[0, 11]])
    mask(tmp_path / "valannot" / "2.png", [[0, 12]])
    mask(tmp_path / "valannot" / "3.png", [[0, 1, 2]])
    picture(tmp_path / "valannot" / "4.png", size=(2, 1), mode="RGB")
    mask(tmp_path / "valannot" / "6.png", [[0, 1]])
    truncated(tmp_path / "val" / "6.jpg")
    mask(tmp_path / "valannot" / "7.png", [[0, 1]])
    cut = (tmp_path / "valannot" / "7.png").read_bytes()[:45]
    (tmp_path / "valannot" / "7.png").write_bytes(cut)
    with pytest.raises(ValueError, match=facts("5", "valannot/5.png")):
        camvid(tmp_path, "val")
    data = camvid(tmp_path, "val", on_error="skip")
    assert data.ids == ("val/1.jpg",)
    found = {what: [place.partition(" (")[0] for place in where] for what, (_, where) in skipped_in(data).items()}
    assert found == {
        "mask that cannot be read": ["val/2.jpg", "val/4.jpg", "val/7.jpg"],
        "image and mask of different sizes": ["val/3.jpg"],
        "mask that is missing": ["val/5.jpg"],
        UNREADABLE: ["val/6.jpg"],
    }
    assert "12" in str(data.report)
    mask(tmp_path / "valannot" / "5.png", [[0, 1]])
    data = camvid(tmp_path, "val")
    with pytest.raises(ValueError, match=facts("2.png", "12")):
        data.masks[1]
    with pytest.raises(ValueError, match=facts("RGB", "4.png")):
        data.masks[3]
    with pytest.raises(ValueError, match=facts("7.png")):
        data.masks[6]


def test_camvid_lists_that_lead_astray(tmp_path):
    picture(tmp_path / "outside.png")
    picture(tmp_path / "data" / "test" / "a.png", size=(2, 1))
    mask(tmp_path / "data" / "testannot" / "a.png", [[0, 1]])
    (tmp_path / "data" / "test" / "loop.png").symlink_to("loop.png")
    good = "test/a.png testannot/a.png\n"
    wrong = [
        f"{name} testannot/a.png\n" for name in ("../outside.png", "test/b.png", "test/loop.png", "test/" + "x" * 5000)
    ]
    for line in (*wrong, "test/a.png\n", good):
        (tmp_path / "data" / "test.txt").write_text(good + line)
        with pytest.raises(ValueError, match=facts("test")):
            camvid(tmp_path / "data", "test")
        data = camvid(tmp_path / "data", "test", on_error="skip")
        assert data.ids == ("test/a.png",)
        assert data.report.skipped[0].times == 1


def test_cityscapes_maps_the_official_ids(tmp_path):
    for city, stem in (("ulm", "ulm_000001_000019"), ("aachen", "aachen_000000_000019")):
        picture(tmp_path / "leftImg8bit" / "train" / city / f"{stem}_leftImg8bit.png", size=(4, 1))
        mask(tmp_path / "gtFine" / "train" / city / f"{stem}_gtFine_labelIds.png", [[7, 33, 0, 255]])
    data = read(tmp_path, "train")
    assert data.name == "cityscapes"
    assert data.groups == ("aachen", "ulm")
    assert data.ids[0] == "leftImg8bit/train/aachen/aachen_000000_000019_leftImg8bit.png"
    assert np.asarray(data[1].mask).tolist() == [[0, 18, 255, 255]]
    for city, stem in (("ulm", "ulm_000001_000019"), ("aachen", "aachen_000000_000019")):
        mask(tmp_path / "gtFine" / "train" / city / f"{stem}_gtFine_labelTrainIds.png", [[18, 0, 255, 33]])
    with pytest.raises(ValueError, match=facts("labelTrainIds.png", "33")):
        cityscapes(tmp_path, "train")[0]


def test_the_cityscapes_table_is_torchvisions():
    from calibrant.base.torchvision_operators import ensure

    ensure()
    from torchvision.datasets import Cityscapes

    for c in Cityscapes.classes:
        assert FROM_IDS[c.id] == (c.train_id if 0 <= c.train_id < 19 else 255), c.name  # id -1 is stored as 255
        if 0 <= c.train_id < 19:
            assert list(CITYSCAPES)[c.train_id] == c.name
    assert FROM_IDS[34] == -1
