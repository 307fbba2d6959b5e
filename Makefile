# dibs: `make run` starts it, `make test` proves it, `make help` lists the rest.
# Meson and ninja do the work; scripts/setup installs what is missing first.

BUILD  ?= build
PREFIX ?= /usr/local
ROUNDS ?= 100
SUITE  ?=
WEB    ?= true
DEMO   ?= on

.DEFAULT_GOAL := help
.PHONY: help run build test bench lab soak fuzz format lint install package package-test clients release clean \
	setup-build setup-package

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

run: build ## build dibs and start it with a demo drop: http://127.0.0.1:8080/ (DEMO=off: without)
	@test -t 2 || echo "open http://127.0.0.1:8080/ to watch; or, in another terminal:" \
	    "curl -s localhost:8080/v1/policies" \
	    "-H 'Content-Type: application/json' -d '{\"id\": 1, \"name\": \"First\", \"discount\":" \
	    "{\"type\": \"percent\", \"value\": 10}, \"total\": 100}'  (README.md goes on from there)"
	@exec $(BUILD)/dibs serve --demo=$(DEMO) $(ARGS)

build: setup-build ## build the program: build/dibs (WEB=false: without its pages, no npm needed)
	@test -f $(BUILD)/build.ninja || { \
	    echo "configuring $(BUILD)"; \
	    output=$$(meson setup $(BUILD) --prefix=$(PREFIX) -Dweb=$(WEB)) || { echo "$$output"; exit 1; }; }
	@grep -q '"name": "web", "value": $(WEB)' $(BUILD)/meson-info/intro-buildoptions.json || \
	    meson setup --reconfigure $(BUILD) -Dweb=$(WEB) >/dev/null
	@ninja -C $(BUILD)

test: ## build and run every suite (SUITE="unit system" runs some)
	@scripts/setup test
	@scripts/test $(SUITE)

bench: build ## measure dibs against a floor server, in one run
	@scripts/setup bench
	@bench/run

lab: build ## compare the known ways of handing out coupons, in ten minutes (ARGS=--quick: in one)
	@scripts/setup lab
	@ninja -C $(BUILD) lab/dibs-lab lab/liblab_slow_disk.so >/dev/null
	@$(BUILD)/lab/dibs-lab $(or $(ARGS),--report $(BUILD)/lab.html)

soak: ## run the crash tests for long (ROUNDS=100)
	@scripts/setup test
	@scripts/test --rounds $(ROUNDS) fault postgres-fault mysql-fault redis kafka nemesis

fuzz: ## run each fuzz target for long (SECONDS_EACH=600)
	@scripts/setup test
	@scripts/test --fuzz-seconds $(or $(SECONDS_EACH),600) fuzz

format: ## format all C files
	@scripts/setup lint
	@scripts/format

lint: ## check format, includes and what clang-tidy sees
	@scripts/setup lint
	@scripts/lint

install: build ## install to PREFIX (/usr/local), below DESTDIR if it is set
	@grep -q '"name": "prefix", "value": "$(abspath $(PREFIX))"' $(BUILD)/meson-info/intro-buildoptions.json || \
	    meson setup --reconfigure $(BUILD) --prefix=$(abspath $(PREFIX)) >/dev/null
	@$(if $(DESTDIR),DESTDIR=$(abspath $(DESTDIR)) )meson install -C $(BUILD) --no-rebuild

package: setup-package ## make the Debian packages of this release of Debian: build-package/*.deb
	@scripts/package

package-test: ## prove the packages of HEAD in bare roots (root, network, half an hour)
	@scripts/setup package-test
	@cd tests/package && /usr/bin/python3 -m pytest -q -p no:cacheprovider $(ARGS)

clients: build ## use clients that generators make of /openapi.json, and run examples/ (network)
	@scripts/setup clients
	@cd tests/clients && DIBS_BINARY=$(abspath $(BUILD))/dibs DIBS_BUILD_DIR=$(abspath $(BUILD)) \
	    /usr/bin/python3 -m pytest -q -p no:cacheprovider $(ARGS)

release: build setup-package ## put a release of HEAD into build-release: source, packages, SBOM, checksums
	@scripts/release build-release $$(scripts/package build-release/packages)

clean: ## remove all build folders
	rm -rf build build-* web/dist web/node_modules

setup-build:
	@WEB=$(WEB) scripts/setup build

setup-package:
	@scripts/setup package
