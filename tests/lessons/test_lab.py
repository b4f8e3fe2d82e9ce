"""The lab in which the course is opened: `make lab`, and Binder."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEWS = "@jupyterlab/apputils-extension:announcements"


def test_nobody_is_asked_about_news_over_the_tour(monkeypatch, tmp_path):
    config = pytest.importorskip("jupyterlab_server.config")
    spec = importlib.util.spec_from_file_location("open_lab", ROOT / "scripts" / "open_lab.py")
    lab = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lab)
    started = []
    monkeypatch.setattr(lab, "COURSE", tmp_path)
    monkeypatch.setattr(os, "execv", lambda program, command: started.append(command))
    monkeypatch.setattr(sys, "argv", ["open_lab.py", "--port=1"])
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))  # a new user
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path / "somebody's"))
    lab.main()
    assert started[0][-1] == "--port=1"
    assert os.environ["JUPYTER_CONFIG_PATH"].endswith(os.pathsep + str(tmp_path / "somebody's"))
    assert config.get_static_page_config(level="all")["disabledExtensions"][NEWS] is True
    assert not list(tmp_path.iterdir())  # nothing is written for it
    assert NEWS in (ROOT / "binder" / "postBuild").read_text()
