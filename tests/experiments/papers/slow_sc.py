"""SC's quantities by loops over NumPy arrays read from the files of a run, for the tests of its figures."""

import numpy as np

#: By the folder of a workbench, its small runs: to find them, each of them is checked.
_RUNS = {}


def run_folders(bench):
    """The folders of the small runs, by method and seed."""
    if bench.folder not in _RUNS:
        _RUNS[bench.folder] = bench.run("sc_imagenet_resnet50").folders
    return _RUNS[bench.folder]


def read_set(bench, method, seed, name="test"):
    """Logits and labels of a small run, straight from its file."""
    folder = run_folders(bench)[method][seed]
    with np.load(folder / f"{name}.npz") as file:
        return file["logits"].astype(np.float64), file["labels"], [str(text) for text in file["ids"]]


def softmax(logits):
    return np.array([np.exp(row - max(row)) / sum(np.exp(row - max(row))) for row in logits])


def judged(bench, method, seed, name="test"):
    """Logits, MSP and correctness."""
    logits, labels, _ = read_set(bench, method, seed, name)
    return logits, softmax(logits).max(1), logits.argmax(1) == labels


def risks(score, correct):
    """The error rate of the n most confident, for n from 1 on."""
    order = sorted(range(len(score)), key=lambda k: -score[k])
    errors = np.cumsum([not correct[k] for k in order])
    return errors / np.arange(1, len(order) + 1)


def area(score, correct):
    return float(np.mean(risks(score, correct)))


def normalised(logits, p, centre):
    v = np.array([row - np.mean(row) for row in logits]) if centre else logits
    return np.array([max(row) / sum(abs(row) ** p) ** (1 / p) for row in v])


def best_power(bench, method, seed, centre):
    """p with the least AURC on the validation data, and that AURC."""
    logits, _, correct = judged(bench, method, seed, "val")
    areas = {p: area(normalised(logits, p, centre), correct) for p in range(1, 11)}
    return min(areas.items(), key=lambda entry: entry[1])


def curves(axis):
    """The lines of a risk-coverage figure by the names in its legend, and the dots on them."""
    lines = [line for line in axis.get_lines() if line.get_marker() == "None"]
    words = [text.get_text().partition(", AURC")[0] for text in axis.get_legend().get_texts()]
    dots = [line for line in axis.get_lines() if line.get_marker() == "o"]
    return dict(zip(words, lines, strict=True)), [(line.get_xdata()[0], line.get_ydata()[0]) for line in dots]


def assert_curve(line, score, correct):
    """Every drawn point is the error rate of as many predictions as its coverage says."""
    slow, size = risks(score, correct), len(score)
    counts = np.rint(np.asarray(line.get_xdata()) * size).astype(int)
    assert len(counts) == size  # nothing was thinned out
    np.testing.assert_allclose(line.get_ydata(), slow[counts - 1], atol=1e-12)
