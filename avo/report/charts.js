// Running best over proposals, one chart per kind of score. Drawn at the pixel size that it has, again on resize.
function niceStep(span, wanted) {
  const raw = span / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 2.5, 5, 10].find((m) => m * power >= raw);
}

function drawCharts() {
  at("best").hidden = !KINDS.length;
  for (const kind of KINDS) {
    const holder = el("div", { class: "chart" });
    at("charts").append(el("figure", {}, el("figcaption", {}, "Running best, geometric mean over the workloads ", badge(kind), el("span", { class: "dim", text: ` ${UNIT}` })), holder));
    let width = 0;
    new ResizeObserver(() => {
      if (holder.clientWidth !== width && holder.clientWidth > 0) {
        width = holder.clientWidth;
        drawChart(holder, kind, width);
      }
    }).observe(holder);
  }
}

function drawChart(holder, kind, width) {
  const narrow = width < 560;
  const pad = { left: narrow ? 40 : 52, right: narrow ? 10 : 148, top: 18 };
  const plot = { w: width - pad.left - pad.right, h: narrow ? 200 : 260 };
  const strip = pad.top + plot.h + 16;
  const height = strip + 46;
  const points = DATA.running_best[kind];
  const light = DATA.speed_of_light;
  const base = SEED && SEED.score[kind];
  const last = points[points.length - 1];
  const maxK = Math.max(1, ...DATA.candidates.map((c) => c.k));
  const top = Math.max(light || 0, last.score) * 1.04;
  const x = (k) => pad.left + (plot.w * k) / maxK;
  const y = (v) => pad.top + plot.h * (1 - v / top);
  const out = svg("svg", {
    class: "plot", width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img",
    "aria-label": `Running best, ${kind}: from ${number(points[0].score)} at proposal ${points[0].k} to ${number(last.score)} ${UNIT} at proposal ${last.k}` +
      (light ? `; the speed of light is ${number(light)}` : "") + ". Left and right arrows walk the proposals, Enter shows one.",
  });
  const step = niceStep(top, narrow ? 4 : 6);
  for (let v = 0; v <= top; v += step) {
    out.append(svg("line", { class: "grid", x1: pad.left, x2: pad.left + plot.w, y1: y(v), y2: y(v) }),
      svg("text", { class: "axis", x: pad.left - 8, y: y(v) + 4, "text-anchor": "end", text: number(v, 3) }));
  }
  const stepK = Math.max(1, Math.round(niceStep(maxK, narrow ? 4 : 8)));
  for (let k = 0; k <= maxK; k += stepK) out.append(svg("text", { class: "axis", x: x(k), y: height - 8, "text-anchor": "middle", text: number(k) }));
  out.append(svg("text", { class: "axis", x: pad.left + plot.w + (narrow ? 0 : 24), y: narrow ? height + 8 : height - 8, "text-anchor": narrow ? "end" : "start", text: narrow ? "" : "proposal" }));

  // every candidate: those with a score where it is, failures as marks on a strip below the axis
  const tight = plot.w / maxK < 7;
  const dots = svg("g", { class: "dots" });
  const marks = svg("g", { class: "strip" });
  for (const c of DATA.candidates) {
    const score = c.score[kind];
    const outcome = outcomeOf(c);
    if (failed(c)) {
      marks.append(tight
        ? svg("rect", { class: `o-${outcome}`, x: x(c.k) - 0.75, y: strip - 5, width: 1.5, height: 10 })
        : svg("path", { class: `o-${outcome}`, d: OUTCOME.get(outcome).shape, transform: `translate(${x(c.k)} ${strip}) scale(.72)` }));
    } else if (score && c.outcome === "passed") {
      dots.append(svg("circle", { class: "o-passed", cx: x(c.k), cy: y(score), r: tight ? 1.6 : 2.6 }));
    }
  }
  let path = `M${x(points[0].k)} ${y(points[0].score)}`;
  for (const p of points.slice(1)) path += `H${x(p.k)}V${y(p.score)}`;
  path += `H${x(maxK)}`;
  const line = (v, name, className, note) => {
    out.append(svg("line", { class: className, x1: pad.left, x2: pad.left + plot.w, y1: y(v), y2: y(v) }));
    // a label that would touch the best's moves away from it
    const away = Math.abs(y(v) - y(last.score)) < 16 ? y(last.score) + (v > last.score ? -16 : 16) : y(v);
    const side = narrow ? { x: pad.left + plot.w - 2, y: y(v) - 5, "text-anchor": "end" } : { x: pad.left + plot.w + 12, y: away + 4 };
    out.append(svg("text", { class: `tag ${className}`, ...side, text: `${name} ${note}` }));
  };
  out.append(dots);
  if (light) line(light, "speed of light", "light", number(light));
  if (base) line(base, "seed", "seed", number(base));
  out.append(svg("path", { class: "best", d: path }));
  if (!narrow) {
    out.append(svg("text", { class: "tag best-tag", x: pad.left + plot.w + 12, y: y(last.score) + 4, text: `best ${number(last.score)}${light ? ` (${percent(last.score / light)})` : ""}` }));
  }
  for (const commit of DATA.commits) {
    if (commit.kind === kind) out.append(svg("path", { class: "o-committed", d: OUTCOME.get("committed").shape, transform: `translate(${x(commit.k)} ${y(commit.score)})` }));
  }
  out.append(svg("line", { class: "rule", x1: pad.left, x2: pad.left + plot.w, y1: pad.top + plot.h, y2: pad.top + plot.h }));
  out.append(marks, svg("text", { class: "axis", x: pad.left - 8, y: strip + 4, "text-anchor": "end", text: marks.childElementCount ? (narrow ? "fail" : "failed") : "" }));

  const cursor = svg("line", { class: "cursor", y1: pad.top, y2: strip + 8, visibility: "hidden" });
  out.append(cursor);
  const tip = el("div", { class: "tip", hidden: true, role: "status" });
  let current = null;
  const show = (c) => {
    current = c;
    if (!c) {
      tip.hidden = true;
      cursor.setAttribute("visibility", "hidden");
      return;
    }
    cursor.setAttribute("x1", x(c.k));
    cursor.setAttribute("x2", x(c.k));
    cursor.setAttribute("visibility", "visible");
    tip.replaceChildren(el("div", {}, mark(outcomeOf(c)), el("b", { class: "mono", text: c.id }), ` proposal ${c.k}`),
      el("div", { text: verdict(c, kind) }),
      c.change ? el("div", { class: "mono dim", text: c.change }) : "");
    tip.hidden = false;
    const left = x(c.k) > width / 2;
    tip.style.left = left ? "auto" : `${x(c.k) + 12}px`;
    tip.style.right = left ? `${width - x(c.k) + 12}px` : "auto";
  };
  const nearest = (px) => {
    const k = ((px - pad.left) / plot.w) * maxK;
    return DATA.candidates.reduce((a, b) => (Math.abs(b.k - k) < Math.abs(a.k - k) ? b : a));
  };
  const where = (event) => event.clientX - out.getBoundingClientRect().left;
  out.addEventListener("pointermove", (event) => show(nearest(where(event))));
  out.addEventListener("pointerleave", () => show(null));
  out.addEventListener("blur", () => show(null));
  out.addEventListener("click", (event) => select(nearest(where(event)), { reveal: true, jump: true }));
  out.addEventListener("keydown", (event) => {
    const index = current ? DATA.candidates.indexOf(current) : -1;
    const next = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: DATA.candidates.length - 1 }[event.key];
    if (next !== undefined) show(DATA.candidates[Math.max(0, Math.min(DATA.candidates.length - 1, next))]);
    else if (event.key === "Enter" && current) select(current, { reveal: true, jump: true });
    else if (event.key === "Escape") show(null);
    else return;
    event.preventDefault();
  });
  holder.replaceChildren(out, tip);
}
