# One verb each; `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3.11
VENV := .venv
RUN := $(VENV)/bin
READY := $(VENV)/.ready

# Where PYTHONDONTWRITEBYTECODE is set, each of hundreds of processes compiles all that it imports, libraries too.
COMPILED = env -u PYTHONDONTWRITEBYTECODE

.PHONY: help demo chaos test test-containers test-long lint fmt types bench sim sim-long mutants docs dist image sbom lock up clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.lock requirements.bootstrap.lock pyproject.toml services/headgate_lab/pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "headgate needs Python 3.11: install it, or say where it is: make PYTHON=/path/to/python3.11"; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.bootstrap.lock
	$(RUN)/uv pip sync --quiet --require-hashes requirements.lock requirements.bootstrap.lock
	$(RUN)/uv pip install --quiet --no-deps --editable . --editable services/headgate_lab
	@touch $@

demo: $(READY) ## the main job on real parts, with kills, checked row by row
	$(COMPILED) $(RUN)/headgate demo

up: $(READY) ## the same parts, left running for you to play with
	$(COMPILED) $(RUN)/headgate up

CHAOS = $(COMPILED) $(RUN)/headgate chaos $(if $(filter command line,$(origin SEED)),--seed $(SEED))

chaos: $(READY) ## agents and owners killed, frozen, cut off in turn and at once, on both sinks: make chaos SEED=7 MINUTES=30
	$(CHAOS) --sink postgresql --minutes $(or $(MINUTES),10)
	$(CHAOS) --sink mysql --minutes $(or $(MINUTES),10)
	$(CHAOS) --sink postgresql --points
	$(CHAOS) --sink mysql --points
	$(CHAOS) --frozen-sink --sink postgresql
	$(CHAOS) --frozen-sink --sink mysql
	$(CHAOS) --migrations --minutes $(or $(MINUTES),10)

# One order of tests, so that a red run is about the change; `make test SEED=random` draws another and prints it.
SEED ?= 20261121

# Workers take whole files in turn, those that take long first (tests/fixtures/parallel.py). They wait for brokers and
# databases for a part of the time, so more than one to a core.
WORKERS ?= 5
PYTEST = $(COMPILED) $(RUN)/pytest $(if $(filter random,$(SEED)),,--randomly-seed=$(SEED))

test: $(READY) ## unit, scenarios, integration on a real broker and PostgreSQL, one end-to-end run
	$(PYTEST) -m "not long and not containers" --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

# An engine that runs is taken as it is (DOCKER_HOST). What of its images cannot be pulled is made here, as root.
CONTAINERS = HEADGATE_TEST_PARTS=containers TESTCONTAINERS_RYUK_DISABLED=true $(COMPILED) $(RUN)/pytest -p no:randomly

test-containers: $(READY) ## docker-compose.yml with kills, the chart, and the suites of log, sinks and views on containers
	infra/docker/prerequisites
	infra/docker/local-images
	infra/helm/local-helm
	$(CONTAINERS) tests/containers -m containers
	$(CONTAINERS) tests/integration/eventlog tests/integration/sinks tests/integration/views

# Beyond `make test`: a campaign over each sink (agents and owners killed, frozen, silenced, the broker killed) and
# thousands of simulated histories. One after the other: a campaign takes a lost lease that no fault explains for a bug.
test-long: $(READY) ## what make test leaves out: campaigns of real faults, thousands of simulated histories
	$(PYTEST) -m long

lint: $(READY) types ## ruff, formatter, import contracts, mypy, words and lines of the pages
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/lint-imports
	$(RUN)/python infra/lint/words.py
	$(RUN)/python infra/lint/columns.py

types: $(READY) ## mypy, strict, of the product, the lab and what tests share
	$(RUN)/mypy

fmt: $(READY) ## format, and fix what can be fixed
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

bench: $(READY) ## figures, not tests: pipeline, peers, latency, move, tables, rest, control, generation, kafka-sink
	$(RUN)/headgate bench pipeline
	$(RUN)/headgate bench peers
	$(RUN)/headgate bench latency --debezium
	$(RUN)/headgate bench move
	$(RUN)/headgate bench tables
	$(RUN)/headgate bench rest
	$(RUN)/headgate bench control
	$(RUN)/headgate bench generation
	$(RUN)/headgate bench kafka-sink

sim: $(READY) ## the control plane in a simulated world of faults, a minute of it; then change logs and migrations
	$(RUN)/headgate sim --seeds 400
	$(RUN)/headgate sim --world switches --seeds 50
	$(RUN)/headgate sim --world migrations --seeds 100

sim-long: $(READY) ## the same for as long as asked: make sim-long SEEDS=20000 START=1000
	$(RUN)/headgate sim --seeds $(or $(SEEDS),5000) --start $(or $(START),1000) --ticks 800
	$(RUN)/headgate sim --world switches --seeds $(or $(SEEDS),5000) --start $(or $(START),1000)
	$(RUN)/headgate sim --world migrations --seeds $(or $(SEEDS),5000) --start $(or $(START),1000)
	$(RUN)/python -m headgate_lab.simulation.exhaustive

mutants: $(READY) ## flip each guard of the machines; something must notice every flip
	PYTHONPATH=tests $(RUN)/python -m mutation $(MUTANTS)

docs: $(READY) ## make the pages anew that are made from the code, and build site/
	$(RUN)/python -m headgate_lab.pages
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --quiet
	@echo "open site/index.html"

PYTE = pyte==0.8.2

record: $(READY) ## record a command for a picture: make record NAME=why COMMAND='headgate why shop'
	PATH="$(CURDIR)/$(RUN):$$PATH" $(RUN)/uv run --quiet --no-project --with $(PYTE) infra/docs/record.py "$(NAME)" "$(COMMAND)"

dist: $(READY) ## build the wheels of headgate and headgate-lab into dist/
	$(RUN)/uv build --quiet --all-packages --out-dir dist

image: $(READY) ## build the image headgate:VERSION; as root, with Docker; PACKAGES=lakes: with sinks of lakes
	docker build --tag headgate:$$($(RUN)/headgate version -o json | $(RUN)/python -c 'import json, sys; print(json.load(sys.stdin)["version"])') \
		--build-arg PACKAGES=$(or $(PACKAGES),image) --file infra/docker/Dockerfile .

SBOM = cyclonedx-bom==7.5.0

sbom: $(READY) ## sbom.json: the Python packages of the product's image, as CycloneDX
	$(RUN)/uv tool run --quiet --from $(SBOM) cyclonedx-py requirements requirements.image.lock --of JSON -o sbom.json

lock: ## resolve anew and write requirements.lock, and of it the images' (hashes, no registry's host)
	$(RUN)/uv lock --quiet
	$(RUN)/uv export --quiet --frozen --all-extras --all-groups --no-emit-workspace --no-annotate --no-header \
		--format requirements-txt --output-file requirements.lock
	$(RUN)/uv pip compile --quiet pyproject.toml --extra views --constraint requirements.lock --generate-hashes --no-annotate \
		--no-header --python-version 3.11 --output-file requirements.image.lock
	$(RUN)/uv pip compile --quiet pyproject.toml --extra views --extra delta --extra iceberg --constraint requirements.lock \
		--generate-hashes --no-annotate --no-header --python-version 3.11 --output-file requirements.lakes.lock

clean: ## remove the virtual environment and caches of this checkout
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
