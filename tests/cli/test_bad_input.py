"""Whatever is wrong with a command is one short sentence with exit code 2, and nothing is read, written or changed."""

import os
import re
import time

import numpy as np
import onnx
import pytest
import torch

from calibrant import Policy, Predictions
from calibrant.metrics import ConfidenceSketch, ece
from calibrant.posthoc import HistogramBinning, TemperatureScaling
from tests.cli.conftest import FACTORY
from tests.cli.test_compare import RECIPE
from tests.helpers import box_files
from tests.helpers.errors import facts
from tests.helpers.exports import linear, make_policy
from tests.helpers.policies import write

LONG = "9" * 5000
HUGE = "9" * 400

# Files of costs of the classes a, b, c and d, and what is wrong with them.
COSTS = {
    "costs.txt": (b"0,1\n1,0\n", ".csv .json"),
    "empty.csv": (b"", "rows"),
    "ragged.csv": (b"0,1\n1\n", "length"),
    "words.csv": (b"0,one\n1,0\n", "a, b, c, d"),
    "twice.csv": (b",a,b,a,d\na,0,1,1,1\nb,1,0,1,1\nc,1,1,0,1\nd,1,1,1,0\n", "first row"),
    "double.csv": (b",a,b,c,d\na,0,1,1,1\nb,1,0,1,1\nb,1,1,0,1\nd,1,1,1,0\n", "first column"),
    "short.csv": (b",a,b,c,d\na,0,1,1\nb,1,0,1,1\nc,1,1,0,1\nd,1,1,1,0\n", "''"),
    "bytes.csv": (b"\xff\xfe0,1", "bytes.csv UTF-8"),
    "huge.csv": (f"0,{LONG},1,1\n".encode() + b"1,1,0,1\n" * 3, "cost"),
    "object.json": (b"{}", "rows"),
    "truth.json": (b"[[0, true], [1, 0]]", "True"),
    "deep.json": (b"[" * 100_000, "deep.json"),
    "cut.json": (b"[[0", "cut.json"),
    "huge.json": (f"[[0,{HUGE},1,1],[1,0,1,1],[1,1,0,1],[1,1,1,0]]".encode(), "cost"),
    "minus.json": (f"[[0,-{LONG},1,1],[1,0,1,1],[1,1,0,1],[1,1,1,0]]".encode(), "cost"),
}

