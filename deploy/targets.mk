# Chores of what is deployed; included by the Makefile.

.PHONY: generate image image-lock image-test stack

IMAGE ?= vllm-watchdog:1.0.0

generate: .venv/.runs ## write the files under deploy/ that repeat another one
	$(BIN)/python deploy/generate.py

image: ## build the image with docker, as IMAGE=vllm-watchdog:1.0.0
	docker build --tag $(IMAGE) \
		--build-arg REVISION=$$(git rev-parse HEAD) --build-arg CREATED=$$(date -u +%Y-%m-%dT%H:%M:%SZ) .

image-lock: .venv/.runs ## pin the image's packages, with hashes, at the versions of constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-emit-find-links --extra kubernetes --constraint constraints.txt \
		--output-file deploy/image/requirements.txt pyproject.toml

image-test: .venv/.develops ## build the image without a Docker engine, run it on a recording (root, Debian, 6 minutes)
	@deploy/image/tools
	$(BIN)/python -m pytest -m image --timeout 1200 -s tests/deploy/test_image.py

stack: .venv/.develops system-tools ## Prometheus, Alertmanager, the watchdog and a replayed vLLM, without containers
	@exec $(BIN)/python deploy/stack.py
