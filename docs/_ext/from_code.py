"""What the pages take from the code and from benchmarks/results, so that it cannot be out of date.

{hyper-parameters} AgentSAC    table: name, default, meaning (the comment beside it), the class that set it
{settings}                     the same of a run's settings
{measured} AgentSAC AgentX     rows of benchmarks/results/learning.md, or teams.md, with their settings and command
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from elegantrl import agents
from elegantrl.train.config import RunSettings

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


# tables of settings


def comments(cls: type) -> dict[str, str]:
    """name -> the comment on the line that assigns it, of the attributes in a class's own body."""
    if cls is object:
        return {}
    source = textwrap.dedent(inspect.getsource(cls))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    said = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)).body
    found = {}
    for node in body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            found[getattr(target, "id", "")] = said.get(node.end_lineno or 0, "")
    return found


def meaning(cls: type, name: str) -> tuple[str, str]:
    """What a setting means, with what a subclass says of its own default; and the class that set the default."""
    owners = [(owner, comments(owner)) for owner in cls.__mro__]
    owners = [(owner, said) for owner, said in owners if name in said]
    texts = [said[name] for _, said in owners if said[name]]
    text = texts[-1] if texts else ""
    own = owners[0][1][name]
    if own not in ("", text):
        text += f"; here: {own}"
    parts = re.split(r"(`[^`]*`)", text)  # plain text, but for code in backquotes
    escaped = (part if part.startswith("`") else re.sub(r"([*_])", r"\\\1", part) for part in parts)
    return "".join(escaped), owners[0][0].__name__


def setting_rows(cls: type, defaults: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """(name, default, meaning, class) of each, those of the class itself first."""
    rows = [(name, shown(value), *meaning(cls, name)) for name, value in defaults.items()]
    order = [owner.__name__ for owner in cls.__mro__]
    return sorted(rows, key=lambda row: order.index(row[-1]))


def shown(value: Any) -> str:
    return f"`{value:.3g}`" if isinstance(value, float) and value != round(value, 6) else f"`{value!r}`"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


class HyperParameters(SphinxDirective):
    required_arguments = 1
    option_spec: ClassVar = {"own": directives.flag}  # only what the class itself sets

    def run(self) -> list[nodes.Node]:
        cls = getattr(agents, self.arguments[0])
        rows = setting_rows(cls, cls.hyper_parameters())
        if "own" in self.options:
            rows = [row for row in rows if row[-1] == cls.__name__]
        head = ("name", "default", "meaning", "set by")
        text = table(head, [(f"`{name}`", default, said, f"`{owner}`") for name, default, said, owner in rows])
        return self.parse_text_to_nodes(text)


class Settings(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        defaults = {name: getattr(RunSettings, name) for name in inspect.get_annotations(RunSettings)}
        rows = [(f"`{name}`", shown(value), meaning(RunSettings, name)[0]) for name, value in defaults.items()]
        return self.parse_text_to_nodes(table(("name", "default", "meaning"), rows))


# measured results


def measured_rows(names: set[str]) -> Iterator[tuple[str, str, list[str], str]]:
    """(task, threshold, cells of the row, settings) of these agents in benchmarks/results/learning.md."""
    text = (RESULTS / "learning.md").read_text(encoding="utf-8")
    settings = {(task, agent): said for task, agent, said in re.findall(r"^- (\S+), (Agent\w+): (.*)$", text, re.M)}
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        task, _, threshold = title.partition(": ")
        for cells in ([c.strip() for c in line.strip("| ").split("|")] for line in body.splitlines()):
            if cells[0] in names and cells[2] != "not run":
                yield task, threshold, cells, settings[task, cells[0]]


def team_table(names: list[str]) -> str:
    """The rows of these agents in benchmarks/results/teams.md, with their command; '' if there are none."""
    path = RESULTS / "teams.md"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("|")]
    bare = [name.removeprefix("Agent") for name in names]
    found = [row for row in rows[2:] if row[1] in bare and "not run" not in row]
    command = f"```bash\npython benchmarks/teams.py --agents {' '.join(bare)}\n```"
    about = "What the columns are, and the settings: `benchmarks/results/teams.md`. Command:"
    return f"{table(rows[0], found)}\n\n{about}\n\n{command}" if found else ""


class Measured(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        names = re.findall(r"Agent\w+", self.arguments[0])
        rows, told = [], []
        for task, threshold, (agent, steps, solved, median, scores, *_), settings in measured_rows(set(names)):
            rows.append((f"`{agent}`", task, steps, threshold, solved, median, scores))
            told.append(f"- `{agent}` on {task}: {settings}")
        if not rows:
            text = team_table(names) or "No run of it is in `benchmarks/results` yet."
            return self.parse_text_to_nodes(text)
        head = ("agent", "task", "steps", "solved from", "runs solved", "median", "score per seed")
        agent_names = " ".join(dict.fromkeys(row[0].strip("`") for row in rows))
        text = f"{table(head, rows)}\n\nScore: the mean of a run's last ten greedy evaluations. Command:\n\n"
        text += f"```bash\npython benchmarks/learning.py --agents {agent_names}\n```\n\n"
        text += "What `Config` was told there; everything else is the default:\n\n" + "\n".join(told)
        return self.parse_text_to_nodes(text)


# docstrings


def as_restructured_text(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings here are plain text with `code`: arguments become paragraphs, indented lines a literal block."""
    out: list[str] = []
    was_code = False
    for line in lines:
        is_code = line.startswith("    ") or (was_code and not line)
        if is_code and not was_code:
            out += ["", "::", ""]
        elif not is_code and re.match(r"[\w, ()]{1,40}: ", line):
            out.append("")
        was_code = is_code
        parts = re.split(r"(`[^`]*`)", line)
        out.append(
            line if is_code else "".join(p if p.startswith("`") else re.sub(r"([*|_\\])", r"\\\1", p) for p in parts)
        )
    lines[:] = out


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("hyper-parameters", HyperParameters)
    app.add_directive("settings", Settings)
    app.add_directive("measured", Measured)
    app.connect("autodoc-process-docstring", as_restructured_text)
    return {"parallel_read_safe": True}
