"""A person in JupyterLab: runs a notebook, stops it, goes on, saves, reloads, and opens it where nobody trusts it.

``make jupyter`` runs this with its own environment; the kernel is that of the tests. Pictures are left in
``.cache/jupyter``, to be looked at.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parent.parent.parent
PICTURES = ROOT / ".cache" / "jupyter"
TOKEN = "abc"
CELLS = (
    """import time
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from ignite_hooks import attach_hooks

torch.manual_seed(0)
x = torch.randn(512, 16)
data = torch.utils.data.DataLoader(list(zip(x, (x[:, :4].sum(1) > 0).long())), batch_size=32, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
optimizer, loss = torch.optim.SGD(model.parameters(), lr=0.1), torch.nn.functional.cross_entropy
trainer = create_supervised_trainer(model, optimizer, loss)
evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy(), "loss": Loss(loss)})
trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: time.sleep(pause));""",
    """runner = attach_hooks(trainer, {"custom_hooks": ["ReportHook"]}, work_dir="first", evaluators=evaluator,
                      model=model, optimizer=optimizer, val_loader=data)""",
    "pause = 0.001\ntrainer.run(data, max_epochs=12);",
    "runner.best",
    "runner.checkpoints",
    "runner.plot()",
    "runner.history.to_pandas().tail(3)",
    "runner.show_report(height=300)",
)
SLOWER = "pause = 0.05\ntrainer.run(data, max_epochs=30);"
FASTER = "pause = 0.001\ntrainer.run(data, max_epochs=30);"
PANEL = "display_data:text/html+text/plain"
TABLE, PICTURE = "text/html+text/plain", "image/png+text/plain"

OUTPUTS = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map(cell => cell.outputs.toJSON().map(
    one => one.output_type + ':' + (one.ename || one.name || Object.keys(one.data || {}).sort().join('+'))))"""
TRUSTED = "[...window.jupyterapp.shell.currentWidget.content.model.cells].map(cell => cell.trusted)"
SET = "text => [...window.jupyterapp.shell.currentWidget.content.model.cells][2].sharedModel.setSource(text)"
BUSY = '.jp-NotebookPanel-toolbar .jp-Notebook-ExecutionIndicator[data-status="busy"]'
READY = """() => {
    // On a slow machine it asks which kernel to start, before it has read that in the notebook.
    const dialog = document.querySelector('.jp-Dialog'), tested = dialog?.querySelector('option[value*="tested"]');
    if (tested) {
        tested.selected = true;
        dialog.querySelector('.jp-mod-accept').click();
    }
    const kernel = window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel;
    return !dialog && kernel?.connectionStatus === 'connected' && kernel.status === 'idle';
}"""
IDLE = '.jp-NotebookPanel-toolbar .jp-Notebook-ExecutionIndicator[data-status="idle"]'


class Lab:
    """A server of JupyterLab, and a page in a browser."""

    def __init__(self, folder: Path, page: Page) -> None:
        self.folder, self.page = folder, page
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        """Serve the notebooks until the end of the block."""
        home = self.folder / "home"
        environment = {**os.environ, "HOME": str(home), "JUPYTER_PATH": str(self.folder / "share")}
        command = [str(Path(sys.executable).parent / "jupyter-lab"), "--no-browser", "--allow-root"]
        command += ["--ServerApp.ip=127.0.0.1", f"--port={self.port}", "--ServerApp.port_retries=0"]
        command += [f"--ServerApp.root_dir={self.folder / 'notebooks'}", f"--IdentityProvider.token={TOKEN}"]
        with (self.folder / "server.log").open("a") as log:
            server = subprocess.Popen(
                [*command, "--LabApp.expose_app_in_browser=True"], env=environment, stdout=log, stderr=log
            )
        try:
            deadline = time.monotonic() + 120
            while True:
                try:
                    self.ask("api")
                    break
                except OSError:
                    assert time.monotonic() < deadline, (self.folder / "server.log").read_text()
                    time.sleep(0.2)
            yield
            for kernel in json.loads(self.ask("api/kernels")):
                self.ask(f"api/kernels/{kernel['id']}", "DELETE")
        finally:
            server.terminate()
            server.wait(60)

    def ask(self, path: str, method: str = "GET") -> bytes:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}?token={TOKEN}", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            content: bytes = answer.read()
        return content

    def open(self) -> None:
        self.page.goto(f"http://127.0.0.1:{self.port}/lab/tree/run.ipynb?token={TOKEN}&reset")
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        self.page.wait_for_function(READY)

    def fire(self, command: str) -> None:
        """Start a command without waiting: one that runs a cell ends with the cell."""
        self.page.evaluate("name => { window.jupyterapp.commands.execute(name).catch(() => 0) }", command)

    def do(self, command: str, **given: Any) -> None:
        self.page.evaluate("([name, given]) => window.jupyterapp.commands.execute(name, given)", [command, given])

    def run_third(self, source: str) -> None:
        self.page.evaluate(SET, source)
        self.run_cell(2)

    def run_cell(self, number: int) -> None:
        self.page.locator(".jp-CodeCell").nth(number).locator(".jp-InputPrompt").click()
        self.page.keyboard.press("Control+Enter")

    def click(self, link: str) -> None:
        """Follow a link of the panel."""
        self.page.locator(".jp-OutputArea a", has_text=re.compile(f"^{link}$")).first.click()

    def until(self, words: str) -> None:
        self.page.wait_for_function("words => document.body.innerText.includes(words)", arg=words)
        self.page.wait_for_selector(IDLE, state="attached")

    def must_show(self, moment: str, third: list[str], plain: int = 0) -> None:
        """Fail unless the third cell has these outputs and no other cell has one that is red; take a picture.

        Args:
            moment: When that is.
            third: The outputs of the third cell.
            plain: The number of outputs of others that are plain lines.
        """
        outputs = self.page.evaluate(OUTPUTS)
        assert outputs[2] == third, f"{moment}: {outputs}"
        others = [one for cell in (*outputs[:2], *outputs[3:]) for one in cell]
        assert [one for one in others if one.startswith(("stream:stderr", "error:"))] == [], f"{moment}: {outputs}"
        assert others.count("stream:stdout") == plain, f"{moment}: {outputs}"
        # The splash of a page that was just opened fades over it.
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")
        self.page.screenshot(path=PICTURES / f"{moment.replace(' ', '_')}.png")
        print(f"ok   {moment}", flush=True)


