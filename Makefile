# One target per job. `make run` and `make test` need Python 3.11 or newer and make, nothing else.

VENV   := .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
PIP    := $(PY) -m pip install --disable-pip-version-check -q -c constraints.txt
PINS   := pyproject.toml kvcq_client/pyproject.toml constraints.txt
OURS   := -e kvcq_client -e
STAMPS := $(VENV)/.stamps

# The first of these that is 3.11 or newer; `make PYTHON=/path/to/python3` decides otherwise.
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	command -v $(p) >/dev/null 2>&1 \
	&& $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))

# What `make check` runs; `make check CHECK_TESTS=test` leaves out Spark, and its gigabyte.
CHECK_STATIC ?= lint types proto-drift
CHECK_TESTS  ?= test test-slow test-spark test-packages

# Tests wait for processes and disks: three keep two cores busy. Each takes neighbours, which share
# what is made once for their file; by groups, a worker that crashes would stop the whole run.
TEST_WORKERS ?= 3
PYTEST       := $(PY) -m pytest -n $(TEST_WORKERS) --dist worksteal
NOT_HERE     := not slow and not spark and not soak and not cluster and not packages and not browser \
	and not clients
FAST_TESTS   := not crash and $(NOT_HERE)
REPORTS      ?= reports
PB           := kvcq_client/pb
ROCKETMQ_PB  := server/rocketmq/pb
PROTOC       := $(PY) -m grpc_tools.protoc -I $(PB)=proto -I $(ROCKETMQ_PB)=proto/rocketmq/v2
PROTOS       := $(patsubst proto/%,$(PB)/%,$(wildcard proto/v1/*.proto)) \
	$(patsubst proto/rocketmq/v2/%,$(ROCKETMQ_PB)/%,$(wildcard proto/rocketmq/v2/*.proto))

.DEFAULT_GOAL := help
.PHONY: help run setup setup-spark fmt lint types test test-fast test-slow test-crash test-spark \
	test-spark-cluster test-packages test-console clients dist proto \
	proto-drift bench bench-peers bench-scenarios fuzz campaign check soak soak-kills clean

help:  ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

PORT ?= 8081
run: $(STAMPS)/run  ## Set up, then serve on 127.0.0.1:8081 (PORT=…) with the store in ./data
	@$(BIN)/kvcq serve --host 127.0.0.1 --port $(PORT) --data ./data

setup: $(STAMPS)/dev  ## Make .venv with everything that developing needs
setup-spark: $(STAMPS)/spark  ## The same, with Spark and a Java for it

fmt: $(STAMPS)/dev  ## Format and sort the code
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format -q .

lint: $(STAMPS)/dev  ## Lint, and check the format
	$(BIN)/ruff check -q . || (echo "repeat with: make lint; some of it is mended by: make fmt"; exit 1)
	$(BIN)/ruff format -q --check . || (echo "mend with: make fmt"; exit 1)

types: $(STAMPS)/dev  ## Check the types, strictly
	$(BIN)/mypy

test: $(STAMPS)/dev  ## All tests but the slow ones and those of Spark
	$(PYTEST) -m "$(NOT_HERE)"

test-slow: $(STAMPS)/dev  ## Those that take long: fuzz, load scenarios, more steps, other servers
	$(PYTEST) -m "slow and not spark"

test-fast: $(STAMPS)/dev  ## The tests that kill no processes
	$(PYTEST) -m "$(FAST_TESTS)"

test-crash: $(STAMPS)/dev  ## The tests that kill processes and tear pages
	$(PYTEST) -m crash

test-spark: $(STAMPS)/spark  ## The tests of the Spark pipeline
	$(PY) -m pytest -m spark

test-spark-cluster: $(STAMPS)/spark  ## The pipeline on a standalone cluster, executors killed
	$(PY) -m pytest -m cluster

test-packages: $(STAMPS)/dev  ## Build both distributions, install them beside others, use them
	$(PY) -m pytest -m packages

PEER ?=
clients: $(STAMPS)/dev  ## RocketMQ's own clients against this server, or PEER=rocketmq; Node, Go, a JDK, Maven
	PEER=$(PEER) $(PY) -m pytest -v -m "packages or clients" -n 0 -o faulthandler_timeout=1900 \
		--junitxml=$(REPORTS)/clients$(PEER:%=-%).xml tests/clients$(if $(PEER),/test_original.py)

test-console: $(STAMPS)/browser  ## The console in a real chromium; makes the screenshots of docs/
	@command -v chromium chromium-browser >/dev/null \
	|| { echo "No chromium was found. On Debian: apt-get install chromium fonts-wqy-microhei"; exit 1; }
	KVCQ_SCREENSHOTS=$(abspath $(REPORTS))/console $(PY) -m pytest -m browser -n 0
	for shot in docs/console/*.png; do cp "$(REPORTS)/console/$${shot##*/}" "$$shot" || exit 1; done

dist: $(STAMPS)/dev  ## Build wheels and source distributions for an index into dist/
	rm -rf dist
	$(PY) -m hatchling build -t sdist
	cd kvcq_client && $(abspath $(PY)) -m hatchling build -t sdist -d ../dist
	$(PY) -m pip wheel --disable-pip-version-check -q --no-deps -w dist dist/*.tar.gz

proto: $(STAMPS)/dev  ## Generate the code of proto/ again
	$(PROTOC) --python_out=. --pyi_out=. --grpc_python_out=. $(PROTOS)

proto-drift: $(STAMPS)/dev  ## Check that the generated code is that of the .proto files
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT \
	&& $(PROTOC) --python_out="$$out" --pyi_out="$$out" --grpc_python_out="$$out" $(PROTOS) \
	&& for made in "$$out"/$(PB)/v1/*_pb2* "$$out"/$(ROCKETMQ_PB)/*_pb2*; do \
		diff -u ".$${made#"$$out"}" "$$made" || { echo "mend with: make proto"; exit 1; }; \
	done

BENCH ?=
bench: $(STAMPS)/spark  ## Measure, each figure with its raw probe; installs Spark; three quarters of an hour
	$(PY) -m tests.benchmarks $(BENCH)

bench-scenarios: $(STAMPS)/dev  ## Run all load scenarios but the soak; about an hour, 25 GB of disk
	$(BIN)/kvcq bench run --reports $(REPORTS)

PEERS ?=
bench-peers: $(STAMPS)/peers  ## The same with other systems beside ours, in turns; an hour
	@$(PY) -m tests.benchmarks --peers --out docs/reports/benchmarks.json.gz $(PEERS); ended=$$?; \
	$(PY) -m docs.performance && exit $$ended

CAMPAIGN ?= --kills 1000 --power-losses 500 --seed 1
campaign: $(STAMPS)/dev  ## Kill and cut the power a thousand times; about an hour, root for the power
	$(PY) -m tests.campaign $(CAMPAIGN)

FUZZ ?= --calls 1000000 --seed 1
fuzz: $(STAMPS)/dev  ## Call every method a million times in all with requests made at random
	$(PY) -m tests.fuzz $(FUZZ)

check: $(CHECK_STATIC) $(CHECK_TESTS)  ## All that must pass

LOAD ?= test
soak-kills: $(STAMPS)/dev  ## 500 kills and 500 losses of power under each load, or LOAD=waiting; hours
	SOAK_SEEDS=500 $(PYTEST) -m "soak or not soak" --timeout 0 -o faulthandler_timeout=0 \
		tests/crash/test_random_points.py -k $(LOAD)

soak: $(STAMPS)/dev  ## The long tests
	SOAK_SEEDS=500 $(PY) -m pytest -m soak --timeout 0 -o faulthandler_timeout=0

clean:  ## Remove what the targets made, not the data
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up. A stamp is renewed when the pins change, so a second `make run` starts at once.
$(STAMPS)/venv:
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python 3.11 or newer was found. Install one, or: make PYTHON=/path/to/python3"; \
		exit 1; \
	fi
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments: its venv or ensurepip part is missing."; \
		echo "On Debian and Ubuntu: apt-get install python3-venv"; \
		exit 1; \
	}
	@echo "Making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

$(STAMPS)/run: $(STAMPS)/venv $(PINS)
	@echo "Installing what the service needs into $(VENV)"
	@$(PIP) $(OURS) .
	@touch $@

$(STAMPS)/dev: $(STAMPS)/venv $(PINS)
	@echo "Installing what developing needs into $(VENV)"
	@$(PIP) $(OURS) '.[dev,report,tracing]'
	@touch $@ $(STAMPS)/run

$(STAMPS)/spark: $(STAMPS)/dev $(PINS)
	@echo "Installing Spark into $(VENV)"
	@$(PIP) $(OURS) '.[dev,report,spark,tracing]'
	@touch $@

$(STAMPS)/peers: $(STAMPS)/dev $(PINS)
	@echo "Installing the peers' clients into $(VENV)"
	@$(PIP) $(OURS) '.[dev,report,peers,tracing]'
	@touch $@

$(STAMPS)/browser: $(STAMPS)/dev $(PINS)
	@echo "Installing what drives a browser into $(VENV)"
	@$(PIP) $(OURS) '.[dev,report,browser]'
	@touch $@

-include tests/interop/interop.mk
