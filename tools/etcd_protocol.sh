#!/usr/bin/env bash
# Generates kvmodels/engines/etcd/protocol/rpc_pb2.py and its types from rpc.proto, in an environment of its own.
# The version of grpcio-tools decides which releases of protobuf can load the result: 1.74.0 means 6.31.1 and newer.
set -euo pipefail

cd "$(dirname "$0")/.."
environment=$(mktemp -d)
trap 'rm -r "$environment"' EXIT
python3 -m venv "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check grpcio-tools==1.74.0
# From the root of the repository, because protobuf registers the path of the file for the whole process.
"$environment/bin/python" -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. \
    kvmodels/engines/etcd/protocol/rpc.proto
