// What a reader asks next: which expectations failed, what it cost, and what somebody should look at.
function tableOf(caption, heads, rows) {
  return el("div", { class: "table-box" }, el("table", { class: "cards" },
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, heads.map(([text, numeric]) => el("th", { scope: "col", class: numeric ? "num" : "", text })))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, i) =>
      el(i ? "td" : "th", { scope: i ? null : "row", "data-label": heads[i][0], class: heads[i][1] ? "num" : "wide" }, cell)))))));
}
const gainOf = (ratio) => (ratio === null || ratio === undefined ? "–" : signed(ratio - 1));

function drawDecisions() {
  const rows = DATA.decisions;
  if (!rows.length) {
    at("worth").hidden = true;
    return;
  }
  const alone = rows.filter((d) => !d.others), together = rows.filter((d) => d.others);
  const line = (d) => [
    el("span", { class: "mono", text: d.instead }),
    el("span", { class: "num", text: signed(d.ratio - 1) }),
    el("span", { text: d.others ? `and ${number(d.others)} more` : "" }),
    BY_K.has(d.k) ? idButton(BY_K.get(d.k)) : numberButton(d.k),
  ];
  const heads = [["Instead of what the best has"], ["Beside the best", 1], ["Other changes"], ["Candidate"]];
  at("decisions").append(
    el("p", { class: "lead" }, "Candidates of this run that decided one thing otherwise than the best, the dearest first ", badge(KIND)),
    alone.length ? tableOf("One decision alone", heads.filter((_, i) => i !== 2), alone.map((d) => line(d).filter((_, i) => i !== 2))) : "",
    together.length ? tableOf("Never decided otherwise alone: the nearest candidates", heads, together.map(line)) : "");
}

function drawTried() {
  const rows = DATA.tried;
  if (!rows.length) {
    at("tried").hidden = true;
    return;
  }
  const rest = DATA.tried_total - rows.length;
  at("hypotheses").append(
    el("p", { class: "lead" }, "The furthest from what was expected first ", badge(KIND), rest > 0 && ` and ${number(rest)} more`),
    tableOf("Hypotheses", [["Claim"], ["Expected", 1], ["Came out", 1], ["Candidate"]], rows.map((t) => {
      const c = t.k === null ? null : BY_K.get(t.k);
      const missed = t.actual !== null && t.expected !== null && t.actual < 1 && t.expected > 1;
      return [
        el("span", { text: t.claim }),
        gainOf(t.expected),
        el("span", { class: missed ? "missed" : "", text: t.actual === null ? (c && failed(c) ? `failed at ${c.failed_gate}` : "–") : gainOf(t.actual) }),
        c ? idButton(c) : t.k === null ? "never tried" : numberButton(t.k),
      ];
    })));
}

function drawCosts() {
  const rows = DATA.costs;
  if (!rows.length) {
    at("cost").hidden = true;
    return;
  }
  const asked = rows.some((c) => c.model);
  const onDevice = rows.some((c) => c.device_s);
  const heads = [["Stage"], ["Entries", 1], ["Time", 1], onDevice && ["On the device", 1], ...(asked ? [["Tokens in", 1], ["Tokens out", 1], ["USD", 1], ["Gained", 1]] : [])].filter(Boolean);
  at("costs").append(
    tableOf("Sums over the ledger; time of what ran at once is added up", heads, rows.map((c) => [
      el("span", { text: c.model ? `${c.stage}: ${c.model}` : c.stage }),
      number(c.entries), seconds(c.wall_s),
      ...(onDevice ? [c.device_s ? seconds(c.device_s) : "–"] : []),
      ...(asked ? [number(c.tokens_in), number(c.tokens_out), c.usd === null ? "unknown" : number(c.usd), c.gained === null ? "–" : times(c.gained)] : []),
    ])));
}

function drawFindings() {
  const flagged = DATA.candidates.filter((c) => c.status === "gaming" || c.status === "suspicious");
  if (!flagged.length) {
    at("flagged").hidden = true;
    return;
  }
  // One row for what was seen the same way, the most frequent first.
  const groups = new Map();
  for (const c of flagged) {
    const key = `${c.status} ${c.message}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(c);
  }
  const rows = [...groups.values()].sort((a, b) => b.length - a.length).map((group) => [
    el("span", { text: group[0].message || "–" }), statusWords(group[0]), number(group.length),
    [...group.slice(0, 3).map((c) => [idButton(c), " "]), group.length > 3 && el("span", { class: "dim", text: `and ${number(group.length - 3)} more` })],
  ]);
  const heads = [["What was seen"], ["Verdict"], ["Times", 1], ["Candidates"]];
  at("findings").append(
    el("p", { class: "lead", text: "Kept out of every ranking: they gamed the judge, or were faster than is possible." }),
    tableOf("Flagged candidates", heads, rows.slice(0, 12)),
    rows.length > 12 && folded(`${number(rows.length - 12)} more that were seen otherwise`, () => tableOf("More flagged candidates", heads, rows.slice(12))) || "");
}
