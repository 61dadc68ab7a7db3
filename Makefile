# eve · every chore by name; `make help` lists them
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PY := .venv/bin/python
EVE_SERVERS ?= 15,16,17,18
WORKERS ?= 2
PYTEST = EVE_SERVERS=$(EVE_SERVERS) $(PY) -m pytest -n $(WORKERS) --dist loadgroup
BACKLOG ?=
SHAREDIR ?=

.PHONY: help demo test roads acceptance bench race model crash formal fresh lint format build dist \
	install release ready

help: ## this list
	@grep -hE '^[a-z]+:.* ## ' $(MAKEFILE_LIST) | sort | sed -E 's/^([a-z]+):.* ## /\1\t/' | expand -t 14

demo: ## a backlog drained, a worker lost and refused, the audit clean (BACKLOG=path)
	@.ci/venv.sh demo
	@python3 sql/build.py plain >/dev/null
	@BACKLOG='$(BACKLOG)' $(PY) -m eve_queue.demo

test: lint ready ## all that CI runs: lint, then every test on PostgreSQL 15, 16, 17, 18
	@$(PYTEST)

roads: ready ## Sqitch = plain SQL = CREATE EXTENSION, revert, dump and restore
	@$(PYTEST) tests/roads
	@echo 'roads: equal sqitch=plain=extension servers=$(EVE_SERVERS)'

acceptance: ready ## the acceptance lines, counted by group
	@EVE_SERVERS=$(EVE_SERVERS) $(PY) tests/acceptance/report.py

bench: ready ## measured rates and buffer counts, never part of test
	@$(PY) -m pytest tests/bench -n 0 -s

race: ready ## sessions against each other
	@$(PYTEST) tests/race

model: ready ## live state = replay, for histories that Hypothesis makes
	@$(PYTEST) tests/model

crash: ready ## servers killed at every row that a call writes (EVE_SCALE=n: n times)
	@$(PYTEST) tests/crash
	@echo 'crash: whole-or-absent servers=$(EVE_SERVERS)'

formal: ## the lease protocol, model-checked
	@echo 'formal: not there yet' >&2; exit 1

fresh: ## make demo and make test in a bare Debian made by debootstrap (root)
	@.ci/fresh.sh

lint: ## ruff, mypy, sqlfluff, and no drift between plan, objects and generated scripts
	@.ci/venv.sh dev
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet . || { echo 'lint: run make format' >&2; exit 1; }
	@$(PY) -m mypy --no-error-summary
	@$(PY) plpython/emit.py --check
	@$(PY) sql/build.py check
	@$(PY) -m sqlfluff lint --disable-progress-bar --processes $(WORKERS) sql plpython/sql >.venv/sqlfluff 2>&1 \
		|| { cat .venv/sqlfluff >&2; exit 1; }
	@echo 'lint: clean'

format: ## Python as ruff would have it
	@.ci/venv.sh dev
	@$(PY) -m ruff check --quiet --fix .
	@$(PY) -m ruff format --quiet .

build: ## generated SQL, revert and verify scripts; dist: eve.sql, eve--X.sql, the same for eve_plpython
	@python3 plpython/emit.py
	@for part in scripts plain extension upgrade; do python3 sql/build.py $$part; done

dist: build ## build, and the wheel
	@.ci/venv.sh dev
	@$(PY) -m pip wheel --quiet --no-deps --no-build-isolation -w dist .
	@ls dist

install: ## the extensions into a server's share directory (SHAREDIR=dir, else pg_config's)
	@python3 sql/build.py install $(if $(SHAREDIR),--sharedir '$(SHAREDIR)')

release: ## do the Sqitch tags, the git tag, the extensions and the package say one version?
	@python3 .ci/release.py

ready: # what the tests stand on: system packages, servers, .venv
	@EVE_SERVERS=$(EVE_SERVERS) .ci/needs.sh
	@.ci/servers.sh $(EVE_SERVERS)
	@.ci/venv.sh dev
