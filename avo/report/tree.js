// The lineage as a tree. The line of descent to the last commit runs straight down; what branched off a program is
// indented under it, so depth on the page is depth of side branches and not length of the run.
const rows = new Map(); // k -> {node, candidate, level, side: [rows], owner}
const filter = { off: new Set(), agent: "", model: "", words: "" };
let treeBox, treeCount, focused;

function arrange() {
  const kids = new Map();
  const roots = [];
  for (const c of DATA.candidates) {
    if (BY_K.has(c.over)) kids.set(c.over, [...(kids.get(c.over) || []), c]);
    else roots.push(c);
  }
  // latest commit below each node; a child is always proposed after its parent, so one backward pass is enough
  const latest = new Map();
  for (const c of [...DATA.candidates].reverse()) {
    let k = c.committed ? c.k : -1;
    for (const kid of kids.get(c.k) || []) k = Math.max(k, latest.get(kid.k));
    latest.set(c.k, k);
  }
  const order = [];
  const walk = (start, level, owner) => {
    const line = [];
    for (let c = start; c; ) {
      const below = kids.get(c.k) || [];
      const next = below.reduce((a, b) => (latest.get(b.k) > (a ? latest.get(a.k) : -1) ? b : a), null);
      const row = { candidate: c, level, side: [], owner };
      rows.set(c.k, row);
      order.push(row);
      line.push(row);
      if (owner) owner.side.push(row);
      for (const kid of below) if (kid !== next) walk(kid, level + 1, row);
      c = next;
    }
    return line;
  };
  for (const root of roots) walk(root, 1, null);
  return order;
}

function drawTree() {
  const order = arrange();
  const crowded = order.length > 150;
  treeBox = el("div", { class: `tree ${crowded ? "crowded" : ""}`, role: "tree", "aria-label": "Lineage of every candidate", on: { keydown: treeKeys } });
  for (const row of order) {
    row.open = !crowded;
    row.node = treeRow(row);
    treeBox.append(row.node);
  }
  treeCount = el("span", { class: "note", role: "status" });
  const tools = el("div", { class: "tree-tools" }, treeCount,
    el("span", { class: "spacer" }),
    el("button", { class: "button small", type: "button", text: "Expand all", on: { click: () => openAll(true) } }),
    el("button", { class: "button small", type: "button", text: "Collapse all", on: { click: () => openAll(false) } }));
  const head = el("div", { class: "tree-head", "aria-hidden": "true" }, el("span", { class: "k", text: "no." }), el("span", { class: "lead" }, el("span", { class: "twist none" }), "candidate and change"), el("span", { class: "num" }, KINDS.length ? `${UNIT}, ${KIND}` : "outcome"));
  at("tree-box").append(tools, head, treeBox);
  const omitted = Object.entries(DATA.omitted);
  if (omitted.length) {
    at("tree-box").append(el("div", { class: "note", id: "omitted" }, `${number(omitted.reduce((s, [, n]) => s + n, 0))} more are not on this page (`, omitted.map(([name, n]) => `${number(n)} ${name}`).join(", "), "). See one with ", el("code", { text: `avo show ${DATA.run.id}/NO` }), "."));
  }
  focused = order[0];
  refresh();
  onSelect((c, options) => {
    const row = rows.get(c.k);
    for (const r of rows.values()) r.node.setAttribute("aria-selected", String(r === row));
    if (!row) return; // fetched from the server: it is in the panel alone
    if (options.reveal) {
      filter.off.delete(outcomeOf(c));
      for (let r = row.owner; r; r = r.owner) r.open = true;
      drawFilters();
      refresh();
      row.node.scrollIntoView({ block: "nearest", behavior: options.start ? "instant" : "auto" });
    }
    move(row, false);
    if (options.quiet) treeBox.scrollTop = row.node.offsetTop - treeBox.clientHeight / 2;
  });
}

function treeRow(row) {
  const c = row.candidate;
  const outcome = outcomeOf(c);
  const score = c.score[KIND];
  const parent = BY_K.get(c.parents[0]);
  const twist = row.side.length ? el("span", { class: "twist", "aria-hidden": "true", on: { click: (e) => { e.stopPropagation(); toggle(row); } } }) : el("span", { class: "twist none" });
  const words = [`${c.id}, proposal ${c.k}`, verdict(c), parent ? `child of ${parent.id}` : "a seed", c.change].filter(Boolean).join("; ");
  return el("div", {
    class: `row is-${outcome}`, role: "treeitem", tabindex: -1, "aria-level": row.level, "aria-selected": "false", "aria-label": words,
    "aria-expanded": row.side.length ? String(row.open) : null, "data-k": c.k, "data-outcome": outcome,
    vars: { "--level": Math.min(row.level - 1, 7) },
    on: { click: () => { move(row, true); select(c, { jump: true }); } },
  },
    el("span", { class: "k num", text: String(c.k) }),
    el("span", { class: "lead" }, twist, mark(outcome), el("span", { class: "mono cid", text: c.id }), el("span", { class: "edit mono", text: (c.skipped ? `(${plural(c.skipped, "ancestor")} not on this page) ` : "") + (c.change || (c.parents.length ? "" : "seed program")) })),
    el("span", { class: "num score" }, (outcome !== "committed" && outcome !== "passed") || !score ? el("span", { class: `word o-${outcome}`, text: statusWords(c) }) : number(score)));
}

