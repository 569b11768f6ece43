# Two commands: `make lab` to learn, `make test` to test everything. Both build .venv on their first run, `make lab`
# with what a learner needs (requirements.txt), the others with the rest, too (requirements-dev.txt).
# Another Python: make lab PYTHON=python3.12

PYTHON ?= python3
MIN_PYTHON := $(shell sed -n 's/^requires-python = ">=\([0-9.]*\)"/\1/p' pyproject.toml)
BIN := .venv/bin
ROOT_FLAG := $(if $(filter 0,$(shell id -u)),--allow-root)

.PHONY: lab test repeat coverage nightly gpu-check lint exercises notebooks grader work lock clean .venv

lab: .venv work
	@echo "JupyterLab is starting. If no browser opens, open the address with ?token= that it prints below."
	@$(BIN)/python -m jupyterlab $(ROOT_FLAG) --ServerApp.root_dir="$(CURDIR)" --ServerApp.log_level=WARN \
		--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb

# Two at a time, whole files, in their order: the longest one begins early. Then the notebooks, then what needs the
# machine to itself; the last table of where the time went is that of all three.
TIMES := .pytest_cache/times
test: .venv/.complete-dev
	@rm -f $(TIMES)
	$(BIN)/python -m pytest -p tests.times --times $(TIMES) -m "not alone" -n 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/python tests/notebooks/repeat_nbval.py --runs 1 --times $(TIMES)
	$(BIN)/python -m pytest -p tests.times --times $(TIMES) -m alone

# Strict nbval three times under each of two hash seeds: the same result each time.
repeat: .venv/.complete-dev
	$(BIN)/python tests/notebooks/repeat_nbval.py

# Every branch of the core is taken by the core's own tests.
CORE := refimpl/block.py,refimpl/sequence.py,refimpl/config.py,refimpl/prefix_hash.py,refimpl/evictor.py,refimpl/allocator.py,refimpl/block_manager.py,refimpl/scheduler.py
coverage: .venv/.complete-dev
	$(BIN)/python -m coverage run --branch --include=$(CORE) -m pytest -q tests/core \
		--ignore=tests/core/test_state_machine.py
	$(BIN)/python -m coverage report --show-missing --fail-under=100

# Random lives of requests, 200,000 operations and more: minutes.
nightly: .venv/.complete-dev
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -q tests/core/test_state_machine.py

# The Triton kernel on this machine's GPU: a table, and its record in $(OUT). Nothing is built or downloaded for it: the
# Python is that of .venv or else $(PYTHON), the first whose torch finds a GPU. More configurations: make gpu-check TUNE=1
OUT ?= notebooks/gpu_runs
FINDS_GPU := -c "import sys, torch; sys.exit(not torch.cuda.is_available())" 2> /dev/null
gpu-check:
	@for python in $(BIN)/python $(PYTHON); do \
		if $$python $(FINDS_GPU); then \
			exec $$python -m refimpl bench gpu-check --out "$(OUT)" $(if $(TUNE),--tune); fi; done; \
		echo "gpu-check: neither .venv nor $(PYTHON) has a torch that finds a CUDA device; nothing was checked"; exit 2

lint: .venv/.complete-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

exercises: .venv/.complete-dev
	$(BIN)/python -m refimpl release

notebooks: .venv
	$(BIN)/python -m refimpl execute notebooks/*.ipynb solutions/*/*.ipynb

# For instructors: nbgrader and what `python -m refimpl grade` needs. To have nbgrader's menu in JupyterLab as well:
# .venv/bin/jupyter labextension enable --level=sys_prefix @jupyter/nbgrader
grader: .venv/.complete-dev

# A learner's file is never written over: what is in my_work/ already stays.
work:
	@for source in exercises/*/*.ipynb; do \
		target="my_work/$${source#exercises/}"; \
		if [ -e "$$target" ]; then echo "kept    $$target"; \
		else mkdir -p "$$(dirname "$$target")" && cp "$$source" "$$target" && echo "copied  $$target"; fi; \
	done

.venv: .venv/.complete

.venv/.complete: requirements.txt pyproject.toml
	@command -v $(PYTHON) > /dev/null || { echo "This course needs Python $(MIN_PYTHON) or newer, and there is no" \
		"\`$(PYTHON)\` here. Install it, or run: make lab PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; need = tuple(map(int, "$(MIN_PYTHON)".split("."))); sys.exit(sys.version_info < need)' \
		|| { echo "This course needs Python $(MIN_PYTHON) or newer; \`$(PYTHON)\` is $$($(PYTHON) --version 2>&1)." \
		"Install a newer one and run: make lab PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "\`$(PYTHON)\` cannot make virtual environments:" \
		"its venv module is missing. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@# A course on one's own machine asks nobody for news.
	@$(BIN)/jupyter labextension disable --level=sys_prefix @jupyterlab/apputils-extension:announcements > /dev/null 2>&1
	@touch $@

.venv/.complete-dev: .venv/.complete requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@# Who tests is mostly a learner still: an instructor turns the menu on.
	@$(BIN)/jupyter labextension disable --level=sys_prefix @jupyter/nbgrader > /dev/null 2>&1
	@touch $@

# The versions of today, within the ranges of pyproject.toml; torch and triton stay the pair that was tested. The
# learner's packages are known by their names before the rest comes, their versions afterwards: the two files agree.
# Every pin takes the oldest Python 3.11, which soupsieve 3 does not: Debian 12 has 3.11.2.
FOR_OLD := 'soupsieve<3'
lock:
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet torch==2.13.0 triton==3.7.1 $(FOR_OLD) -e '.[serving,lab]'
	.venv-lock/bin/python -m pip freeze --exclude refimpl | sed 's/==.*//' > .venv-lock/own
	.venv-lock/bin/python -m pip install --quiet torch==2.13.0 triton==3.7.1 $(FOR_OLD) -e '.[dev]'
	.venv-lock/bin/python -m pip freeze --exclude refimpl | sed -E \
		-e 's/^torch==([0-9.]+).*/torch==\1/' \
		-e 's/^triton==.*/&; platform_system == "Linux" and platform_machine == "x86_64"/' > .venv-lock/all
	sed -n '/^#/p' requirements.txt > .venv-lock/requirements.txt
	sed -n '/^#/p; /^-r/p' requirements-dev.txt > .venv-lock/requirements-dev.txt
	cd .venv-lock && awk -F== 'NR == FNR {own[$$1]; next} \
		{print >> ($$1 in own ? "requirements.txt" : "requirements-dev.txt")}' own all
	echo '-e .' >> .venv-lock/requirements.txt
	mv .venv-lock/requirements.txt .venv-lock/requirements-dev.txt . && rm -rf .venv-lock

clean:
	rm -rf .venv .venv-lock .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
