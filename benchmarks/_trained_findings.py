"""What was looked into where a claim of ./dev bench trained did not hold, by study: paragraphs of docs/trained.md."""

FINDINGS: dict[str, str] = {
    "digits": """\
What was looked into:

- LR's ECE is not 4 times lower than CE's because CE leaves no room: its ECE is about what a perfectly calibrated
  network would show by chance on 450 samples.
- LS does not rank errors worse here. That is no accident of one alpha or of the test data: in the search, AURC falls
  from alpha = 0.01 to 0.1 on held-out data. The confidence penalty, which also softens, ranks better still the
  stronger it is. The reason is not known. Not tried yet: a larger network, whose training loss vanishes.
- Tuning for accuracy chooses strengths almost at random, since all of them are within a few samples of each other; the
  ECE of LS and CP then depends on which one it was.
"""
}
