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
  return LABELS.get(value) || String(value);
}
const LABELS = new Map(DATA.workloads.map((w) => [w.name, w.label]));

function cell(key, value, tag = "td") {
  if (isPlain(value)) return el(tag, { class: typeof value === "number" ? "num" : typeof value === "string" && value.length > 24 ? "long" : "", text: plainValue(key, value) });
  return el(tag, {}, renderValue(key, value));
}

// Maps that share keys: a table of what is plain, and one table turned on its side for each map within (instructions
// of several kernels, say), so that a row never holds a table.
function recordBox(key, given) {
  const small = (v) => isMap(v) && Object.keys(v).length <= 4 && Object.values(v).every(isPlain);
  const flatKeys = new Set(given.flatMap((r) => Object.keys(r)).filter((k) => given.every((r) => r[k] === undefined || small(r[k]))));
  const records = given.map((r) => Object.fromEntries(Object.entries(r).flatMap(([k, v]) => (flatKeys.has(k) && isMap(v) ? Object.entries(v).map(([inner, x]) => [`${k} ${inner}`, x]) : [[k, v]]))));
  const keys = [...new Set(records.flatMap((r) => Object.keys(r)))];
  const deep = keys.filter((k) => records.some((r) => r[k] !== undefined && !isPlain(r[k]) && !(Array.isArray(r[k]) && r[k].every((v) => isPlain(v) && String(v).length < 16))));
  if (!deep.length) return recordTable(records, null, words(key));
  const shallow = records.map((r) => Object.fromEntries(Object.entries(r).filter(([k]) => !deep.includes(k) && k !== "name" && k !== "kernel")));
  const names = records.map((r, i) => r.name || r.kernel || `no. ${i + 1}`);
  const unique = new Set(names).size === names.length ? names : names.map((n, i) => (records[i].name || records[i].kernel ? `${n}, ${i + 1}` : n));
  const few = records.length <= 4;
  return el("div", { class: "value-box" }, few ? turned(shallow, unique) : recordTable(shallow, unique, words(key)), deep.map((k) => {
    const inner = records.map((r) => r[k]);
    if (inner.every((v) => v === undefined || (isMap(v) && Object.values(v).every(isPlain)))) {
      return el("div", { class: "part" }, el("h5", { text: words(k) }), turned(inner.map((v) => v || {}), unique));
    }
    return el("div", { class: "part" }, el("h5", { text: words(k) }), inner.map((v, i) => (v === undefined ? null : el("div", {}, records.length > 1 ? el("span", { class: "note mono", text: `${unique[i]} ` }) : null, renderValue(k, v)))));
  }));
}

// One column a record, one row a key.
function turned(records, names) {
  const keys = [...new Set(records.flatMap((r) => Object.keys(r)))];
  return el("div", { class: "table-box" }, el("table", { class: "evidence turned" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }), names.map((n) => el("th", { scope: "col", class: "num", text: n })))),
    el("tbody", {}, keys.map((k) => el("tr", {}, el("th", { scope: "row", text: words(k) }), records.map((r) => el("td", { class: "num", text: k in r ? plainText(k, r[k]) : "–" })))))));
}
const plainText = (key, value) => (isPlain(value) ? plainValue(key, value) : value.map((v) => plainValue(key, v)).join(", "));

// Rows of maps that share keys: one table. `names`: a first column for maps of maps.
function recordTable(records, names, label) {
  const keys = [...new Set(records.flatMap((r) => Object.keys(r)))];
  return el("div", { class: "table-box" }, el("table", { class: "evidence" },
    label && el("caption", { class: "hidden-label", text: label }),
    el("thead", {}, el("tr", {}, names && el("th", { scope: "col" }), keys.map((k) => el("th", { scope: "col", class: records.every((r) => r[k] === undefined || typeof r[k] === "number") ? "num" : "", text: words(k) })))),
    el("tbody", {}, records.map((r, i) => el("tr", { class: r.passed === false || r.ok === false ? "bad" : "" }, names && el("th", { scope: "row", class: "mono", text: names[i] }), keys.map((k) => (r[k] === undefined ? el("td", { class: "dim", text: "" }) : cell(k, r[k]))))))));
}

function renderValue(key, value) {
  if (isPlain(value)) return el("span", { text: plainValue(key, value) });
  if (Array.isArray(value)) {
    if (!value.length) return el("span", { class: "dim", text: "none" });
    if (value.every(isPlain)) {
      if (value.some((v) => typeof v === "string" && v.length > 40)) return el("ul", { class: "plain" }, value.map((v) => el("li", { text: plainValue(key, v) })));
      return el("span", { class: "num", text: value.map((v) => plainValue(key, v)).join(", ") });
    }
    if (value.every(isMap)) return recordBox(key, value);
    return el("ul", { class: "plain" }, value.map((v) => el("li", {}, renderValue(key, v))));
  }
  const entries = Object.entries(value);
  if (!entries.length) return el("span", { class: "dim", text: "none" });
  if (entries.length > 1 && entries.every(([, v]) => isMap(v)) && alike(entries.map(([, v]) => v))) return recordBox(key, entries.map(([k, v]) => ({ name: k, ...v })));
  const short = entries.filter(([, v]) => isPlain(v) && !(typeof v === "string" && (v.length > 60 || v.includes("\n"))));
  const long = entries.filter((e) => !short.includes(e));
  return el("div", { class: "value-box" },
    short.length ? el("dl", { class: "pairs" }, short.map(([k, v]) => el("div", {}, el("dt", { text: words(k) }), el("dd", { class: typeof v === "number" ? "num" : "", text: plainValue(k, v) })))) : null,
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
