"""A headless browser, and the content of a page after its scripts have run."""

import html.parser
import os
import re
import shutil
import subprocess
import tempfile

NAMES = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"]
VOID = {"meta", "br", "hr", "img", "input", "link"}


def find():
    wanted = os.environ.get("GRADWIRE_BROWSER")
    for name in [wanted] if wanted else NAMES:
        if shutil.which(name):
            return shutil.which(name)
    raise AssertionError(f"no browser ({wanted or ', '.join(NAMES)}): run scripts/setup.sh test, "
                         "or name a Chromium or Chrome with GRADWIRE_BROWSER=")


class Node:
    """An element: its tag, attributes, children (nodes and texts)."""

    def __init__(self, tag, attributes):
        self.tag, self.attributes, self.children = tag, attributes, []

    def all(self, tag):
        for child in self.children:
            if isinstance(child, Node):
                if child.tag == tag:
                    yield child
                yield from child.all(tag)

    def text(self):
        return "".join(c if isinstance(c, str) else c.text() for c in self.children)

    def by_id(self, name):
        nodes = [self] if self.attributes.get("id") == name else []
        for child in self.children:
            if isinstance(child, Node):
                nodes += child.by_id(name)
        return nodes


class _Tree(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.root = Node("document", {})
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag):
        if any(node.tag == tag for node in self.open[1:]):
            while self.open.pop().tag != tag:
                pass

    def handle_data(self, data):
        self.open[-1].children.append(data)


def _command(arguments):
    """Uses an empty network namespace if the machine permits it."""
    command = [find(), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
               *arguments]
    for alone in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0:
            return alone + command
    return command


def run(*arguments):
    """Runs the browser; returns its output and the pages' console messages."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(_command([f"--user-data-dir={profile}", *arguments]),
                              capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise AssertionError(f"the browser failed: {done.stderr[-2000:]}")
    return done.stdout, re.findall(r".*CONSOLE.*", done.stderr)


def open_page(path, *arguments):
    """Returns the page's elements after its scripts have run, and its console messages."""
    dom, said = run("--dump-dom", "--virtual-time-budget=10000", *arguments, f"file://{path}")
    tree = _Tree()
    tree.feed(dom)
    return tree.root, said
