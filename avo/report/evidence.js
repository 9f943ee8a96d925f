// Evidence is whatever JSON a gate left: shown as tables where it is regular, with the raw text one click away.
const words = (key) => key.replace(/_s$/, "").replaceAll("_", " ");
const isPlain = (v) => v === null || typeof v !== "object";
const isMap = (v) => v !== null && typeof v === "object" && !Array.isArray(v);

function plainValue(key, value) {
  if (value === null) return "–";
  if (value === true) return "yes";
  if (value === false) return "no";
  if (typeof value === "number") {
    if (/(^|_)bytes($|_)/.test(key) && value >= 1024) return `${number(value / 1024)} KiB`;
    if (/(_s|seconds|time)$/.test(key)) return seconds(value);
    if (/(_hz)$/.test(key)) return `${number(value / 1e9)} GHz`;
    return number(value);
  }
  return LABELS.get(value) || (/^\w+=[^,\s]+(,\w+=[^,\s]+)+$/.test(value) ? value.replaceAll(",", " ") : String(value));
}
const LABELS = new Map(DATA.workloads.map((w) => [w.name, w.label]));

// A figure beside its limit, as the correctness gate leaves them.
const isMeasure = (v) => isMap(v) && "value" in v && "limit" in v;
const isLeaf = (v) => isPlain(v) || isMeasure(v) || (Array.isArray(v) && v.length <= 8 && v.every((x) => isPlain(x) && String(x).length < 16));
const isFlat = (v) => isMap(v) && !isMeasure(v) && Object.values(v).every(isLeaf);
const isNested = (v) => isMap(v) && Object.keys(v).length > 0 && Object.values(v).every(isFlat);
const keysOf = (maps) => [...new Set(maps.flatMap((m) => Object.keys(m)))];

function leafText(key, value) {
  return isPlain(value) ? plainValue(key, value) : value.map((v) => plainValue(key, v)).join(", ");
}

function cell(key, value, tag = "td") {
  if (value === undefined) return el(tag, { class: "dim" });
  if (isMeasure(value)) {
    const over = typeof value.value !== "number" || value.value > value.limit;
    const more = Object.entries(value).filter(([k]) => k !== "value" && k !== "limit").map(([k, v]) => `${words(k)} ${leafText(k, v)}`).join(", ");
    return el(tag, { class: over ? "num over-limit" : "num", title: more || null }, plainValue(key, value.value), el("span", { class: "limit" }, `of ${plainValue(key, value.limit)}`, over && more ? `, ${more}` : ""));
  }
  if (isLeaf(value)) return el(tag, { class: typeof value === "string" ? (value.length > 24 ? "long" : "") : "num", text: leafText(key, value) });
  return el(tag, {}, renderValue(key, value));
}

// Small maps become columns of their own; a map of maps (the outputs of a case, say) becomes rows of its own.
function evened(records) {
  for (const k of keysOf(records)) {
    const values = records.map((r) => r[k]).filter((v) => v !== undefined);
    if (values.every(isNested)) {
      const name = k.replace(/s$/, "");
      records = records.flatMap((r) => (r[k] === undefined ? [r] : Object.entries(r[k]).map(([inner, v]) => ({ ...Object.fromEntries(Object.entries(r).filter(([x]) => x !== k)), [name]: inner, ...v }))));
    } else if (values.every((v) => isFlat(v) && Object.keys(v).length <= 4)) {
      records = records.map((r) => Object.fromEntries(Object.entries(r).flatMap(([x, v]) => (x === k ? Object.entries(v).map(([inner, y]) => [`${k} ${inner}`, y]) : [[x, v]]))));
    }
  }
  return records;
}

// Records that share keys: one table of what is flat; what is deep (instructions of several kernels, say) follows in a
// table of its own, one column a record, so that a cell never holds a table.
function recordBox(key, given) {
  const records = evened(given);
  const deep = keysOf(records).filter((k) => records.some((r) => r[k] !== undefined && !isLeaf(r[k])));
  if (!deep.length) return recordTable(records, words(key));
  const title = (r) => r.name || r.kernel;
  const names = records.map((r, i) => (!title(r) ? `no. ${i + 1}` : records.filter((o) => title(o) === title(r)).length > 1 ? `${title(r)}, ${i + 1}` : title(r)));
  const shallow = records.map((r) => Object.fromEntries(Object.entries(r).filter(([k]) => !deep.includes(k) && k !== "name" && k !== "kernel")));
  return el("div", { class: "value-box" }, records.length <= 4 ? turned(shallow, names) : recordTable(shallow.map((r, i) => ({ "": names[i], ...r })), words(key)), deep.map((k) => {
    const inner = records.map((r) => r[k]);
    const body = inner.every((v) => v === undefined || isFlat(v)) ? turned(inner.map((v) => v || {}), names)
      : inner.map((v, i) => (v === undefined ? null : el("div", {}, records.length > 1 ? el("span", { class: "note mono", text: names[i] }) : null, renderValue(k, v))));
    return el("div", { class: "part" }, el("h5", { text: words(k) }), body);
  }));
}

