// The selected candidate: what it is, why it was tried, what the judge found; beside another one on request.
let pinned = null;
let wantedTab = "Program";
const TABS = {
  Program: { has: () => true, draw: (c) => codeBlock(textOf(c.text), "avo", `program ${c.id}`) },
  Difference: { has: (c) => c.parents.length > 0, draw: drawDifference },
  Gates: { has: () => true, draw: gateList },
  Workloads: { has: (c) => c.workloads.length > 0, draw: drawTimes },
  Promotion: { has: (c) => Object.keys(valueOf(c.promotion) || {}).length > 0, draw: (c) => renderValue("promotion", valueOf(c.promotion)) },
  Triton: { has: (c) => c.source.length > 0, draw: (c) => codeBlock(textOf(c.source), "python", `emitted Triton of ${c.id}`) },
  Compare: { has: (c) => pinned && pinned !== c, draw: drawCompare },
};

function drawDifference(c) {
  const parent = BY_K.get(c.parents[0]);
  if (!c.diff.length) return el("p", { class: "note" }, parent ? "The text equals its parent's." : "The parent is not on this page: ", parent ? null : el("code", { text: `avo diff ${DATA.run.id}/${c.parents[0]} ${DATA.run.id}/${c.k}` }));
  return el("div", {}, el("p", { class: "lead" }, "against its parent ", parent ? idButton(parent) : `no. ${c.parents[0]}`), diffBlock(c.diff.map((i) => DATA.lines[i]), `difference of ${c.id} to its parent`));
}

function drawTimes(c) {
  const found = workloadsOf(c);
  const tables = ["measured", "predicted"].filter((kind) => found.some((w) => w[kind])).map((kind) => {
    const base = new Map(SEED ? workloadsOf(SEED).map((w) => [w.name, w[kind]]) : []);
    const heads = ["Workload", "Time", UNIT, "× seed", "Of light", "Limited by"];
    return el("div", { class: "table-box" }, el("table", { class: "cards tight" },
      el("caption", {}, "Per workload ", badge(kind)),
      el("thead", {}, el("tr", {}, heads.map((t, i) => el("th", { scope: "col", class: i > 0 && i < 5 ? "num" : "", text: t })))),
      el("tbody", {}, found.map((w) => el("tr", {},
        el("th", { scope: "row", class: "mono", "data-label": "Workload", title: w.name, text: infoOf(w).label }),
        el("td", { class: "num", "data-label": `Time, ${kind}` }, seconds(w[kind]), spread(w, kind)),
        el("td", { class: "num strong", "data-label": `${UNIT}, ${kind}`, text: w[kind] ? number(rate(w.work, w[kind])) : "–" }),
        el("td", { class: "num", "data-label": "Over the seed", text: base.get(w.name) && w[kind] ? times(base.get(w.name) / w[kind]) : "–" }),
        el("td", { class: "num", "data-label": "Of light", text: w[kind] ? percent(w.floor / w[kind]) : "–" }),
        el("td", { "data-label": "Limited by", text: w.limiter || "–" }))))));
  });
  return el("div", {}, DATA.shared && el("p", { class: "lead dim" }, "all with ", el("span", { class: "mono", text: DATA.shared })), tables, drawParts(found));
}

// What the times are made of. Maps of seconds per workload (`parts`, `floor`) are tables over the workloads, the
// largest part of each in bold; anything else that was noted is shown as it is.
function drawParts(found) {
  const noted = found.filter((w) => valueOf(w.detail));
  const details = noted.map((w) => valueOf(w.detail));
  if (!details.length) return null;
  const titles = { parts: "Predicted time by part", floor: "Speed of light by pipe" };
  const tables = Object.keys(titles).filter((k) => details.every((d) => isMap(d[k]) && Object.values(d[k]).every((v) => typeof v === "number"))).map((k) => {
    const table = turned(details.map((d) => d[k]), noted.map((w) => infoOf(w).label), "seconds");
    details.forEach((d, i) => {
      const values = keysOf(details.map((x) => x[k])).map((name) => d[k][name] ?? 0);
      const row = table.querySelectorAll("tbody tr")[values.indexOf(Math.max(...values))];
      if (row) row.children[i + 1].classList.add("strong");
    });
    return el("div", { class: "part" }, el("h5", { text: titles[k] }), table);
  });
  const rest = details.map((d) => Object.fromEntries(Object.entries(d).filter(([k]) => !(k in titles))));
  return el("div", {}, tables, rest.some((d) => Object.keys(d).length) && alsoNoted(rest, noted));
}

