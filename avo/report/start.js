// Theme, the address, and the order in which the parts are drawn.
const themes = ["auto", "light", "dark"];
function setTheme(name) {
  if (name === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", name);
  at("theme").textContent = `Theme: ${name}`;
  at("theme").setAttribute("data-theme-name", name);
  try { localStorage.setItem("avo-report-theme", name); } catch { /* a browser may keep nothing for files */ }
}
let stored = "auto";
try { stored = localStorage.getItem("avo-report-theme") || "auto"; } catch { /* as above */ }
setTheme(themes.includes(stored) ? stored : "auto");
at("theme").addEventListener("click", () => setTheme(themes[(themes.indexOf(at("theme").getAttribute("data-theme-name")) + 1) % themes.length]));

drawHead();
drawTiles();
drawWorkloads();
drawCharts();
drawCommits();
drawDecisions();
drawCosts();
drawTried();
drawFindings();
drawFoot();
drawWays();
if (DATA.candidates.length) {
  drawFilters();
  drawTree();
  onSelect(drawPanel);
  onSelect((c, options) => {
    if (options.quiet) return;
    try { history.replaceState(null, "", `#p${c.k}`); } catch { /* no history for this address */ }
  });
  const asked = () => /^#p\d+$/.test(location.hash) ? BY_K.get(Number(location.hash.slice(2))) : null;
  addEventListener("hashchange", () => select(asked(), { reveal: true, jump: true }));
  if (asked()) select(asked(), { reveal: true, start: true });
  else select(bestOf(KIND) || DATA.candidates[0], { quiet: true });
} else {
  at("lineage").append(el("p", { class: "note", text: "This run has no candidates yet." }));
}
document.documentElement.setAttribute("data-ready", "");
