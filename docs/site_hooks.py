"""What the site has beside the pages in docs/: the API reference, sources that pages link to.

mkdocs calls these functions (``hooks`` in mkdocs.yml). Pages link to sources and to files at the
project's root as a code host resolves it, by relative paths; here such a file becomes a page of
its own, and links go there.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads a hook by its path

import api_pages

ROOT = Path(__file__).parents[1]
AT_ROOT = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Files at the project's root that are pages in the navigation."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".sh": "bash"}
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the API into the navigation, after the other reference pages."""
    pages: list[Any] = [{name: _api_page(name)} for name in api_pages.packages()]
    for section in config.nav or ():
        if isinstance(section, dict) and "Reference" in section:
            section["Reference"].append({"Python": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file in docs/ holds."""
    for name in api_pages.packages():
        files.append(File.generated(config, _api_page(name), content=api_pages.page(name)))
    for name, uri in AT_ROOT.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=text))
    wanted = {
        target
        for file in files.documentation_pages()
        for _, link, *_ in LINK.findall(FENCE.sub("", file.content_string))
        if (target := _outside(file.src_uri, link))
    }
    for target in sorted(wanted):
        if target not in AT_ROOT:
            content = _source_page(target)
            files.append(File.generated(config, _source_uri(target), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files outside docs/ lead to their pages."""
    del config, files
    here = page.file.src_uri

    def led(match: re.Match[str]) -> str:
        before, link, anchor, after = match.groups()
        target = _outside(here, link)
        if target is None:
            if here in AT_ROOT.values() and link.startswith("docs/"):
                link = link.removeprefix("docs/")
            return f"{before}{link}{anchor or ''}{after}"
        uri = AT_ROOT.get(target) or _source_uri(target)
        return f"{before}{posixpath.relpath(uri, posixpath.dirname(here))}{anchor or ''}{after}"

    parts = FENCE.split(markdown)
    return "".join(p if p.startswith("```") else LINK.sub(led, p) for p in parts)


def _api_page(name: str) -> str:
    return f"reference/api/{name}.md"


def _outside(page: str, link: str) -> str | None:
    """The file at the project's root or below, but not in docs/, that a page's link means."""
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    folder = "." if page in AT_ROOT.values() else posixpath.join("docs", posixpath.dirname(page))
    target = posixpath.normpath(posixpath.join(folder, link))
    inside_docs = target.startswith("docs/") and not target.endswith(".py")
    if inside_docs or target.startswith("..") or not (ROOT / target).is_file():
        return None
    return target


def _source_uri(target: str) -> str:
    return f"source/{target}.md" if not target.endswith(".md") else f"source/{target}"


def _source_page(target: str) -> str:
    text = (ROOT / target).read_text(encoding="utf-8")
    if target.endswith(".md"):
        return text
    language = LANGUAGES.get(posixpath.splitext(target)[1], "text")
    head = f"---\ntitle: {target}\nsearch:\n  exclude: true\n---\n\n# `{target}`\n"
    return f"{head}\n`````{language}\n{text.rstrip()}\n`````\n"
