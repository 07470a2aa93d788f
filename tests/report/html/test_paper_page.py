from calibrant.report import PaperPart, write_paper_page


def test_the_page_has_figure_table_notes_and_the_command(tmp_path):
    figure = tmp_path / "fig.svg"
    figure.write_text("<svg xmlns='http://www.w3.org/2000/svg'></svg>")
    parts = [PaperPart("fig1", figure=figure), PaperPart("Table 1", text="One run of ls.", table="<table></table>")]
    write_paper_page(
        tmp_path / "page.html", title="X <1>", lead="Made.", parts=parts, notes=["a < b"], files=["fig.svg"],
        command="calibrant paper x", methods={"ls": "Label smoothing", "ce": "Cross-entropy"},
    )  # fmt: skip
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for words in ("data:image/svg+xml;base64,", "<table></table>", "One run of ", "a &lt; b", "calibrant paper x"):
        assert words in page
    assert "<1>" not in page
    assert '<abbr title="Label smoothing">ls</abbr>' in page
    assert "<dt>ls</dt><dd>Label smoothing</dd>" in page
    assert "Cross-entropy" not in page, "it is not named"


def test_a_lead_that_begins_with_an_abbreviation_is_one_paragraph(tmp_path):
    page = tmp_path / "page.html"
    write_paper_page(page, title="X", lead="ECE of ls.", parts=[], notes=[], files=[], command="calibrant paper x")
    text = page.read_text(encoding="utf-8")
    lead = text[text.index('<div class="lead">') :].partition("</div>")[0]
    assert lead.startswith('<div class="lead"><p><abbr'), "a grid would put the abbreviation and the rest on two lines"
    assert lead.endswith(" of ls.</p>")
