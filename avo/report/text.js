// Programs and Triton as numbered, lightly coloured lines; line differences.
const AVO_WORDS = /^(kernel|in|out|axis|param|schedule|kernels|for)\b/;
const TYPES = "f32|f16|bf16|e4m3|e5m2|int8|i32|bool|int|mxfp4|nvfp4|f64";
const AVO_TOKENS = new RegExp(`(?<comment>#.*)|(?<number>\\b\\d+(?:\\.\\d+)?(?:[KMG]iB)?\\b|\\.\\d+)|(?<type>\\b(?:${TYPES})\\b)|(?<word>\\b(?:not|and|or)\\b)|(?<call>[A-Za-z_]\\w*(?=[\\[(]))|(?<name>[A-Za-z_]\\w*)`, "g");
const PY_TOKENS = /(?<string>"""[^]*?"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?<comment>#.*)|(?<word>\b(?:and|as|assert|break|class|continue|def|elif|else|False|for|from|if|import|in|is|None|not|or|pass|return|True|while|with)\b)|(?<type>@[\w.]+|\btl\.constexpr\b)|(?<number>\b\d[\w.]*\b)|(?<call>\b[A-Za-z_][\w.]*(?=\())|(?<name>[A-Za-z_]\w*)/g;

function tokens(text, pattern) {
  const out = [];
  let end = 0;
  for (const m of text.matchAll(pattern)) {
    const kind = Object.keys(m.groups).find((k) => m.groups[k] !== undefined);
    if (kind === "name") continue;
    if (m.index > end) out.push([null, text.slice(end, m.index)]);
    out.push([kind, m[0]]);
    end = m.index + m[0].length;
  }
  if (end < text.length) out.push([null, text.slice(end)]);
  return out;
}
function coloured(pieces) {
  return pieces.map(([kind, text]) => (kind ? el("span", { class: `t-${kind}`, text }) : visible(text)));
}

function avoLine(line) {
  const head = AVO_WORDS.exec(line);
  const rest = head ? line.slice(head[0].length) : line;
  return [head && el("span", { class: "t-word", text: head[0] }), coloured(tokens(rest, AVO_TOKENS))];
}

function codeLines(text, language) {
  if (language === "avo") return text.split("\n").map(avoLine);
  // Python strings may span lines: colour the whole, then cut at the line ends
  const lines = [[]];
  for (const [kind, piece] of tokens(text, PY_TOKENS)) {
    piece.split("\n").forEach((part, i) => {
      if (i) lines.push([]);
      if (part) lines[lines.length - 1].push([kind, part]);
    });
  }
  return lines.map(coloured);
}

function codeBlock(text, language, label) {
  const body = text.replace(/\n+$/, "");
  const code = el("pre", { class: "code", tabindex: 0, "aria-label": label }, codeLines(body, language).map((line) => el("span", { class: "line" }, line, "\n")));
  const lines = code.childElementCount;
  return el("div", { class: "code-box" }, el("div", { class: "code-head" }, el("span", { class: "note num", text: plural(lines, "line") }), copyButton(text, label, code)), code);
}

function copyButton(text, label, code) {
  const button = el("button", { class: "button small copy", type: "button", "aria-label": `copy ${label}`, text: "Copy" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // no clipboard from a file in this browser: select it, so that the keys do
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return button;
}

// Unified difference as stored: the headers name the two candidates, so they are left out here.
function diffBlock(lines, label) {
  const body = lines.filter((l) => !/^(---|\+\+\+) /.test(l));
  return el("pre", { class: "code diff", tabindex: 0, "aria-label": label }, body.map((line) => {
    const sign = line[0];
    if (sign === "@") return el("span", { class: "line hunk" }, line, "\n");
    const className = sign === "+" ? "line plus" : sign === "-" ? "line minus" : "line";
    return el("span", { class: className }, el("span", { class: "sign", text: sign === "-" ? "−" : sign }), avoLine(line.slice(1)), "\n");
  }));
}

// Longest common subsequence of lines; a common head and tail are cut first, and the table is bounded.
function lineDiff(a, b) {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const x = a.slice(head, a.length - tail), y = b.slice(head, b.length - tail);
  const pairs = a.slice(0, head).map((line) => [line, line]);
  if (x.length * y.length > 4e6) {
    pairs.push(...x.map((line) => [line, null]), ...y.map((line) => [null, line]));
  } else {
    const w = y.length + 1;
    const table = new Uint32Array((x.length + 1) * w);
    for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--) table[i * w + j] = x[i] === y[j] ? table[(i + 1) * w + j + 1] + 1 : Math.max(table[(i + 1) * w + j], table[i * w + j + 1]);
    let i = 0, j = 0;
    while (i < x.length || j < y.length) {
      if (i < x.length && j < y.length && x[i] === y[j]) pairs.push([x[i++], y[j++]]);
      else if (j >= y.length || (i < x.length && table[(i + 1) * w + j] >= table[i * w + j + 1])) pairs.push([x[i++], null]);
      else pairs.push([null, y[j++]]);
    }
  }
  return facing([...pairs, ...a.slice(a.length - tail).map((line) => [line, line])]);
}

// A line that went and one that came in the same place face each other.
function facing(pairs) {
  const out = [];
  let gone = [], come = [];
  const flush = () => {
    for (let i = 0; i < Math.max(gone.length, come.length); i++) out.push([gone[i] ?? null, come[i] ?? null]);
    gone = [];
    come = [];
  };
  for (const [left, right] of pairs) {
    if (left !== null && right !== null) {
      flush();
      out.push([left, right]);
    } else if (right === null) gone.push(left);
    else come.push(right);
  }
  flush();
  return out;
}

// Two texts side by side; long equal stretches are folded.
function sideBySide(a, b, names, language) {
  const pairs = lineDiff(a.split("\n"), b.split("\n"));
  const near = pairs.map((_, i) => pairs.slice(Math.max(0, i - 3), i + 4).some(([l, r]) => l !== r));
  const draw = language === "avo" ? avoLine : (line) => coloured(tokens(line, PY_TOKENS));
  const body = [];
  let folded = 0;
  pairs.forEach(([left, right], i) => {
    if (!near[i] && pairs.length > 40) {
      folded += 1;
      if (i + 1 === pairs.length || near[i + 1]) {
        body.push(el("tr", { class: "hunk" }, el("td", { colspan: 2, text: `${plural(folded, "equal line")}` })));
        folded = 0;
      }
      return;
    }
    const changed = left !== right;
    const cell = (line, className) => el("td", { class: changed ? (line === null ? "void" : className) : "" }, line === null ? "" : draw(line));
    body.push(el("tr", {}, cell(left, "minus"), cell(right, "plus")));
  });
  if (pairs.every(([l, r]) => l === r)) return el("p", { class: "note", text: "No difference." });
  return el("div", { class: "table-box" }, el("table", { class: "sides code" },
    el("thead", {}, el("tr", {}, names.map((n) => el("th", { scope: "col", text: n })))), el("tbody", {}, body)));
}
