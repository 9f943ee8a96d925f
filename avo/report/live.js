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
