// The data, how numbers are written, and the few functions that make elements. Text only ever enters by textContent.
const DATA = JSON.parse(document.getElementById("report-data").textContent);
const UNIT = DATA.target.unit;
const BY_K = new Map(DATA.candidates.map((c) => [c.k, c]));
const SEED = BY_K.get(DATA.baseline);
const KIND = DATA.mode === "measured" ? "measured" : "predicted";
const KINDS = ["measured", "predicted"].filter((kind) => DATA.running_best[kind].length > 0);
const GATES = ["parse", "check", "meaning", "compile", "correctness", "integrity", "timing", "prediction", "floor"];

// Classes of outcome: what a row's mark shows. Every class has a shape and a word; colour is the third sign, not the only one.
const OUTCOMES = [
  { id: "committed", label: "committed", shape: "M0-6.4 6.4 0 0 6.4-6.4 0Z" },
  { id: "passed", label: "passed", shape: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0Z" },
  { id: "repeat", label: "repeat", shape: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0M-2.7 0a2.7 2.7 0 1 1 5.4 0a2.7 2.7 0 1 1-5.4 0Z" },
  { id: "pending", label: "pending", shape: "M-6-1.5h3v3h-3ZM-1.5-1.5h3v3h-3ZM3-1.5h3v3h-3Z" },
  { id: "parse", label: "parse", shape: "M-5-1.4H5V1.4H-5Z" },
  { id: "check", label: "check", shape: "M0-5.2 5.2 4.2H-5.2Z" },
  { id: "meaning", label: "meaning", shape: "M0 5.2 5.2-4.2H-5.2Z" },
  { id: "compile", label: "compile", shape: "M-4.4-4.4H4.4V4.4H-4.4Z" },
  { id: "correctness", label: "correctness", shape: "M-5-3-3-5 0-2 3-5 5-3 2 0 5 3 3 5 0 2-3 5-5 3-2 0Z" },
  { id: "integrity", label: "integrity", shape: "M-1.5-5.5H1.5V-1.5H5.5V1.5H1.5V5.5H-1.5V1.5H-5.5V-1.5H-1.5Z" },
  { id: "timing", label: "timing", shape: "M-5-5H5L-5 5H5Z" },
  { id: "prediction", label: "prediction", shape: "M-5-5V5L5-5V5Z" },
  { id: "floor", label: "floor", shape: "M0-5.6 5.3-1.7 3.3 4.6H-3.3L-5.3-1.7Z" },
  { id: "harness", label: "harness", shape: "M-5-5H5V5H-5ZM-3.2-3.2V3.2H3.2V-3.2Z" },
];
const OUTCOME = new Map(OUTCOMES.map((o) => [o.id, o]));
const outcomeOf = (c) => (OUTCOME.has(c.outcome) ? c.outcome : "harness");
const failed = (c) => Boolean(c.failed_gate) && c.outcome !== "repeat";
function statusWords(c) {
  if (c.status === null) return "not judged yet";
  if (c.repeats !== null) return `repeats no. ${c.repeats}`;
  return c.status === "ok" ? c.outcome : c.status.replaceAll("_", " ");
}
// The whole sentence: what came of it, where it failed, or its score of the kind that decides.
function verdict(c, kind = KIND) {
  const score = c.score[kind];
  return failed(c) ? `${statusWords(c)}, at ${c.failed_gate}` : statusWords(c) + (score ? `, ${number(score)} ${UNIT} ${kind}` : "");
}

const textOf = (indexes) => indexes.map((i) => DATA.lines[i]).join("\n");
const valueOf = (index) => (index === null || index === undefined ? null : DATA.values[index]);
const workloadsOf = (c) =>
  c.workloads.map(([name, predicted, measured, floor, work, limiter, detail]) => ({ name, predicted, measured, floor, work, limiter, detail }));
const infoOf = (w) => DATA.workloads.find((i) => i.name === w.name) || { label: w.name, bottleneck: "" };
const SCALE = UNIT === "GB/s" ? 1e-9 : 1e-12;
const rate = (work, seconds) => (work * SCALE) / seconds;

// Characters that would hide or reorder what stands on a page are shown by their code.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
const visible = (text) => String(text).replace(HIDDEN, (ch) => "\u27e8U+" + ch.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9");

function build(node, props, kids) {
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") node.textContent = visible(value);
    else if (key === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (key === "vars") for (const [name, v] of Object.entries(value)) node.style.setProperty(name, v);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const kid of kids.flat(Infinity)) {
    if (kid !== null && kid !== undefined && kid !== false) node.append(typeof kid === "object" ? kid : visible(kid));
  }
  return node;
}
const el = (tag, props = {}, ...kids) => build(document.createElement(tag), props, kids);
const svg = (tag, props = {}, ...kids) => build(document.createElementNS("http://www.w3.org/2000/svg", tag), props, kids);
const at = (id) => document.getElementById(id);

function mark(outcome, size = 14) {
  const path = svg("path", { d: OUTCOME.get(outcome).shape });
  return svg("svg", { class: `mark o-${outcome}`, width: size, height: size, viewBox: "-7 -7 14 14", "aria-hidden": "true" }, path);
}
const badge = (kind) => el("span", { class: `kind ${kind}`, text: kind });

// Numbers: four significant digits, a true minus, thin grouping; units stand apart.
function number(x, digits = 4) {
  if (x === null || x === undefined) return "–";
  if (typeof x !== "number") return String(x);
  if (Number.isInteger(x) && Math.abs(x) < 1e15) return grouped(String(x));
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return x.toExponential(2).replace("e-", "e−").replace("e+", "e");
  return decimal(x, digits);
}
const decimal = (x, digits = 4) => grouped(x.toFixed(Math.max(0, Math.min(6, digits - 1 - Math.floor(Math.log10(Math.abs(x) || 1))))));
function grouped(text) {
  const [, sign, whole, rest] = /^(-?)(\d+)(.*)$/.exec(text);
  return (sign ? "−" : "") + (whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, "\u202f") : whole) + rest;
}
function seconds(s, digits = 4) {
  if (s === null || s === undefined) return "–";
  for (const [scale, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) if (Math.abs(s) >= scale) return `${decimal(s / scale, digits)} ${unit}`;
  return s === 0 ? "0 s" : `${decimal(s / 1e-9)} ns`;
}
const percent = (x, digits = 1) => (x === null || !Number.isFinite(x) ? "–" : `${x < 0 ? "−" : ""}${Math.abs(100 * x).toFixed(digits)}%`);
const signed = (x) => (x > 0 ? "+" : "") + percent(x);
const times = (x) => (x === null || !Number.isFinite(x) ? "–" : `${x.toFixed(x < 10 ? 2 : 1)}×`);
const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;

// One selection for the whole page: parts register, anything may select.
const watchers = [];
let selected = null;
const onSelect = (fn) => watchers.push(fn);
function select(candidate, options = {}) {
  if (!candidate) return;
  selected = candidate;
  for (const fn of watchers) fn(candidate, options);
}
// A summary that draws what it stands for when it is opened.
function folded(summary, draw) {
  const box = el("details", { class: "more" }, el("summary", { text: summary }));
  box.addEventListener("toggle", () => { if (box.open && box.childElementCount === 1) box.append(draw()); });
  return box;
}
let fetchMissing = null; // in a served page: asks the server for a candidate that this page only counts
const numberButton = (k) => fetchMissing
  ? el("button", { class: "id", type: "button", "aria-label": `show proposal ${k}`, text: `no. ${k}`, on: { click: () => fetchMissing(k).then((c) => select(c, {})) } })
  : `no. ${k}`;
const idButton = (c, label) =>
  el("button", { class: "id", type: "button", "aria-label": `show candidate ${c.id}, proposal ${c.k}`, text: label || c.id, on: { click: () => select(c, { reveal: true, jump: true }) } });
