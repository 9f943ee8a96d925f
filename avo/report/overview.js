// The first answers: how far from the seed and from the speed of light, per workload, and what won.
function drawHead() {
  const { run, target, chip } = DATA;
  at("title").textContent = visible(`${target.name} on ${chip.name}`);
  at("subtitle").replaceChildren(
    ...[
      `run ${run.id}`, run.state === "ended" && run.ended && run.ended !== "ended" ? `ended (${run.ended})` : run.state, run.agent && `agent ${run.agent}`, run.seed !== null && `seed ${run.seed}`,
      run.created && run.created.replace("T", " ").replace(/(\.\d+)?(Z|\+00:00)?$/, " UTC"),
    ].filter(Boolean).map((text) => el("span", { text })),
  );
}

function tile(label, value, unit, note, options = {}) {
  return el("div", { class: `tile ${options.main ? "main" : ""}` },
    el("div", { class: "label" }, label, options.kind && badge(options.kind)),
    el("div", { class: "value" }, value, unit && el("span", { class: "unit", text: unit })),
    el("div", { class: "note" }, note));
}

function drawTiles() {
  const box = at("tiles");
  for (const kind of KINDS) {
    const points = DATA.running_best[kind];
    const last = points[points.length - 1];
    const best = BY_K.get(last.k);
    const light = DATA.speed_of_light;
    const base = SEED && SEED.score[kind];
    const tiles = [
      tile("Best score", number(last.score), UNIT, [best ? idButton(best) : "", ` at proposal ${last.k} of ${DATA.total - 1}`], { kind, main: true }),
      tile("Over the seed", base ? times(last.score / base) : "–", "", base ? `seed ${number(base)} ${UNIT}` : "no score for the seed", { kind }),
      light && tile("Of the speed of light", percent(last.score / light), "", el("span", {}, el("progress", { max: 1, value: last.score / light, "aria-label": `${kind} share of the speed of light` })), { kind }),
    ];
    box.append(el("div", { class: "tiles" }, tiles));
  }
  if (!KINDS.length) box.append(el("p", { class: "lead", text: DATA.mode === "none" ? "This run judges correctness alone: no candidate has a time." : "No candidate has a time yet." }));
  const counted = ({ committed = 0, passed = 0, repeat = 0, pending = 0 }) => [
    `${number(committed + passed)} passed every gate`, `${number(DATA.total - committed - passed - repeat - pending)} failed`,
    repeat && `${number(repeat)} repeated an earlier program`, pending && `${number(pending)} not judged yet`,
  ].filter(Boolean).join(", ");
  const budget = DATA.budget;
  const limiter = bottleneckOf(bestOf(KIND));
  const facts = [
    ["Candidates", `${number(DATA.total)}: ${counted(DATA.counts)}`],
    ["Commits", number(DATA.commits.length)],
    ["Limited by", limiter],
    ["Times are", DATA.mode === "measured" ? `measured on the chip${DATA.mode_reason ? ` (${DATA.mode_reason})` : ""}` : DATA.mode === "predicted" ? `predicted from machine code${DATA.mode_reason ? ` (${DATA.mode_reason})` : ""}` : `not judged${DATA.mode_reason ? `: ${DATA.mode_reason}` : ""}`],
    ["Budget", [
      budget.steps !== null ? `${number(budget.steps_used)} of ${plural(budget.steps, "step")}` : plural(budget.steps_used, "step"),
      budget.minutes_used !== null && `${number(budget.minutes_used, 2)}${budget.minutes !== null ? ` of ${number(budget.minutes, 2)}` : ""} minutes`,
    ].filter(Boolean).join(", ")],
  ].filter(([, value]) => value);
  box.append(el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value })))));
}

const bestOf = (kind) => {
  const points = DATA.running_best[kind];
  return points.length ? BY_K.get(points[points.length - 1].k) : null;
};

