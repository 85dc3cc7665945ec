"""Pages that are made from the code whenever the site is built.

    {cli-reference}                  every command, its arguments and options
    {http-reference}                 every path of the HTTP API, from its OpenAPI document
    {settings-reference}             every setting of a model, with its default
    {notebook} ../notebooks/x.ipynb  a notebook; with LOGER_NOTEBOOKS=run, its output too

Each mark is replaced by Markdown before Sphinx parses the page, so nothing generated is committed.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; empty without rows."""
    lines = [[" ".join(cell.split()).replace("|", r"\|") for cell in row] for row in rows]
    if not lines:
        return ""
    titles = list(head)
    made = [titles, ["---"] * len(titles), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in made) + "\n\n"


# ── the command line ────────────────────────────────────────────────────────────────────


EXAMPLES = re.compile(r"\x08\nExamples?:\n((?:  .*\n?)+)")


def cli_reference() -> str:
    """Every command of ``loger``."""
    from loger.cli import app

    return "\n".join(_commands(app, "loger", None))


def _commands(command: Any, name: str, parent: Any) -> Iterator[str]:
    if command.hidden:
        return
    given = {"info_name": name.split()[-1], "parent": parent}
    context = command.context_class(command, **given, **command.context_settings)
    if parent is not None:
        yield f"## {name}\n"
    yield EXAMPLES.sub(r"```text\n\1\n```", inspect.cleandoc(command.help or "")) + "\n"
    if not hasattr(command, "commands"):
        usage = command.get_usage(context).removeprefix("Usage: ")
        yield f"```text\n{usage}\n```\n"
        records = [p.get_help_record(context) for p in command.get_params(context)]
        rows = [(f"`{r[0].strip()}`", _escaped(r[1])) for r in records if r]
        yield table(("argument or option", "meaning"), rows)
    for below, sub in getattr(command, "commands", {}).items():
        yield from _commands(sub, f"{name} {below}", context)


def _escaped(text: str) -> str:
    return re.sub(r"([*_<>\[\]])", r"\\\1", text)


# ── settings ────────────────────────────────────────────────────────────────────────────


def settings_reference() -> str:
    """The settings of LOGER, section by section."""
    from loger.config import LOGERConfig

    return "\n".join(_settings(LOGERConfig, ""))


def _settings(kind: type, prefix: str) -> Iterator[str]:
    heading = f"`{prefix.rstrip('.')}`" if prefix else "At the top"
    yield f"## {heading}\n\n{inspect.cleandoc(kind.__doc__ or '')}\n"
    says = _attribute_docstrings(kind)
    plain, sections = [], []
    for one in fields(kind):
        value = _default(one)
        if is_dataclass(value):
            sections.append((type(value), f"{prefix}{one.name}."))
        elif not (prefix and one.name == "seed"):  # set once, at the top
            plain.append((f"`{prefix}{one.name}`", f"`{value!r}`", says.get(one.name, "")))
    yield table(("setting", "default", "meaning"), plain)
    for section, name in sections:
        yield from _settings(section, name)


def _default(one: Field[Any]) -> Any:
    return one.default_factory() if one.default_factory is not MISSING else one.default


