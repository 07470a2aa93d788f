"""What was looked into where a claim of ./dev bench trained did not hold, by study: paragraphs of docs/trained.md."""

FINDINGS: dict[str, str] = {}