# A command, and what its user must be told: names of options and files, values that came, what to write instead.
CASES = [
    ("audit", "Missing argument"),
    ("audit missing.npz", "missing.npz"),
    ("audit plain.npz plain.npz", "plain.npz"),
    ("audit plain.npz --column labels", "--column labels"),
    ("audit plain.npz --column logit=x", "--column logit logits"),
    ("audit plain.npz --group site", "site"),
    ("audit plain.npz --replicates 1000000000", "replicates 10,000"),
    ("audit plain.npz --replicates 19", "replicates 20 19"),
    ("audit plain.npz --seed 18446744073709551616", "seed 9,223,372,036,854"),
    ("audit plain.npz --seed -1", "seed 0 -1"),
    (f"audit plain.npz --seed {LONG}", "--seed"),
    ("audit plain.npz --level 0.9999999999999999", "level 1e-09"),
    ("audit plain.npz --level 1e-320", "level 1e-09"),
    ("audit plain.npz --level nan", "level nan"),
    ("audit plain.npz --level 1.5", "level 1.5"),
    ("audit plain.npz --level 95", "level 95% 0.95"),
    ("audit plain.npz --class-names a,b", "--class-names 3"),
    ("audit plain.npz --policy none.json", "none.json"),
    ("audit plain.npz --policy plain.npz", "plain.npz .json fit"),
    ("audit plain.npz --policy of_shares.json", "policy logits"),
    ("audit plain.npz --fail-on luck", "luck"),
    ("audit plain.npz --split test", "test"),
    ("audit scores.csv --column confidence=score", "correct=NAME"),
    ("audit masks.npz", "--segmentation"),
    ("audit masks.npz --column kind=segmentation", "--segmentation"),
    ("audit unlabelled.npz", "labels"),
    ("audit score.csv", "--column probabilities=score"),
    ("audit score.csv --column probabilities=score", "no, yes --positive no --positive yes"),
    ("audit plain.npz --engine spark", "spark ray local"),
    ("audit plain.npz --address auto", "address ray"),
    ("audit plain.npz --engine ray --address here", "address host:port"),
    ("fit none.npz", "none.npz"),
    ("fit four.npz -o p.txt", ".json .txt"),
    ("fit four.npz --seed 18446744073709551616", "seed 9,223,372,036,854"),
    ("fit four.npz --target-risk 1e-320", "--target-risk 1e-09"),
    ("fit four.npz --target-risk 1.5", "--target-risk 1.5"),
    ("fit four.npz --target-risk 5", "--target-risk 5.0 5%"),
    ("fit four.npz --target-risk five%", "five% 5%"),
    ("fit four.npz --target-cost 5%", "5% 0.05"),
    ("fit four.npz --target-coverage 80", "80% 0.8"),
    ("fit four.npz --target-risk 0.1 --target-coverage 0.5", "risk coverage both"),
    ("fit four.npz --confidence 0.9999999999999999", "confidence 1e-09"),
    ("fit four.npz --confidence nan", "confidence nan"),
    ("fit four.npz --confidence 95", "--confidence 95.0 95%"),
    ("fit four.npz --method luck", "method luck"),
    ("fit four.npz --score luck", "score luck"),
    ("fit four.npz --score msp --no-centre", "centre normalised_max_logit msp"),
    ("fit four.npz --group colour", "colour site"),
    ("fit four.npz --sets 95", "--sets 95.0 95% 0.95"),
    (f"fit four.npz --sets 0.9 --set-method raps --set-free-ranks {HUGE}", "free"),
    ("fit four.npz --promise recall=z:0.9", "z"),
    ("fit four.npz --promise recall=a:80", "80% 0.8"),
    ("fit four.npz --promise precision=a:0.9 --target-risk 0.1", "--target-risk"),
    ("fit four.npz --by-class --target-coverage 0.5", "--target-coverage"),
    ("fit four.npz --by-class --promise recall=a:0.9", "promise class"),
    ("fit four.npz --costs costs.csv", "costs"),
    *((f"fit four.npz --target-cost 0.3 --costs {name}", told) for name, (_, told) in COSTS.items()),
    ("fit of_test.npz", "test"),
    ("fit masks.npz", "--segmentation"),
    ("fit plain.npz shares.npz", "shares.npz"),
    ("apply plain.npz plain.npz", "plain.npz policy"),
    ("apply plain.npz plain.json", "policy.json predictions"),
    ("apply none.json plain.npz", "none.json"),
    ("apply named.json foxes.npz", "cat, dog, fox"),
    ("apply named.json two.npz", "class"),
    ("apply plain.json two.npz", "3 2"),
    ("apply named.json plain.npz --class-names cat,owl,dog", "cat, dog, owl cat, owl, dog"),
    ("apply plain.json plain.npz -o d.xlsx", ".xlsx .csv"),
    ("apply plain.json shares.npz", "logits"),
    ("apply plain.json of_masks.npz", "classification segmentation"),
    ("apply masks.json of_masks.npz -o d.parquet", ".npz .parquet"),
    ("check plain.npz", "--require"),
    ("check plain.npz --require eec<=1", "eec ece"),
    ("check plain.npz --require ece<=1% --unknown maybe", "--unknown pass fail"),
    ("check plain.npz --require policy.risk<=1%", "policy.risk"),
    ("check plain.npz --require ece<=3", "3% 0.03"),
    ("check plain.npz --require ece<=3% --level 95", "95% 0.95"),
    ("check plain.npz --require ece<=1% --by-group town", "town"),
    ("check plain.npz --requirements bad.toml", "bad.toml require"),
    ("check plain.npz --requirements empty.toml", "empty.toml require"),
    ("check plain.npz --requirements broken.toml", "broken.toml"),
    ("monitor four.json", "--state"),
    ("monitor four.json four.npz --alarm-on x", "--alarm-on any promise 'x'"),
    ("monitor four.json four.npz --state w.txt", ".json .txt"),
    ("monitor four.json four.npz -o page.pdf", ".html .pdf"),
    ("monitor four.json four.npz four.npz --corrected c.npz", "--corrected 2"),
    ("monitor four.json four.npz --by-group colour", "colour"),
    ("monitor four.json four.npz --alpha 2", "alpha 0.5 2.0"),
    ("monitor four.json four.npz --alpha 5", "--alpha 5.0 5%"),
    ("monitor four.json four.npz --state four.json", "four.json"),
    ("monitor four.json --merge none.json", "none.json"),
    ("monitor four.json none.parquet", "none.parquet"),
    ("monitor four.json four.npz --labels none.csv", "none.csv"),
    ("holdout four.npz -o a.npz a.npz", "a.npz"),
    ("holdout four.npz -o four.npz b.npz", "four.npz"),
    ("holdout four.npz -o a.npz link.npz", "link.npz"),
    ("holdout four.npz -o a.txt b.npz", "a.txt"),
    ("holdout four.npz -o a.npz b.npz --share 50", "50% 0.5"),
    ("holdout four.npz -o a.npz b.npz --by patient", "patient"),
    ("holdout four.npz -o a.npz", "-o"),
    ("schema aplly", "aplly apply audit"),
    ("demo --seed -1", "--seed"),
    ("methods acsl", "acsl ce, ls"),
    ("recipes small/scene", "small/scene small/scenes"),
    ("train small/scene", "small/scene small/scenes"),
    ("compare -o new small/scene", "small/scene small/scenes"),
    ("compare plain.npz shares.npz", "audit plain.npz shares.npz"),
    ("compare digits.toml -o out --losses lss", "lss"),
    ("compare digits.toml -o out --losses ls:margin=3", "margin"),
    ("compare digits.toml -o out --tune f1", "f1"),
    ("compare digits.toml -o out --seeds many", "--seeds many"),
    ("compare digits.toml -o out --search luck", "--search grid luck"),
    ("compare digits.toml -o out --engine slurm", "slurm"),
    ("compare digits.toml -o out --losses ce,ce", "ce"),
    ("compare digits.toml -o out --losses ce,ls --reference nosuch", "nosuch"),
    ("compare digits.toml -o out --set expected=[] --expected", "expected"),
    ("train digits.toml -o out --set training.epoch=1", "epoch epochs"),
    ("predict empty -o x.npz", "empty"),
    ("paper acls.tabel3 -o out", "acls.table3"),
    ("paper acls.table3 -o out", "--data --runs --small"),
    ("paper acls.table3 somewhere -o out", "--runs"),
    ("paper acls.table3 --runs nothing more -o out", "nothing"),
    ("paper lr.fig2 --seeds x -o out", "--seeds x"),
    ("detect digits.toml -o out", "digits.toml"),
    ("maps none --image a", "none"),
    ("data make-variant voc context-only -o x --fill 1,2,300", "--fill 255"),
    ("data inspect nowhere", "nowhere"),
    ("data inspect empty --layout pacs", "pacs"),
    ("data inspect empty --layout pax", "pax voc"),
    ("data make-variant empty single-object -o x", "layout"),
    ("calibrate plain.npz", "'fit'"),
    ("report plain.npz", "'audit'"),
    ("frobnicate plain.npz", "frobnicate apply, audit,"),
    ("lens --losses nope", "nope ce, ls"),
    ("lens --losses ,", "losses"),
    ("lens --losses acls:margin", "margin name:parameter=value"),
    ("lens --losses acls:foo=1", "acls foo margin, lambda1"),
    ("lens --losses acls:margin=6:margin=8", "margin"),
    ("lens --losses acls:margin=wide", "margin wide"),
    ("lens --losses ls:alpha=x", "ls:alpha=x alpha 'x'"),
    ("lens --losses ls:weight=x", "weight 'x'"),
    ("lens --losses ecp:strength=1e308", "ecp:strength=1e308"),
    ("lens --losses crl:num_samples=1e12", "num_samples 1e+08"),
    ("lens --logits 1,x", "--logits 1,x"),
    ("lens --logits 1,nan", "--logits 1,nan"),
    (f"lens --logits 1,{LONG}", "--logits"),
    ("lens --logits 1", "--logits 1,000"),
    ("lens --logits 1" + 1000 * ",1", "--logits 1,000 1,001"),
    ("lens --label 7", "--label 0..3 7"),
    ("lens -o figure.gif", ".png .svg .pdf .gif"),
    ("lens --predictions missing.npz", "missing.npz"),
    ("lens --predictions plain.npz --batch-size 0", "--batch-size 1 0"),
    ("lens --predictions plain.npz --batch-size 99999999999", "--batch-size 1,048,576 99,999,"),
    ("lens --predictions plain.npz -o a.png", "--predictions"),
    ("lens --predictions of_masks.npz", "of_masks.npz segmentation"),
    ("lens --predictions pipe.npz", "pipe.npz pipe"),
    ("lens --bogus", "--bogus"),
]

