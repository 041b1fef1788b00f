"""Run the notebooks and keep what they show: python docs/notebooks/run.py."""

from pathlib import Path

import nbclient
import nbformat

for path in sorted(Path(__file__).parent.glob("*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times would differ at every run
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, path)
    print(path.name)
