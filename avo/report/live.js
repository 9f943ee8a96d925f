// Only in a served page: asks the server whether the run has gone on, and shows the page as it is now.
const seen = document.documentElement.getAttribute("data-version");
let paused = false;
try { paused = sessionStorage.getItem("avo-live") === "paused"; } catch { /* a browser may keep nothing */ }
const pauseButton = el("button", { class: "button", type: "button", id: "live" });
function tellLive(state) {
  pauseButton.textContent = paused ? "Live: paused" : state;
  pauseButton.setAttribute("aria-pressed", String(paused));
}
pauseButton.addEventListener("click", () => {
  paused = !paused;
  try { sessionStorage.setItem("avo-live", paused ? "paused" : "on"); } catch { /* as above */ }
  tellLive("Live");
});
at("theme").before(pauseButton);
tellLive("Live");
async function look() {
  if (!paused && !document.hidden) {
    try {
      const answer = await fetch("state", { cache: "no-store" });
      const state = await answer.json();
      // A reload keeps the place on the page and, by the address, the selected candidate.
      if (state.version !== seen) location.reload();
      else tellLive(state.running ? "Live" : "Live: the run has ended");
    } catch {
      tellLive("Live: no answer from avo");
    }
  }
  setTimeout(look, 2000);
}
setTimeout(look, 2000);

// A candidate that this page only counts: the server has it, and the panel shows it.
async function fetchCandidate(k) {
  const answer = await fetch(`candidate/${k}`, { cache: "no-store" });
  const found = await answer.json();
  if (!found) return null;
  const { candidate, lines, values } = found;
  const [line, value] = [DATA.lines.length, DATA.values.length];
  DATA.lines.push(...lines);
  DATA.values.push(...values);
  const moved = (index) => (index === null ? null : index + value);
  for (const key of ["text", "diff", "source"]) candidate[key] = candidate[key].map((i) => i + line);
  for (const key of ["cost", "hypothesis", "promotion"]) candidate[key] = moved(candidate[key]);
  candidate.gates.forEach((gate) => { gate[3] = moved(gate[3]); });
  candidate.workloads.forEach((w) => { w[6] = moved(w[6]); });
  BY_K.set(candidate.k, candidate);
  return candidate;
}
fetchMissing = fetchCandidate;
if (at("omitted")) {
  const field = el("input", { type: "number", min: 0, step: 1, required: true, inputmode: "numeric" });
  const told = el("span", { role: "status" });
  const ask = async (event) => {
    event.preventDefault();
    const k = Number(field.value);
    told.textContent = "";
    const found = BY_K.get(k) || (await fetchCandidate(k));
    if (found) select(found, { reveal: rows.has(k), jump: true });
    else told.textContent = `this run has no proposal ${k}`;
  };
  at("omitted").append(el("form", { class: "asked", on: { submit: ask } },
    el("label", {}, "Proposal ", field), el("button", { class: "button small", type: "submit", text: "Show it" }), told));
  const wanted = /^#p(\d+)$/.exec(location.hash);
  if (wanted && !BY_K.has(Number(wanted[1]))) fetchCandidate(Number(wanted[1])).then((c) => c && select(c, {}));
}