// One column a record, one row a key. `as` overrides the key that decides how a number is written.
function turned(records, names, as) {
  return el("div", { class: "table-box" }, el("table", { class: "evidence turned" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }), names.map((n) => el("th", { scope: "col", class: "num", text: n })))),
    el("tbody", {}, keysOf(records).map((k) => el("tr", {}, el("th", { scope: "row", text: words(k) }), records.map((r) => (isMeasure(r[k]) ? cell(k, r[k]) : el("td", { class: "num", text: k in r ? leafText(as || k, r[k]) : "–" }))))))));
}

function recordTable(records, label) {
  const keys = keysOf(records);
  const numeric = (k) => records.every((r) => r[k] === undefined || typeof r[k] === "number" || isMeasure(r[k]));
  return el("div", { class: "table-box" }, el("table", { class: "evidence" },
    label && el("caption", { class: "hidden-label", text: label }),
    el("thead", {}, el("tr", {}, keys.map((k) => el("th", { scope: "col", class: numeric(k) ? "num" : "", text: words(k) })))),
    el("tbody", {}, records.map((r) => el("tr", { class: r.passed === false || r.ok === false ? "bad" : "" }, keys.map((k) => cell(k, r[k])))))));
}

function renderValue(key, value) {
  if (isPlain(value)) return el("span", { text: plainValue(key, value) });
  if (Array.isArray(value)) {
    if (!value.length) return el("span", { class: "dim", text: "none" });
    if (isLeaf(value)) return el("span", { class: "num", text: leafText(key, value) });
    if (value.every(isMap)) return recordBox(key, value);
    return el("ul", { class: "plain" }, value.map((v) => el("li", {}, renderValue(key, v))));
  }
  const entries = Object.entries(value);
  if (!entries.length) return el("span", { class: "dim", text: "none" });
  if (entries.every(([, v]) => isMap(v) && !isMeasure(v)) && alike(entries.map(([, v]) => v))) return recordBox(key, entries.map(([k, v]) => ({ name: k, ...v })));
  const short = entries.filter(([, v]) => isLeaf(v) && !(typeof v === "string" && (v.length > 60 || v.includes("\n"))));
  const long = entries.filter((e) => !short.includes(e));
  return el("div", { class: "value-box" },
    short.length ? el("dl", { class: "pairs" }, short.map(([k, v]) => el("div", {}, el("dt", { text: words(k) }), cell(k, v, "dd")))) : null,
    long.map(([k, v]) => el("div", { class: "part" }, el("h5", { text: words(k) }), isPlain(v) ? el("pre", { class: "wrap-text", text: String(v) }) : renderValue(k, v))));
}

function alike(maps) {
  const [first, ...rest] = maps.map((m) => Object.keys(m));
  return rest.every((keys) => keys.filter((k) => first.includes(k)).length * 2 >= Math.max(keys.length, first.length));
}

function gateList(c) {
  const left = new Map(c.gates.map(([name, passed, message, value, time]) => [name, { passed, message, value: valueOf(value), time }]));
  const names = [...GATES, ...[...left.keys()].filter((n) => !GATES.includes(n))];
  const stop = c.gates.findIndex(([, passed]) => !passed);
  const list = el("div", { class: "gates" });
  if (c.failed_gate === "harness") list.append(el("p", { class: "note", text: "The harness failed, not the candidate: this is no verdict on the program." }));
  for (const name of names) {
    const gate = left.get(name);
    if (!gate) {
      if (name === c.failed_gate) list.append(el("div", { class: "gate failed" }, el("div", { class: "gate-head" }, mark(outcomeOf(c)), el("b", { text: name }), el("span", { class: "gate-word", text: "failed" }), el("span", { class: "gate-message", text: c.message }))));
      else list.append(el("div", { class: "gate skipped" }, el("div", { class: "gate-head" }, el("span", { class: "mark", "aria-hidden": "true", text: "·" }), el("span", { text: name }), el("span", { class: "note", text: stop >= 0 || c.failed_gate ? "not reached" : "not needed in this mode" }))));
      continue;
    }
    const summary = el("summary", { class: "gate-head" },
      gate.passed ? el("span", { class: "mark tick-mark", "aria-hidden": "true", text: "✓" }) : mark(OUTCOME.has(name) ? name : "harness"),
      el("b", { text: name }), el("span", { class: "gate-word", text: gate.passed ? "passed" : "failed" }),
      gate.time ? el("span", { class: "note num gate-time", text: seconds(gate.time, 3) }) : null);
    const body = el("div", { class: "gate-body" });
    const box = el("details", { class: gate.passed ? "gate" : "gate failed", "data-gate": name }, summary, body);
    const fill = () => {
      if (body.childElementCount) return;
      if (gate.message && gate.message !== c.message) body.append(el("pre", { class: "wrap-text message", text: gate.message }));
      if (gate.value) body.append(renderValue(name, gate.value), el("details", { class: "raw" }, el("summary", { text: "as JSON" }), el("pre", { class: "wrap-text", text: JSON.stringify(gate.value, null, 2) })));
      if (!body.childElementCount) body.append(el("p", { class: "note", text: "passed, with nothing more to say" }));
    };
    box.addEventListener("toggle", () => box.open && fill());
    if (!gate.passed) {
      fill();
      box.open = true;
    }
    list.append(box);
  }
  return list;
}