def _attribute_docstrings(kind: type) -> dict[str, str]:
    """The string below each field, in the class and those it inherits from."""
    found: dict[str, str] = {}
    for base in reversed([k for k in kind.__mro__ if is_dataclass(k)]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, after in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
                text = ast.literal_eval(after.value)
                found[ast.unparse(field.target)] = text.replace("``", "`")
    return found


# ── the HTTP API ────────────────────────────────────────────────────────────────────────


def http_reference() -> str:
    """Every path of the HTTP API and every object that it takes or gives."""
    from fastapi.openapi.utils import get_openapi

    from loger.web.routes import router

    document = get_openapi(title="loger", version="1", routes=router.routes)
    parts = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = document["components"]["schemas"]
    objects = [_object(name, s) for name, s in sorted(schemas.items()) if s.get("properties")]
    return "\n".join(["## Paths\n", *parts, "## Objects\n", *objects])


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = [
        (f"`{p['name']}`", p["in"], _type(p["schema"]), p.get("description", ""))
        for p in operation.get("parameters", [])
    ]
    body = operation.get("requestBody", {}).get("content", {})
    takes = ", ".join(f"{kind}: {_type(c.get('schema', {}))}" for kind, c in body.items())
    gives = ", ".join(
        _type(c["schema"])
        for status, answer in operation["responses"].items()
        for c in answer.get("content", {}).values()
        if status.startswith("2") and c.get("schema")
    )
    lines = [
        f"### `{method.upper()} {path}`\n",
        operation.get("description", operation.get("summary", "")) + "\n",
        f"Body: {takes}\n" if takes else "",
        table(("parameter", "in", "type", "meaning"), parameters),
        f"Answer: {gives}\n" if gives else "",
    ]
    return "\n".join(line for line in lines if line)


def _object(name: str, schema: dict[str, Any]) -> str:
    needed = schema.get("required", [])
    rows = [
        (f"`{key}`" + ("" if key in needed else " (optional)"), _type(s), s.get("description", ""))
        for key, s in schema["properties"].items()
    ]
    about = schema.get("description", "")
    return f"### {name}\n\n{about}\n\n{table(('field', 'type', 'meaning'), rows)}"


def _type(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words, with its limits and default."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(_type(s) for s in schema.get("anyOf") or schema["oneOf"])
    if "enum" in schema or "const" in schema:
        values = schema.get("enum") or [schema["const"]]
        text = " or ".join(f"`{value}`" for value in values)
    elif schema.get("type") == "array":
        text = f"list of {_type(schema.get('items', {}))}"
    else:
        text = str(schema.get("type", "any"))
    signs = {"minimum": "≥", "maximum": "≤", "maxLength": "length ≤", "maxItems": "at most"}
    limits = [f"{sign} {schema[key]}" for key, sign in signs.items() if key in schema]
    default = schema.get("default")
    limits += [f"default `{json.dumps(default)}`"] if default not in (None, []) else []
    return text + (f", {', '.join(limits)}" if limits else "")


# ── notebooks ───────────────────────────────────────────────────────────────────────────


def notebook(path: Path) -> str:
    """The cells of a notebook; with LOGER_NOTEBOOKS=run it is run first, and its output shown."""
    if os.environ.get("LOGER_NOTEBOOKS") == "run":
        import nbformat
        from nbclient import NotebookClient

        ran = NotebookClient(nbformat.read(path, as_version=4), timeout=600).execute()
        cells = ran["cells"]
    else:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _cell(cell))


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield re.sub(r"\A# .*\n", "", source)  # the page has the title
        return
    yield f"```python\n{source}\n```"
    for output in cell.get("outputs", []):
        shown = output.get("data", {})
        if "text/html" in shown:
            yield f"```{{raw}} html\n{''.join(shown['text/html'])}\n```"
        else:
            text = "".join(shown.get("text/plain") or output.get("text", ""))
            yield f"```text\n{text.rstrip()}\n```"


# ── Sphinx ──────────────────────────────────────────────────────────────────────────────

MADE = {
    "cli-reference": cli_reference,
    "http-reference": http_reference,
    "settings-reference": settings_reference,
}
MARK = re.compile(r"^```\{([a-z-]+)\} *(\S*)\n```$", re.MULTILINE)


def _fill(app: Any, page: str, source: list[str]) -> None:
    """Put the text in the place of each mark, before Sphinx parses the page."""

    def text(found: re.Match[str]) -> str:
        name, argument = found.groups()
        if name == "notebook":
            relative, path = app.env.relfn2path(argument, page)
            app.env.note_dependency(relative)
            return notebook(Path(path))
        return MADE[name]() if name in MADE else found[0]

    source[0] = MARK.sub(text, source[0])


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls first."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True}
