# modlab. `make` alone lists what there is.

PYTHON ?= python3
# JupyterLab's port, and any further option of it: make lab LAB_ARGS="--no-browser --ip=0.0.0.0"
PORT ?= 8888
LAB_ARGS ?=
# Where torch comes from when pip would take a CUDA build; empty: never (then CUDA is installed).
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

VENV := .venv
PY := $(VENV)/bin/python
INSTALL := $(PY) -m pip install --quiet --constraint constraints.txt
# One sentence that says what to do; $(,) is a comma in it.
, := ,
STOP = { echo "modlab: $(1)" >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help lab test test-long test-device lint bundle notebooks pages bench bench-gpu sick clean node chromium

help: ## say what the targets do
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

lab: $(VENV)/.lab-stamp ## open JupyterLab on your own copy of the course
	@$(PY) -m modlab lessons copy course
	@$(PY) scripts/open_lab.py --port=$(PORT) $(LAB_ARGS)

test: node chromium ## run all checks: lint, front end, units, notebooks, a real browser
	@$(PY) scripts/checks.py

test-long: chromium ## run the checks that take longer: every verb on every kind of wrapped, sharded or driven model
	@$(PY) scripts/checks.py long

test-device: $(VENV)/.dev-stamp ## run the course on this machine's accelerator, or on a fake one that is as strict
	@$(PY) scripts/checks.py device

lint: $(VENV)/.dev-stamp ## run ruff and mypy
	@$(PY) scripts/checks.py lint

bundle: node js/node_modules/.package-lock.json ## build the front end into modlab/views/static
	@cd js && npm run --silent build

notebooks: $(VENV)/.dev-stamp ## execute and normalise the notebooks, as they are committed
	@$(PY) scripts/notebooks.py

pages: $(VENV)/.dev-stamp ## make the tour's page, the clinic and the map of nn.Module, in docs/
	@$(PY) -m scripts.pages
	@$(PY) -m scripts.clinic
	@$(PY) -m scripts.module_map

bench: $(VENV)/.dev-stamp ## measure modlab beside the alternatives that are installed
	@$(PY) -m bench

sick: $(VENV)/.dev-stamp ## ask modlab, and plain rules, for the causes of sick trainings (an hour)
	@$(PY) -m bench.sick score

bench-gpu: $(VENV)/.dev-stamp ## measure a watch and a trace on this machine's accelerator, and write the tables into docs/benchmarks.md
	@$(PY) -m bench.accelerators

clean: ## delete caches and builds; keep .venv and your course
	@rm -rf dist js/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis screenshots
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# ---- the environment; a stamp makes the second run quick -----------------------------------

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || $(call STOP,there is no $(PYTHON): install Python 3.11 or newer$(,) or name one by make PYTHON=…)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  $(call STOP,$(PYTHON) is $$($(PYTHON) -V)$(,) but 3.11 or newer is needed: install one and name it by make PYTHON=…)
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  $(call STOP,$(PYTHON) cannot make environments: install its venv module (on Debian: apt install python3-venv))
	@echo "Making $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.torch-stamp: constraints.txt | $(VENV)/.made
	@$(PY) scripts/install_torch.py --cpu-index "$(TORCH_INDEX)"
	@touch $@

$(VENV)/.lab-stamp: pyproject.toml constraints.txt $(VENV)/.torch-stamp
	@echo "Installing modlab and JupyterLab"
	@$(INSTALL) --editable '.[lab]' || $(call STOP,the packages could not be installed: see the message of pip above)
	@touch $@

$(VENV)/.dev-stamp: pyproject.toml constraints.txt $(VENV)/.torch-stamp
	@echo "Installing modlab, JupyterLab and the tools for developing"
	@$(INSTALL) --editable '.[lab,dev]' || $(call STOP,the packages could not be installed: see the message of pip above)
	@touch $@ $(VENV)/.lab-stamp

js/node_modules/.package-lock.json: js/package-lock.json
	@cd js && npm ci
	@touch $@

node:
	@command -v node >/dev/null && command -v npm >/dev/null || \
	  $(call STOP,Node 20 or newer and npm are needed for the front end: install them (https://nodejs.org or your system's packages nodejs and npm))
	@node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || $(call STOP,Node $$(node -v) is too old: install Node 20 or newer)

chromium: $(VENV)/.dev-stamp
	@path=$$($(PY) scripts/find_chromium.py --install) && echo "Chromium: $$path"