// Raw samples and the like: long, so it is drawn when it is opened.
function alsoNoted(rest, noted) {
  const box = el("details", { class: "raw" }, el("summary", { text: "raw timings and what else was noted" }));
  box.addEventListener("toggle", () => {
    if (box.open && box.childElementCount === 1) box.append(...rest.map((d, i) => el("div", { class: "part" }, el("h5", { class: "mono", text: infoOf(noted[i]).label }), renderValue("detail", d))));
  });
  return box;
}

function drawCompare(c) {
  const two = [pinned, c];
  const names = two.map((x) => x.id);
  const facts = [];
  for (const kind of ["measured", "predicted"]) {
    const scores = two.map((x) => x.score[kind]);
    if (scores.every((s) => s)) facts.push([`score, ${kind}`, ...scores.map((s) => `${number(s)} ${UNIT}`), signed(scores[1] / scores[0] - 1)]);
  }
  facts.push(["outcome", ...two.map(statusWords), ""], [`time over the floor, ${KIND}`, ...two.map((x) => times(x.score.headroom)), ""]);
  const machine = two.map((x) => flat(valueOf((x.gates.find(([n]) => n === "compile") || [])[3]) || {}));
  for (const key of new Set(machine.flatMap((m) => Object.keys(m)))) {
    const [a, b] = machine.map((m) => m[key]);
    if (a !== b) facts.push([words(key), ...[a, b].map((v) => (v === undefined ? "–" : plainValue(key.split(" ").pop(), v))), typeof a === "number" && typeof b === "number" && a ? signed(b / a - 1) : ""]);
  }
  const tables = ["measured", "predicted"].map((kind) => {
    const other = new Map(workloadsOf(pinned).map((w) => [w.name, w[kind]]));
    const both = workloadsOf(c).filter((w) => w[kind] && other.get(w.name));
    if (both.length) facts.push(...both.map((w) => [`${infoOf(w).label}, ${kind}`, seconds(other.get(w.name)), seconds(w[kind]), signed(w[kind] / other.get(w.name) - 1)]));
    return null;
  });
  return el("div", {}, tables,
    el("div", { class: "table-box" }, el("table", { class: "evidence" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }), names.map((n) => el("th", { scope: "col", class: "mono num", text: n })), el("th", { scope: "col", class: "num", text: "change" }))),
      el("tbody", {}, facts.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row", text: name }), cells.map((v) => el("td", { class: "num", text: v }))))))),
    el("h4", { text: "Programs" }), sideBySide(textOf(pinned.text), textOf(c.text), names, "avo"),
    two.every((x) => x.source.length) ? [el("h4", { text: "Emitted Triton" }), sideBySide(textOf(pinned.source), textOf(c.source), names, "python")] : null);
}

// What the agent expected of its change, beside what came of it.
function drawHypothesis(told) {
  if (!told) return null;
  const { claim, bottleneck, expected_gain: expected, actual_gain: actual, ...rest } = told;
  const gain = (ratio) => (typeof ratio === "number" ? signed(ratio - 1) : "–");
  return el("div", { class: "hypothesis" },
    el("p", {}, el("span", { class: "dim", text: "Hypothesis: " }), claim || "", bottleneck && el("span", { class: "dim", text: ` (${bottleneck})` })),
    expected !== undefined || actual !== undefined ? el("p", { class: "num" }, el("span", { class: "dim", text: "expected " }), gain(expected), el("span", { class: "dim", text: ", came " }), gain(actual)) : null,
    Object.keys(rest).length ? renderValue("detail", rest) : null);
}

function flat(value, path = "", out = {}) {
  for (const [k, v] of Object.entries(value)) {
    const name = path ? `${path} ${k}` : k;
    if (isMap(v)) flat(v, name, out);
    else if (Array.isArray(v) && v.every(isMap)) v.forEach((one, i) => flat(one, v.length > 1 ? `${name} ${i + 1}` : name, out));
    else if (isPlain(v)) out[name] = v;
  }
  return out;
}