def as_a_person_would(lab: Lab, notebook: Path) -> None:
    with lab.served():
        lab.open()
        lab.fire("notebook:run-all-cells")
        lab.until("epoch 12/12")
        lab.must_show("run all", [PANEL])
        kinds = [one for cell in lab.page.evaluate(OUTPUTS)[3:] for one in cell]
        assert [kind.split(":")[1] for kind in kinds] == [TABLE, TABLE, PICTURE, TABLE, TABLE], kinds
        # The whole notebook once more, and the cells that attach and run by themselves: each has one panel.
        lab.fire("notebook:run-all-cells")
        lab.page.wait_for_selector(BUSY, state="attached")
        lab.until("epoch 12/12")
        lab.must_show("run all again", [PANEL])
        lab.run_cell(1)
        lab.until("replaced the hooks of an earlier")
        lab.run_third(FASTER.replace("30", "14"))
        lab.until("epoch 14/14")
        lab.must_show("attached again", [PANEL], plain=1)
        lab.click("report")
        lab.page.wait_for_function("() => window.jupyterapp.shell.currentWidget.title.label === 'report.html'")
        lab.do("application:close")
        lab.page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        lab.run_third(SLOWER)
        lab.page.wait_for_function("() => /iteration 2[3-9][0-9]/.test(document.body.innerText)")
        lab.page.click('.jp-NotebookPanel-toolbar [data-jp-item-name="interrupt"] >> jp-button')
        lab.until("interrupted at")
        lab.must_show("interrupted", [PANEL, "error:RunInterrupted"], plain=1)
        lab.run_third(FASTER)
        lab.until("epoch 30/30")
        lab.must_show("gone on", [PANEL], plain=1)
        lab.do("docmanager:save")
        size = len(json.dumps(json.loads(notebook.read_text("utf-8"))["cells"][2]))
        assert size < 100_000, size
        lab.page.reload()
        lab.until("epoch 30/30")
        lab.must_show("reloaded", [PANEL], plain=1)
        lab.do("apputils:change-theme", theme="JupyterLab Dark")
        lab.page.wait_for_function("document.body.dataset.jpThemeLight === 'false'")
        lab.must_show("dark", [PANEL], plain=1)
        lab.do("apputils:change-theme", theme="JupyterLab Light")
    for database in (lab.folder / "home").rglob("nbsignatures.db*"):
        database.unlink()
    with lab.served():
        lab.open()
        assert not any(lab.page.evaluate(TRUSTED))
        lab.until("epoch 30/30")
        lab.must_show("untrusted", [PANEL], plain=1)


def main() -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("no Chromium here: install it to drive JupyterLab (apt-get install chromium)")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = Path(temporary)
        kernel = folder / "share" / "kernels" / "tested" / "kernel.json"
        kernel.parent.mkdir(parents=True)
        argv = [str(ROOT / ".venv/bin/python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        kernel.write_text(json.dumps({"argv": argv, "display_name": "tested", "language": "python"}))
        notebook = folder / "notebooks" / "run.ipynb"
        notebook.parent.mkdir()
        empty = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
        cells = [{**empty, "id": f"cell{i}", "source": source} for i, source in enumerate(CELLS)]
        spec = {"kernelspec": {"name": "tested", "display_name": "tested", "language": "python"}}
        notebook.write_text(json.dumps({"cells": cells, "metadata": spec, "nbformat": 4, "nbformat_minor": 5}))
        # The browser stays on this machine.
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"]
        options += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--disable-component-update"]
        chromium = playwright.chromium.launch(executable_path=browser, headless=True, args=options)
        page = chromium.new_page(viewport={"width": 1100, "height": 2600})
        page.set_default_timeout(600_000)
        try:
            as_a_person_would(Lab(folder, page), notebook)
        except BaseException:
            page.screenshot(path=PICTURES / "failed.png")
            raise
        chromium.close()
    print(f"pictures: {PICTURES}")


if __name__ == "__main__":
    main()
