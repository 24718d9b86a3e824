"""Makes tables.png of python.md: cells as a notebook shows them, run here, in a page that a browser draws.

    python docs/tables.py docs/tables.png

Needs the package `opwire`, and chromium on the PATH.
"""

import ast
import html
import pathlib
import re
import subprocess
import sys
import tempfile

import opwire as ow

CELLS = """
client = ow.connect(session="lab")
client.show("devices")
----
@ow.jit
def layer(x, w, b):
    h = ow.relu(x @ w + b)
    return ow.softmax(h, axis=-1), h.mean()

x, w, b = ow.ones((512, 256)), ow.ones((256, 64)) / 16, ow.zeros(64)
layer.plan(x, w, b)
----
layer(x, w, b)
layer.profile(x, w, b)
----
client.store["w"] = w
client.store["b"] = b
token = client.store["w"].grant("notebook")
client.show("grants")
"""

# As JupyterLab draws cells and tables.
STYLE = """
body { margin: 12px; width: 1040px; font: 13px sans-serif; color: #000; background: #fff }
.cell { display: flex; margin: 6px 0 }
.prompt { width: 64px; flex: none; padding: 6px 8px 0 0; font: 13px monospace; color: #307fc1; text-align: right }
pre { flex: 1; margin: 0; padding: 6px 8px; font: 13px monospace; background: #f5f5f5; border: 1px solid #e0e0e0 }
.out .prompt { color: #bf5b3d }
table { border-collapse: collapse; font-size: 12px }
caption { text-align: left; padding: 4px 0 }
thead { border-bottom: 1px solid #bdbdbd }
th, td { padding: 4px 8px; vertical-align: top }
th, td:not(:last-child) { white-space: nowrap }
tbody tr:nth-child(odd) { background: #f5f5f5 }
"""


def run(cell, space):
    """The value of the cell's last line."""
    *before, last = ast.parse(cell).body
    exec(compile(ast.Module(before, []), "cell", "exec"), space)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), space)


def page():
    space, cells = {"ow": ow}, []
    for i, cell in enumerate(CELLS.strip().split("\n----\n"), 1):
        shown = run(cell, space)._repr_html_()
        cells.append(
            f"<div class=cell><div class=prompt>[{i}]:</div><pre>{html.escape(cell)}</pre></div><div class='cell out'><div class=prompt>[{i}]:</div>{shown}</div>"
        )
    space["client"].close(free=True)
    return f"<!doctype html><meta charset=utf-8><title></title><style>{STYLE}</style>{''.join(cells)}<script>document.title = document.body.scrollHeight</script>"


def main(picture):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "page.html"
        path.write_text(page(), encoding="utf-8")
        browser = [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
        ]
        drawn = subprocess.run(
            [*browser, "--window-size=1064,100", "--dump-dom", path.as_uri()],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        height = int(re.search(r"<title>(\d+)</title>", drawn)[1]) + 24
        subprocess.run(
            [*browser, f"--window-size=1064,{height}", f"--screenshot={picture}", path.as_uri()],
            check=True,
            capture_output=True,
        )


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).absolute())