const matches = (c) => !filter.off.has(outcomeOf(c)) && (!filter.agent || c.agent === filter.agent) && (!filter.model || c.model === filter.model) &&
  (!filter.words || [c.digest, c.change, c.message, c.rationale, c.status].some((t) => t && String(t).toLowerCase().includes(filter.words)));

function refresh() {
  const filtering = filter.off.size > 0 || filter.agent || filter.model || filter.words;
  let shown = 0;
  const context = new Set();
  for (const row of rows.values()) {
    row.match = matches(row.candidate);
    if (row.match) {
      shown += 1;
      if (filtering) for (let r = row.owner; r && !context.has(r); r = r.owner) context.add(r);
    }
  }
  for (const row of rows.values()) {
    let open = true;
    if (!filtering) for (let r = row.owner; r && open; r = r.owner) open = r.open;
    row.seen = open && (row.match || context.has(row));
    row.node.hidden = !row.seen;
    row.node.classList.toggle("context", !row.match);
    if (row.side.length) row.node.setAttribute("aria-expanded", String(Boolean(filtering || row.open)));
  }
  treeCount.textContent = filtering ? `${number(shown)} of ${plural(rows.size, "candidate")}` : plural(rows.size, "candidate");
  if (!focused.seen) focused = [...rows.values()].find((r) => r.seen) || focused;
  move(focused, false);
}

function move(row, take) {
  focused.node.tabIndex = -1;
  focused = row;
  row.node.tabIndex = 0;
  if (take) row.node.focus({ preventScroll: false });
}

function toggle(row, open = !row.open) {
  row.open = open;
  refresh();
}

function openAll(open) {
  for (const row of rows.values()) row.open = open;
  refresh();
}

function treeKeys(event) {
  const seen = [...rows.values()].filter((r) => r.seen);
  const i = seen.indexOf(focused);
  let next = null;
  switch (event.key) {
    case "ArrowDown": next = seen[i + 1]; break;
    case "ArrowUp": next = seen[i - 1]; break;
    case "Home": next = seen[0]; break;
    case "End": next = seen[seen.length - 1]; break;
    case "ArrowRight":
      if (focused.side.length && !focused.open) toggle(focused, true);
      else next = focused.side.find((r) => r.seen);
      break;
    case "ArrowLeft":
      if (focused.side.length && focused.open) toggle(focused, false);
      else next = focused.owner;
      break;
    case "Enter": case " ": select(focused.candidate, { jump: true }); break;
    default: return;
  }
  event.preventDefault();
  if (next) {
    move(next, true);
    select(next.candidate);
  }
}

// The legend is the filter: each outcome's mark, word and count, pressed while it shows.
function drawFilters() {
  const present = OUTCOMES.filter((o) => DATA.candidates.some((c) => outcomeOf(c) === o.id));
  const count = (id) => DATA.candidates.filter((c) => outcomeOf(c) === id).length;
  const chips = present.map((o) => el("button", {
    class: "chip", type: "button", "aria-pressed": String(!filter.off.has(o.id)), title: GATES.includes(o.id) ? `failed at gate ${o.label}` : o.id === "harness" ? "the harness failed: no verdict" : o.label,
    on: { click: () => { if (!filter.off.delete(o.id)) filter.off.add(o.id); drawFilters(); refresh(); } },
  }, mark(o.id), el("span", { text: o.label }), el("span", { class: "num dim", text: number(count(o.id)) })));
  if (at("filters").childElementCount) {
    at("filters").querySelector(".chips").replaceChildren(...chips);
    return;
  }
  const chooser = (label, key) => {
    const values = [...new Set(DATA.candidates.map((c) => c[key]).filter(Boolean))].sort();
    const some = values.length > 1 || (values.length === 1 && DATA.candidates.some((c) => !c[key] && c.parents.length));
    return some && el("label", {}, `${label} `, el("select", { on: { change: (e) => { filter[key] = e.target.value; refresh(); } } },
      el("option", { value: "", text: "all" }), values.map((v) => el("option", { value: v, text: v }))));
  };
  const search = el("label", {}, "Find ", el("input", { type: "search", placeholder: "id, change, message", on: { input: (e) => { filter.words = e.target.value.trim().toLowerCase(); refresh(); } } }));
  at("filters").append(
    el("div", { class: "chips", role: "group", "aria-label": "Show candidates by outcome: legend and filter" }, chips),
    el("div", { class: "finders" }, chooser("Agent", "agent") || "", chooser("Model", "model") || "", search));
}