function bottleneckOf(c) {
  if (!c) return "";
  const counts = new Map();
  for (const w of workloadsOf(c)) if (w.limiter) counts.set(w.limiter, (counts.get(w.limiter) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([name, n]) => (counts.size > 1 ? `${name} (${n} of ${c.workloads.length})` : name)).join(", ");
}

// Half the interval of a measured time, as a share of it.
function spread(w, kind) {
  const interval = kind === "measured" ? (valueOf(w.detail) || {}).interval_s : null;
  return Array.isArray(interval) && interval.length === 2 ? el("span", { class: "limit", text: `±${percent((interval[1] - interval[0]) / 2 / w[kind], 2)}` }) : null;
}

// A bar of the share of the speed of light, with a tick where the seed stands.
function lightBar(share, base, words) {
  const bar = el("span", { class: "bar", role: "img", "aria-label": words }, el("span", { class: "fill", vars: { "--x": `${Math.min(1, share) * 100}%` } }));
  if (base) bar.append(el("span", { class: "tick", vars: { "--x": `${Math.min(1, base) * 100}%` } }));
  return bar;
}

function drawWorkloads() {
  const box = at("workloads");
  for (const kind of KINDS) {
    const best = bestOf(kind);
    if (!best) continue;
    const base = new Map(SEED ? workloadsOf(SEED).map((w) => [w.name, w[kind]]) : []);
    const pipes = new Set(DATA.workloads.map((i) => i.bottleneck));
    const rows = workloadsOf(best).filter((w) => w[kind]).map((w) => {
      const info = infoOf(w);
      const before = base.get(w.name);
      const share = w.floor / w[kind];
      return el("tr", {},
        el("th", { scope: "row", "data-label": "Workload", class: "mono", text: info.label, title: w.name }),
        el("td", { "data-label": `Rate, ${kind}`, class: "num strong" }, number(rate(w.work, w[kind])), el("span", { class: "unit", text: UNIT })),
        el("td", { "data-label": "Over the seed", class: "num", text: before ? times(before / w[kind]) : "–" }),
        el("td", { "data-label": `Time, ${kind}`, class: "num" }, seconds(w[kind]), spread(w, kind)),
        el("td", { "data-label": "Speed of light", class: "num", text: seconds(w.floor) }),
        el("td", { "data-label": "Share of it", class: "wide" },
          el("span", { class: "barline" }, lightBar(share, before ? w.floor / before : 0, `${percent(share)} of the speed of light, ${kind}; the seed ${percent(before ? w.floor / before : null)}`), el("span", { class: "num", text: percent(share) }))),
        pipes.size > 1 && el("td", { "data-label": "Floor set by", text: info.bottleneck || "–" }),
        el("td", { "data-label": "Limited by", class: "keep", text: w.limiter || "–" }));
    });
    box.append(
      el("div", { class: "table-box" }, el("table", { class: "cards" },
        el("caption", {}, "Best candidate per workload ", badge(kind), DATA.shared && el("span", { class: "dim" }, " all with ", el("span", { class: "mono", text: DATA.shared }))),
        el("thead", {}, el("tr", {}, ["Workload", `Rate, ${kind}`, "Over the seed", `Time, ${kind}`, "Speed of light", "Share of it", pipes.size > 1 && "Floor set by", "Limited by"].filter(Boolean).map((t, i) => el("th", { scope: "col", class: i > 0 && i < 5 ? "num" : "", text: t })))),
        el("tbody", {}, rows))),
      el("p", { class: "key" }, el("span", { class: "swatch fill" }), `best, ${kind}`, el("span", { class: "swatch tick" }), `seed, ${kind}`, el("span", { class: "swatch rest" }), pipes.size === 1 ? `full width: speed of light, set by ${[...pipes][0]} on every workload` : "full width: speed of light"));
  }
}

function drawCommits() {
  const box = at("commits");
  const line = DATA.commits.filter((c) => c.line);
  const others = DATA.commits.length - line.length;
  if (!line.length) {
    at("won").hidden = true;
    return;
  }
  const most = Math.max(...line.map((c) => (c.gain || 1) - 1), 0.01);
  const row = (commit, i) => {
    const c = BY_K.get(commit.k);
    const gain = commit.gain === null ? null : commit.gain - 1;
    const interval = commit.gain_low !== null && commit.gain_high !== null ? `${signed(commit.gain_low - 1)} to ${signed(commit.gain_high - 1)}` : "";
    return el("li", { class: "commit" },
      el("span", { class: "ordinal" }, mark("committed"), String(i)),
      el("div", { class: "what" },
        el("div", { class: "change" }, c ? idButton(c) : el("span", { class: "mono", text: commit.digest }), el("span", { class: "mono edit", text: commit.change || (i === 0 ? "the seed program" : "no textual change") })),
        commit.reason && el("p", { class: "reason", text: commit.reason })),
      el("span", { class: "num strong gain" }, gain === null ? "baseline" : signed(gain), interval && el("span", { class: "interval", text: interval })),
      el("span", { class: "gain-bar", "aria-hidden": "true" }, gain !== null && el("span", { class: "bar small" }, el("span", { class: "fill", vars: { "--x": `${Math.max(0, gain / most) * 100}%` } }))),
      el("span", { class: "num rate" }, number(commit.score), el("span", { class: "unit", text: UNIT })),
      el("span", { class: "num over" }, commit.over_seed === null ? "" : [times(commit.over_seed), el("span", { class: "unit", text: "the seed" })]),
      el("span", { class: "num when" }, el("span", { class: "unit", text: "proposal " }), number(commit.k)));
  };
  const rows = line.map((commit, i) => [commit, i]);
  const list = (part, start) => el("ol", { class: "commits", start }, part.map(([commit, i]) => row(commit, i)));
  // Of a long line the newest are told, and the seed; what lies between is drawn when it is asked for.
  const between = rows.length > 40 ? rows.slice(1, -20) : [];
  const told = between.length
    ? [list(rows.slice(0, 1), 0), folded(`${number(between.length)} more commits between`, () => list(between, 1)), list(rows.slice(-20), rows.length - 20)]
    : [list(rows, 0)];
  box.append(el("p", { class: "lead" }, "The line of commits from the seed to the best, each with its gain over the best before it ", badge(KIND), others > 0 && ` and ${number(others)} more on side lines, in the tree below`), ...told);
}

// The parts that this page has, in its order: a page of a long run is several screens.
function drawWays() {
  const words = { now: "Where we are", best: "Best so far", won: "What won", worth: "Decisions", lineage: "Every candidate", cost: "Cost", tried: "Expected", flagged: "To be looked at" };
  at("ways").append(...[...document.querySelectorAll("main > section")].filter((s) => !s.hidden).map((s) => el("a", { href: `#${s.id}`, text: words[s.id] })));
}

function drawFoot() {
  const { versions, budget } = DATA;
  const pairs = [...Object.entries(versions), ...Object.entries(budget.spend).map(([k, v]) => [`spent ${k}`, typeof v === "number" ? number(v) : v])];
  at("foot").append(
    el("p", { class: "note", text: "Speed of light: the least time that any kernel could take for the workload on this chip, from its cited peak rates. A predicted time comes from the machine code and the schedule, a measured one from the chip; they are different facts and stand apart everywhere." }),
    pairs.length ? el("dl", { class: "facts" }, pairs.map(([k, v]) => el("div", {}, el("dt", { text: k }), el("dd", { text: v })))) : null);
}