GRAPH = "export --policy five.json --onnx model-in.onnx"
NET = "export --policy five.json --model nets_of_mine"
IDENTITY = "export --policy five.json --model torch.nn:Identity --input-shape"
CASES += [
    ("export --policy five.json", "--model --run --onnx --logits-only"),
    (f"{GRAPH} --logits-only", "--onnx --logits-only"),
    ("export --policy five.json --logits-only --weights w.pt", "--weights --model"),
    ("export --policy five.json --logits-only --opset 99999", "opset 13 99999"),
    ("export --policy five.json --logits-only --trust-code", "--trust-code --run"),
    ("export --policy five.json --logits-only --input-shape 3", "--input-shape model"),
    ("export --policy none.json --logits-only", "--policy none.json"),
    ("export --policy nets_of_mine.py --logits-only", "nets_of_mine.py"),
    ("export --policy pipe.npz --logits-only", "pipe.npz pipe"),
    ("export --policy five.json --logits-only -o p.pt", "p.pt .onnx"),
    ("export --policy five.json --logits-only -o nets_of_mine.py/p.onnx", "nets_of_mine.py"),
    ("export --policy five.json --onnx none.onnx", "none.onnx"),
    ("export --policy five.json --onnx pipe.npz", "pipe.npz pipe"),
    ("export --policy five.json --onnx five.json", "five.json ONNX"),
    (f"{GRAPH} --tensor y", "'y' [N,5]"),
    (f"{GRAPH} --logits-output y", "'y' [N,5]"),
    (f"{GRAPH} --labels y", "'y'"),
    (f"{GRAPH} --input-shape 3,x", "--input-shape 3,224,224"),
    (f"{GRAPH} --input-shape 3", "--input-shape [N,4] [3]"),
    (f"{GRAPH} --inputs none.npy", "--inputs none.npy"),
    (f"{GRAPH} --inputs five.json", "--inputs five.json .npy .npz"),
    (f"{GRAPH} --inputs pipe.npz", "--inputs pipe.npz pipe"),
    (f"{GRAPH} -o model-in.onnx", "model-in.onnx"),
    (f"{GRAPH} --expected none.npz", "--expected --inputs"),
    (f"{GRAPH} --column logits=score", "--expected"),
    (f"{NET}", "package.module:factory nets_of_mine"),
    (f"{NET}.py", "nets_of_mine:NAME"),
    (f"{NET}:Nut", "nets_of_mine Nut"),
    (f"{NET}:fails", "RuntimeError backbone"),
    (f"{NET}:number", "torch.nn.Module int"),
    (f"{NET}:value", "value module"),
    (f"{NET}:Net", "--input-shape"),
    (f"{NET}:Net --input-shape 3", "[N,3]"),
    (f"{NET}:Net --model-args [1]", "--model-args"),
    (f"{NET}:Net --model-args {{", "--model-args JSON"),
    (f'{NET}:Net --model-args {{"depth":2}}', "TypeError depth"),
    (f"{NET}:Net --weights none.pt", "none.pt"),
    (f"{NET}:Net --weights five.json", "five.json"),
    (f"{NET}:dummy", "skl2onnx"),
    (f"{NET}:DummyClassifier", "skl2onnx"),
    ("export --policy five.json --model no_such_module:Net", "no_such_module ModuleNotFoundError"),
    ("export --policy five.json --model net.onnx", "--onnx"),
    ("export --policy five.json --model net.pt", "--weights"),
    (f"{IDENTITY} 1000000,1000000", "16 16,777,216"),
    (f"{IDENTITY} {LONG}", "--input-shape"),
    (f"{IDENTITY} 3 --model-args " + "[" * 100_000, "--model-args 64"),
    (f'{IDENTITY} 3 --model-args {{"a":1,"a":2}}', "--model-args 'a'"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, prepared, drawn):
    """The folder `prepared`, and what else is wrong or right in the commands; no command changes it."""
    logits, labels = drawn
    Predictions.from_logits(logits, labels, split="test").save(prepared / "of_test.npz")
    Predictions.from_logits(logits, labels, class_names=["cat", "dog", "fox"]).save(prepared / "foxes.npz")
    Predictions.from_logits(logits[:, :2], labels % 2).save(prepared / "two.npz")
    np.savez(prepared / "unlabelled.npz", logits=logits)
    p = torch.from_numpy(logits.copy()).softmax(1).numpy()
    shares = Predictions.from_probabilities(p, labels)
    shares.save(prepared / "shares.npz")
    Policy.fit(shares, 0.3, calibrator="none", score="msp").save(prepared / "of_shares.json")
    rows = "\n".join(f"{sure:.3f},{k}" for sure, k in zip(p.max(1), labels, strict=True))
    (prepared / "scores.csv").write_text(f"score,label\n{rows}\n")
    four = write(prepared, "four.npz", n=400)
    Policy.fit(four, 0.3, calibrator="none", score="msp").save(prepared / "four.json")
    (prepared / "link.npz").symlink_to("four.npz")
    images = np.random.default_rng(1).standard_normal((40, 3, 4, 4))
    np.savez(prepared / "masks.npz", logits=images, labels=images.argmax(1))
    pixels = Predictions.from_logits(images, images.argmax(1), kind="segmentation")
    pixels.save(prepared / "of_masks.npz")
    Policy.fit(pixels, 0.3, calibrator="none", score="msp").save(prepared / "masks.json")
    (prepared / "empty").mkdir()
    box_files.voc(prepared / "voc")
    os.mkfifo(prepared / "pipe.npz")
    for name, text in (
        ("bad.toml", "require = 5"), ("empty.toml", "[tool.other]\nx = 1"), ("broken.toml", "require = ["),
        ("costs.csv", "0,1,1,1\n5,0,1,1\n1,1,0,1\n1,1,1,0\n"), ("nets_of_mine.py", FACTORY),
        ("digits.toml", RECIPE), ("score.csv", "label,score\n" + "yes,0.7\nno,0.2\n" * 40),
    ):  # fmt: skip
        (prepared / name).write_text(text)
    for name, (content, _) in COSTS.items():
        (prepared / name).write_bytes(content)
    make_policy(limit=0.3).save(prepared / "five.json")
    onnx.save_model(linear(), prepared / "model-in.onnx")
    return prepared


@pytest.mark.parametrize(("command", "told"), CASES, ids=[command[:60] for command, _ in CASES])
def test_a_command_that_cannot_be_done_is_one_sentence(folder, monkeypatch, refuse, command, told):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    start = time.process_time()
    text = refuse(*command.split())
    assert all(fact in text.replace("[N, ", "[N,") for fact in told.split()), text
    assert len(text) < 600
    options = [word[2:].replace("-", "_") for word in re.findall(r"--\w+-[\w-]+", command)]
    assert not [name for name in options if name in text], "an option is called as the user typed it"
    assert time.process_time() - start < 10


SKETCH = ConfidenceSketch()
SKETCH.update(np.eye(3)[np.arange(50) % 3], np.arange(50) % 3)
LOGITS, LABELS = np.random.default_rng(0).standard_normal((50, 3)), np.arange(50) % 3


@pytest.mark.parametrize(
    "call",
    [
        lambda bins: ece([0.5, 0.6], [True, False], bins=bins),
        lambda bins: SKETCH.summary().measure(f"ece_{bins}"),
        lambda bins: SKETCH.summary().measure(f"aece_{bins}"),
        lambda bins: HistogramBinning(bins=bins).fit(LOGITS, LABELS),
        lambda bins: TemperatureScaling("ece", bins=bins).fit(LOGITS, LABELS),
    ],
)
def test_bins_are_bounded(call):
    with pytest.raises(ValueError, match=facts("bins", "100,000", "999,999,999")):
        call(999_999_999)
