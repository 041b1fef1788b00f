"""The report as Markdown: the same words and figures as the page, for a terminal or a code host."""

from __future__ import annotations

from fabula_paper.claims import Verdict
from fabula_paper.figures import NOT_RUN, Figure, Table
from fabula_paper.report import Report, Trained
from fabula_paper.stories import english

TITLES = {
    "infilling": "1. Infilling",
    "perplexity": "2. Perplexity",
    "control": "3. Control",
    "human": "4. Human evaluation",
    "beyond": "5. Beyond the paper",
}
INTRODUCTIONS = {
    "infilling": "ROUGE F1 and METEOR of every story against its true sentences, in percent, and their means: "
    "figures, intervals and claims are of the same scores, which the records hold. Two missing sentences are scored "
    "joined, and ROUGE-L with its sentences apart too, as the paper's figures are; the last table has the paper's "
    "own programs. The paper's protocol: best of 50 Gibbs samples, burn-in included, one chain, S read off the "
    "whole story by q(S | X), the missing text included (peeks); best of 1,000 top-k 15 samples for LM and S2S, S2S "
    "with the gold tags. With sampled words gibbs targets an approximation of the posterior: its Eq. (1) leaves out "
    "that the decoder's carried state has read Z (enumerated on a small model: .184 where the exact posterior has "
    ".101). Below it the same without peeking, and bridge with 50 particles; the paper's figure beside those rows "
    "is still the one that peeks. Then ours (it ships as `small`) in other ways: bridge with 500 particles, the same "
    "with sharper words, as fabula fill writes with it, and of 400 samples the one that the others agree with most "
    "(consensus), which is what measures of overlap reward. Square brackets: 95 %, bootstrap over stories; a figure "
    "with ± is the mean of three trainings, ± the deviation over them, and they are in the brackets too; one without "
    "is of one training (the first seed), so are all rows of bridge, of gibbs without peeking and of the best of 50. "
    "ROUGE is by the paper's program; of ours, our LM, and LM and S2S with 7,704 updates it gave the means alone, and "
    "rouge-score the stories, which are raised to those means (by 0.15 to 0.5 points of ROUGE-1).",
}


def ours(figure: Figure) -> str:
    """Our number with its interval, or why there is none."""
    if figure.words:
        return figure.words
    if figure.ours is None:
        return NOT_RUN
    sign = "≤ " if figure.kind.endswith("bound") else ""
    spread = f" ± {fixed(figure.spread, figure.digits)}" if figure.spread is not None else ""
    interval = ""
    if figure.low is not None and figure.high is not None:
        interval = f" [{fixed(figure.low, figure.digits)}, {fixed(figure.high, figure.digits)}]"
    loose = ", loose" if figure.kind == "loose bound" else ""
    return f"{sign}{fixed(figure.ours, figure.digits)}{loose}{spread}{interval}"


def fixed(value: float, digits: int) -> str:
    """A number in so many digits. Means of rounded figures often lie on the edge between two: the last bits of a sum,
    which differ between processors, may not decide."""
    return f"{round(value, 9):.{digits}f}"


def paper(figure: Figure) -> str:
    return "–" if figure.paper is None else f"{figure.paper:.{figure.digits}f}"


def gap(figure: Figure) -> str:
    return "–" if figure.difference is None else f"{round(figure.difference, 9):+.{figure.digits}f}"


def table(t: Table) -> str:
    head, rule = list(t.lead), ["---"] * len(t.lead)
    for name, beside in zip(t.columns, t.beside_paper, strict=True):
        head += [f"{name}: paper", "ours", "difference"] if beside else [name]
        rule += ["---:"] * (3 if beside else 1)
    lines = [f"### {t.title}", ""]
    lines += [t.intro, ""] if t.intro else []
    lines += [row_of(head), row_of(rule)]
    for row in t.rows:
        cells = list(row.lead)
        for figure, beside in zip(row.figures, t.beside_paper, strict=True):
            cells += [paper(figure), ours(figure), gap(figure)] if beside else [ours(figure)]
        lines.append(row_of(cells))
    return "\n".join([*lines, ""])


def row_of(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def verdicts(title: str, found: list[Verdict]) -> str:
    lines = [f"## {title}", ""]
    for verdict in found:
        lines.append(f"- **{verdict.verdict}**: {verdict.claim}")
        lines += [f"  - {line}" for line in verdict.evidence]
    return "\n".join([*lines, ""])


def render(report: Report) -> str:
    parts = ["# The paper's tables, side by side", ""]
    if report.scale.name == "small":
        parts += ["**Made at toy size, to show the way: no figure here says anything about the paper.**", ""]
    parts += [f"- {name}: {value}" for name, value in report.facts.items()]
    parts += ["", verdicts("The claims", report.claims), verdicts("What was wanted", report.bars)]
    for key, tables in report.tables.items():
        parts += [f"## {TITLES[key]}", ""]
        if INTRODUCTIONS.get(key):
            parts += [INTRODUCTIONS[key], ""]
        parts += [table(t) for t in tables]
    parts += ["## How the systems were trained", ""]
    parts += [f"- {line}" for line in report.deviations]
    parts += ["", row_of(list(Trained.HEADS)), row_of(["---"] * len(Trained.HEADS))]
    parts += [row_of(list(line.cells)) for line in report.trained]
    parts += ["", "## The learned dynamics", ""]
    for system, record in report.dynamics:
        parts.append(f"### {system.title}")
        parts += ["", row_of(["state", "spectral radius of A", "norm of b", "noise"]), row_of(["---"] * 4)]
        for k, label in enumerate(record["labels"]):
            parts.append(
                row_of(
                    [label, f"{record['radius'][k]:.3f}", f"{record['bias_norm'][k]:.3f}", f"{record['noise'][k]:.3f}"]
                )
            )
        parts += ["", "The second sentence under every state, the model's own first sentence before it, greedily:", ""]
        for entry in record["changed"][:4]:
            parts.append(f"- {english(entry['first'])}")
            parts += [f"  - {label}: {english(entry[label])}" for label in record["labels"]]
        parts.append("")
    parts += ["## Filled-in stories, the first of each unit", ""]
    for group in report.samples:
        parts += [f"### {group.title}", ""]
        for story in group.stories:
            told = " / ".join(
                (f"**{line}**" if wrote else line) if line is not None else "[given]"
                for line, wrote in zip(story.lines, story.written, strict=True)
            )
            parts.append(f"- `{story.id}` {told}")
        parts.append("")
    if report.mixed:
        parts += [f"Records of different weights stand side by side for: {', '.join(report.mixed)}.", ""]
    return "\n".join(parts)
