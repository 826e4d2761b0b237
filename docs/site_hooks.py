"""Hooks of the documentation site: pages made from the repository, and links that lead out of docs/.

The Markdown files link to each other and to files of the repository by relative paths, so that they also work where the
repository is browsed. Here links to files outside of docs/ become links to the repository, images in results/ are
copied, and README.md, CONTRIBUTING.md, CHANGELOG.md and the settings reference become pages.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/monotau/monotau/blob/main/"
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the repository that become pages."""
LINK = re.compile(r"(!?)(\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s]+)(\))")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/, and the images of results/."""
    sys.path.insert(0, str(ROOT / "docs"))
    from settings_reference import render

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    files.append(File.generated(config, "settings.md", content=render()))
    for image in sorted((ROOT / "results").rglob("*.png")):
        files.append(File.generated(config, image.relative_to(ROOT).as_posix(), abs_src_path=str(image)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite relative links, outside of code."""
    uri = page.file.src_uri
    origin = next((source for source, made in PAGES.items() if made == uri), f"docs/{uri}")
    pieces = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)  # code has the odd places
    for place in range(0, len(pieces), 2):
        pieces[place] = LINK.sub(
            lambda found: found[1] + found[2] + rewritten(found[3], origin, uri) + found[4], pieces[place]
        )
    return "".join(pieces)


def rewritten(target: str, origin: str, uri: str) -> str:
    """Return where a link leads on the site."""
    if re.match(r"[a-z]+:|#", target):
        return target
    path, _, anchor = target.partition("#")
    anchor = f"#{anchor}" if anchor else ""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
    if found in PAGES:
        place = PAGES[found]
    elif found.startswith("docs/") and not found.endswith(".py") and (ROOT / found).is_file():
        place = found.removeprefix("docs/")
    elif found.startswith("results/") and found.endswith(".png"):
        place = found
    elif (ROOT / found).exists():
        kind = REPOSITORY if (ROOT / found).is_file() else REPOSITORY.replace("/blob/", "/tree/")
        return kind + found + anchor
    else:
        return target  # mkdocs reports it
    return posixpath.relpath(place, posixpath.dirname(uri) or ".") + anchor
