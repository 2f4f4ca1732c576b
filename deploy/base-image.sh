#!/usr/bin/env bash
# Make the Dockerfile's base, where no container registry can be reached: Debian 12 with its own Python 3.11.
# Needs root, debootstrap and a Docker engine. Usage: deploy/base-image.sh [NAME] [DEBIAN_MIRROR]
set -euo pipefail
name="${1:-python:3.11-slim-bookworm}"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$folder" ${2:+"$2"}
rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
tar --create --directory "$folder" . | docker import - "$name"
