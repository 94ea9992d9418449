#!/usr/bin/env python3
"""Builds the documentation as a web site with mkdocs (`make docs`).

    scripts/build-site.py DIR

Copies every Markdown page, and every file that a page links to, to DIR/pages. Paths are those of the repository, so
that links stay valid. Then mkdocs builds DIR/site, and fails on a broken link (--strict). Uses the mkdocs of the Python
that runs this script (docs/requirements.txt)."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
NOT_A_PAGE = ("tests/", ".github/", "src/")


def linked_files(page):
    for target in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        file = (ROOT / page).parent / target
        if "://" not in target and file.is_file():
            yield file.resolve().relative_to(ROOT)


def copy_pages(to):
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.md"], check=True,
                            capture_output=True, text=True).stdout.split()
    pages = [pathlib.Path(page) for page in listed if not page.startswith(NOT_A_PAGE) and (ROOT / page).is_file()]
    for file in {*pages, *(file for page in pages for file in linked_files(page))}:
        (to / file).parent.mkdir(parents=True, exist_ok=True)
        # Links to directories are for readers of the repository.
        if file.suffix == ".md":
            (to / file).write_text(LINK.sub(lambda match: without_directory(file, match), (ROOT / file).read_text()))
        else:
            shutil.copyfile(ROOT / file, to / file)


def without_directory(page, match):
    return "]" if (ROOT / page.parent / match[1]).is_dir() else match[0]


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    build = pathlib.Path(sys.argv[1]).resolve()
    shutil.rmtree(build / "pages", ignore_errors=True)
    copy_pages(build / "pages")
    shutil.copyfile(ROOT / "mkdocs.yml", build / "mkdocs.yml")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", build / "mkdocs.yml"]
    status = subprocess.run(command, check=False, env=dict(os.environ, NO_MKDOCS_2_WARNING="1")).returncode
    if status == 0:
        print(f"{build}/site/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
