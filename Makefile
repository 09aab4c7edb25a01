# `make` lists what can be done. The first target that needs it creates .venv and installs into it; later runs start
# at once, until setup.cfg, pyproject.toml or constraints.txt changes.

PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
CLIENTS := .venv-clients
MATRIX := .venv-matrix
JUPYTER := .venv-jupyter
AGENT := .venv-agent
RAY := .venv-ray
TRACKIO := .venv-trackio
DIST := .venv-dist
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check install --quiet -c constraints.txt
# The folder of the site: a version, or `dev` for what comes after it.
DOCS ?= $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' ignite_hooks/version.py)
# Its schemas are part of it: nothing is fetched.
SCHEMA := $(VENV)/bin/check-jsonschema --quiet --builtin-schema
INPUTS := setup.cfg pyproject.toml constraints.txt

# Nothing is written outside of this folder: what pip and matplotlib keep stays here too.
export PIP_CACHE_DIR ?= $(CURDIR)/.cache/pip
export MPLCONFIGDIR ?= $(CURDIR)/.cache/matplotlib

.DEFAULT_GOAL := help
# demo and test install into the same .venv, one after the other.
.NOTPARALLEL:
.DELETE_ON_ERROR:

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.installed-demo  ## install what the demo needs, train a small model with every kind of hook on, show the report
	$(RUN) -m ignite_hooks demo $(ARGS)

.PHONY: test
test: $(VENV)/.installed-test  ## install what the tests need and run them on all cores; ARGS="-k name" to choose
	$(RUN) $(if $(ARGS),-m pytest -q $(ARGS),-m tests)

.PHONY: coverage
coverage: $(VENV)/.installed-test  ## run all tests and show which lines and branches no process of them has run; ARGS="-m 'not slow'" for some
	$(RUN) -m coverage erase
	$(RUN) -m coverage run -m tests $(ARGS)
	$(RUN) -m coverage combine --quiet
	$(RUN) -m coverage report

.PHONY: load
load: $(VENV)/.installed-test  ## all tests beside busy loops and with slow files, ROUNDS=3 times; needs a C compiler; an hour
	$(RUN) -m tests.under_load $(ROUNDS)

.PHONY: faults
faults: $(VENV)/.installed-test  ## the long forms of the fault tests: thousands of kills, damaged and malicious files, any input
	IGNITE_HOOKS_LONG=1 $(RUN) -m pytest -q -s -m 'faults or hypothesis' $(ARGS)

.PHONY: machines
machines: $(VENV)/.installed-test  ## as root: runs on three machines of namespaces that die and lose cables; writes docs/machines.md; ten minutes
	$(RUN) -m tests.machines

.PHONY: check
check: $(VENV)/.installed-test  ## formatting, lint, types, architecture and docstring examples
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports
	$(RUN) tests/house.py
	$(RUN) tests/declared.py
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) vendor.dependabot .github/dependabot.yml
	$(SCHEMA) vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA) vendor.citation-file-format CITATION.cff
	$(RUN) -m pytest -q --doctest-modules --doctest-ignore-import-errors ignite_hooks  # trackers are not installed

.PHONY: format
format: $(VENV)/.installed-test  ## format the code and apply the safe lint fixes
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

.PHONY: bench
bench: $(BENCH)/.installed  ## measure beside Ignite, MMEngine, Lightning and timm; writes docs/benchmarks.md; twenty minutes
	$(BENCH)/bin/python benchmarks/run.py $(ARGS)

.PHONY: scale
scale: $(BENCH)/.installed  ## a run of a million iterations, and 1 to 8 processes; writes the tables of docs/scale.md
	$(BENCH)/bin/python benchmarks/scale.py $(ARGS)

.PHONY: clients
clients: $(CLIENTS)/.installed  ## software of others with our line and without it; CLIENTS_SOURCES=folder (docs/clients.md); half an hour
	$(CLIENTS)/bin/python -m tests.clients

.PHONY: matrix
matrix: $(VENV)/.created  ## the quick tests with the lowest and the newest versions, Ignite's nightly, other Pythons; writes docs/versions.md; NAMES="lowest 3.13"; gigabytes, an hour
	$(RUN) -m tests.matrix $(NAMES) -- $(ARGS)

.PHONY: jupyter
jupyter: $(JUPYTER)/.installed $(VENV)/.installed-test  ## a person in JupyterLab: run, run again, stop, go on, reload, untrusted; needs Chromium (apt-get install chromium); some minutes
	$(JUPYTER)/bin/python -m tests.jupyter

.PHONY: agent
agent: $(AGENT)/.installed  ## the real agent of ClearML: clones, repositories, queues, aborts, kills; against a stand-in server; half an hour
	IGNITE_HOOKS_AGENT=$(AGENT) $(RUN) -m pytest -q -s tests/agent $(ARGS)

.PHONY: ray
ray: $(RAY)/.installed  ## a search on real clusters of Ray with two nodes that are killed, and trials of Ray Tune; some minutes
	$(RAY)/bin/python -m pytest -q tests/search/test_ray_tasks.py $(ARGS)