function drawPanel(c, options = {}) {
  const panel = at("panel");
  const outcome = outcomeOf(c);
  const parents = c.parents.map((d) => (BY_K.get(d) ? idButton(BY_K.get(d)) : numberButton(d)));
  const scores = ["measured", "predicted"].filter((kind) => c.status === "ok" && c.score[kind]).map((kind) =>
    el("div", { class: "score-line" }, el("span", { class: "big num", text: number(c.score[kind]) }), el("span", { class: "unit", text: UNIT }), badge(kind),
      el("span", { class: "note num", text: [SEED && SEED.score[kind] && c !== SEED ? `${times(c.score[kind] / SEED.score[kind])} the seed` : "", DATA.speed_of_light ? `${percent(c.score[kind] / DATA.speed_of_light)} of light` : ""].filter(Boolean).join(", ") })));
  const pin = el("button", { class: "button small", type: "button", "aria-pressed": String(pinned === c), text: pinned === c ? "Pinned" : "Pin to compare", on: { click: () => { pinned = pinned === c ? null : c; drawPanel(c); at("panel").querySelector(".pin").focus(); } } });
  pin.classList.add("pin");
  const head = el("div", { class: "panel-head" },
    el("div", { class: "panel-title" }, mark(outcome, 18), el("h3", { class: "mono", text: c.id }), el("span", { class: `status o-${outcome}`, text: failed(c) ? `${statusWords(c)}, at ${c.failed_gate}` : statusWords(c) }), el("span", { class: "spacer" }), pin),
    scores,
    c.failed_gate && c.message ? el("pre", { class: "wrap-text message", text: c.message }) : null,
    el("dl", { class: "pairs" }, [
      ["proposal", number(c.k)], ["agent", c.agent], ["model", c.model || null], ["parent", parents.length ? parents : null], ["digest", el("span", { class: "mono", text: c.digest })], ["repeats", c.repeats === null ? null : BY_K.has(c.repeats) ? [idButton(BY_K.get(c.repeats)), ` of proposal ${c.repeats}`] : numberButton(c.repeats)],
      ...Object.entries(valueOf(c.cost) || {}).map(([k, v]) => [words(k), plainValue(k, v)]),
    ].filter(([, v]) => v).map(([k, v]) => el("div", {}, el("dt", { text: k }), el("dd", {}, v)))),
    c.change ? el("p", { class: "mono edit-line", text: c.change }) : null,
    c.rationale ? el("blockquote", { text: c.rationale }) : null,
    drawHypothesis(valueOf(c.hypothesis)),
    pinned && el("p", { class: "note" }, pinned === c ? "Pinned: now select another candidate, and Compare sets the two side by side." : ["pinned: ", idButton(pinned)]));

  const body = el("div", { class: "tab-body", role: "tabpanel", id: "tab-body" });
  const open = Object.entries(TABS).filter(([, tab]) => tab.has(c)).map(([name]) => name);
  let name = failed(c) ? "Gates" : open.includes(wantedTab) ? wantedTab : "Program";
  const bar = el("div", { class: "tabs", role: "tablist", "aria-label": "About this candidate" });
  const show = (which, take) => {
    name = which;
    for (const button of bar.children) {
      const on = button.textContent === which;
      button.setAttribute("aria-selected", String(on));
      button.tabIndex = on ? 0 : -1;
      if (on && take) button.focus();
    }
    body.setAttribute("aria-label", which);
    body.replaceChildren(TABS[which].draw(c));
  };
  for (const which of open) {
    bar.append(el("button", { role: "tab", type: "button", "aria-controls": "tab-body", text: which, on: { click: () => { wantedTab = which; show(which); } } }));
  }
  bar.addEventListener("keydown", (event) => {
    const i = open.indexOf(name);
    const next = { ArrowRight: open[(i + 1) % open.length], ArrowLeft: open[(i + open.length - 1) % open.length], Home: open[0], End: open[open.length - 1] }[event.key];
    if (!next) return;
    event.preventDefault();
    wantedTab = next;
    show(next, true);
  });
  panel.setAttribute("aria-label", `Candidate ${c.id}`);
  panel.replaceChildren(head, bar, body);
  panel.scrollTop = 0;
  show(name);
  if (options.jump && panel.getBoundingClientRect().left < 80 && innerWidth < 960) panel.scrollIntoView({ block: "start" });
  else if (options.reveal) at("lineage").scrollIntoView({ block: "start" });
}