.PHONY: trackio
trackio: $(TRACKIO)/.installed  ## runs as Trackio itself reads them, in an environment with the Pillow that it needs
	$(TRACKIO)/bin/python -m pytest -q tests/hooks/trackers/test_trackio_hook.py tests/test_all_hooks.py -k 'trackio or Trackio' $(ARGS)

.PHONY: gallery
gallery: $(VENV)/.installed-demo  ## draw one picture of every kind into docs/gallery
	$(RUN) examples/gallery.py

.PHONY: docs
docs: $(VENV)/.installed-test  ## execute the notebooks and examples, build the documentation into site/<version>, follow every link; open site/index.html
	$(RUN) -m docs.generate.executed
	$(RUN) -m docs.generate
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --site-dir site/$(DOCS)
	$(RUN) -m docs.generate.releases
	$(RUN) -m docs.generate.links
	$(RUN) -m docs.generate.builders site/$(DOCS)

.PHONY: dist
dist: $(DIST)/.installed  ## build the sdist and from it the wheel, and use the wheel in an empty environment; about 1 GB; ARGS=--tests: the sdist's tests
	rm -rf dist build
	$(DIST)/bin/python -m build
	$(DIST)/bin/python -m twine check --strict dist/*
	$(DIST)/bin/python tests/conda_recipe.py
	$(PYTHON) tests/distribution.py $(ARGS)

.PHONY: mlflow
mlflow: $(VENV)/.installed-mlflow  ## an MLflow server on this machine, with SQLite in work_dirs/mlflow-server; PORT=5000
	mkdir -p work_dirs/mlflow-server
	MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(RUN) -m mlflow server --host 127.0.0.1 --port $(or $(PORT),5000) --workers 1 \
		--backend-store-uri sqlite:///work_dirs/mlflow-server/mlflow.db \
		--artifacts-destination work_dirs/mlflow-server/artifacts

.PHONY: schema
schema: $(VENV)/.installed-test  ## write configs/schema.json again, after a setting has changed
	$(RUN) -m ignite_hooks schema > configs/schema.json

.PHONY: install
install: $(VENV)/.installed-test  ## only create .venv with everything for the demo and the tests

.PHONY: clean
clean:  ## remove the environments, caches and build results
	rm -rf $(VENV) $(BENCH) $(CLIENTS) $(MATRIX) $(JUPYTER) $(AGENT) $(RAY) $(TRACKIO) $(DIST) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "ignite_hooks needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed-demo: $(INPUTS) | $(VENV)/.created
	@echo "installing into $(VENV): the first time about 1 GB and a minute or two"
	$(PIP) -e ".[demo]"
	@touch $@

$(VENV)/.installed-test: $(INPUTS) | $(VENV)/.created
	@echo "installing into $(VENV): the first time about 1 GB and a minute or two"
	$(PIP) -e ".[demo,dev]"
	@touch $@

# The page of MLflow is part of its whole package only.
$(VENV)/.installed-mlflow: $(INPUTS) | $(VENV)/.created
	$(PIP) -e ".[mlflow-ui]"
	@touch $@

$(DIST)/.installed:
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/python -m pip --disable-pip-version-check install --quiet build twine py-rattler-build
	@touch $@

$(BENCH)/.installed: $(INPUTS) benchmarks/requirements.txt
	@echo "installing into $(BENCH), with the libraries to compare with: about 1 GB"
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt \
		-r benchmarks/requirements.txt -e ".[mlflow]"
	$(BENCH)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps timm==1.0.31
	@touch $@

$(JUPYTER)/.installed: $(INPUTS)
	$(PYTHON) -m venv $(JUPYTER)
	$(JUPYTER)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt jupyterlab playwright
	mkdir -p $(JUPYTER)/share/jupyter/lab/settings  # no news: they cover a corner of the pictures
	echo '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}' \
		> $(JUPYTER)/share/jupyter/lab/settings/overrides.json
	@touch $@

# It runs tasks by its own Python, so what is in .venv has to be seen from there.
$(AGENT)/.installed: tests/agent/requirements.txt $(VENV)/.installed-test
	$(PYTHON) -m venv $(AGENT)
	$(AGENT)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r tests/agent/requirements.txt
	$(RUN) -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> "$$($(AGENT)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ours.pth"
	@touch $@

$(RAY)/.installed: $(INPUTS) $(VENV)/.installed-test
	$(PYTHON) -m venv $(RAY)
	$(RUN) -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> "$$($(RAY)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ours.pth"
	$(RAY)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt 'ray[tune]'
	@touch $@

# What it needs otherwise than we do comes first.
$(TRACKIO)/.installed: $(INPUTS) $(VENV)/.installed-test
	$(PYTHON) -m venv $(TRACKIO)
	$(RUN) -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> "$$($(TRACKIO)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ours.pth"
	$(TRACKIO)/bin/python -m pip --disable-pip-version-check install --quiet "$$(grep ^trackio== constraints.txt)"
	@touch $@

$(CLIENTS)/.installed: $(INPUTS) tests/clients/requirements.txt
	@echo "installing into $(CLIENTS), with the libraries that scripts of others import: about 2 GB"
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt \
		-r tests/clients/requirements.txt -e ".[dev]"
	@touch $@
