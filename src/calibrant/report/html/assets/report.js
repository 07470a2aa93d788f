/* The audit page comes alive: tables that sort and filter, and the point on the risk-coverage curve.
   Numbers are looked up and formatted, never computed. Texts reach the page as text, never as markup. */
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const DASH = "–", NBSP = "\u00a0";

  /* --- the twins of calibrant/_numbers.py --- */

  const absent = (v) => v === null || v === undefined || Number.isNaN(v);
  const exponentOf = (size) => Number(size.toExponential().split("e")[1]);
  /* A half is rounded up, also where it is binary's 57.00499999999999. */
  const rounded = (size, decimals) => (decimals <= 6 ? size + 1e-11 : size).toFixed(decimals);

  function decimalsOf(value, unit) {
    const size = Math.abs(value);
    if (!(size < 1e15)) return null;
    let [decimals, least, whole] = unit === "share" ? [2, 0.1, 100] : [4, 0.00005, 1];
    if (size > 0 && size < least) {
      const exponent = exponentOf(size);
      return exponent >= -6 ? 1 - exponent : null;
    }
    while (size < whole && decimals < 15 && Number(rounded(size, decimals)) >= whole) decimals += 1;
    return decimals;
  }

  function fixed(value, decimals) {
    const size = Math.abs(value);
    let text;
    if (decimals !== null && size < 1e15) {
      const [whole, rest] = rounded(size, decimals).split(".");
      text = whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest ? "." + rest : "");
    } else if (size === 0) {
      text = "0";
    } else {
      const [digits, power] = size.toExponential(1).split("e");
      const raised = String(Number(power)).replace(/[-0-9]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));
      text = digits + NBSP + "×" + NBSP + "10" + raised;
    }
    return (value < 0 && /[1-9]/.test(text) ? "−" : "") + text;
  }

  const threshold = (v) => (absent(v) ? DASH : fixed(v, decimalsOf(v, "threshold")));
  const percent = (v) => (absent(v) ? DASH : fixed(v * 100, decimalsOf(v * 100, "share")) + "%");
  const count = (v) => (absent(v) ? DASH : String(v).replace(/\B(?=(\d{3})+$)/g, ","));

  function span(low, high, like) {
    if (absent(low) && absent(high)) return "";
    const shape = [like, high, low].find((v) => !absent(v));
    const decimals = decimalsOf(shape * 100, "share");
    const end = (v) => (absent(v) ? DASH : fixed(v * 100, decimals) + "%");
    return "[" + end(low) + "," + NBSP + end(high) + "]";
  }

  /* --- tables --- */

  const order = new Intl.Collator(undefined, { numeric: true });

  function keyOf(cell, kind) {
    if (kind === "num") return cell.hasAttribute("data-v") ? Number(cell.dataset.v) : null;
    const named = cell.querySelector("bdi");
    return named ? named.textContent : null;
  }

  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null); /* what is not known comes last, both ways */
    return sign * (typeof a === "number" ? a - b : order.compare(a, b));
  }

  function arrange(table, tools) {
    const body = table.tBodies[0];
    let rows = Array.from(body.rows);
    const first = rows.slice();
    let all = tools === null, wanted = "";

    function show() {
      const limit = all ? Infinity : Number(tools.dataset.shown);
      let matching = 0, shown = 0;
      for (const row of rows) {
        const fits = !wanted || row.cells[0].textContent.toLowerCase().includes(wanted);
        if (fits) matching += 1;
        row.hidden = !fits || shown >= limit;
        if (!row.hidden) shown += 1;
      }
      body.append(...rows);
      if (!tools) return;
      const noun = tools.dataset.noun;
      tools.querySelector(".status").textContent = wanted && !matching
        ? `No ${tools.dataset.one} matches`
        : wanted
        ? `${count(shown)} of ${count(matching)} matching ${noun} shown`
        : tools.dataset.total && rows === first
        ? `The ${count(shown)} most confident of ${count(tools.dataset.total)} ${noun} are shown`
        : tools.dataset.total
        ? `${count(shown)} of the ${count(rows.length)} most confident ${noun} are shown`
        : `${count(shown)} of ${count(rows.length)} ${noun} shown`;
    }

    function sort(head, column) {
      const kind = head.dataset.sort;
      const before = head.getAttribute("aria-sort");
      /* One way, the other way, and back to the order the page came with; of numbers the largest first. */
      const ways = kind === "text" ? ["ascending", "descending"] : ["descending", "ascending"];
      const way = before === null ? ways[0] : before === ways[0] ? ways[1] : null;
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      rows = first;
      if (way) {
        head.setAttribute("aria-sort", way);
        const keyed = first.map((row) => [keyOf(row.cells[column], kind), row]);
        rows = keyed.sort((a, b) => compare(a[0], b[0], way === "ascending" ? 1 : -1)).map((pair) => pair[1]);
      }
      show();
    }

    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(head, column));
    });

    if (tools) {
      const more = tools.querySelector("button"), find = tools.querySelector("input"), label = more.textContent;
      more.addEventListener("click", () => {
        all = !all;
        more.textContent = all ? `Show ${tools.dataset.shown}` : label;
        show();
      });
      if (find) find.addEventListener("input", () => { wanted = find.value.trim().toLowerCase(); show(); });
      tools.hidden = false;
      show();
    }
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    arrange(table, document.querySelector(`.tools[data-table="${table.id}"]`));
  }

  /* A name that was cut is shown whole on a click, for those who cannot point without one. */
  document.addEventListener("click", (event) => {
    const name = event.target.closest(".clip");
    if (name) name.classList.toggle("whole");
  });

  /* A box that does not scroll needs no stop of the keyboard. */
  function stops() {
    for (const box of document.querySelectorAll(".scroll")) {
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }
  stops();
  addEventListener("resize", stops);
  document.addEventListener("toggle", stops, true);

  /* --- the point on the curve --- */

  function explore() {
    const { chosen, curves } = JSON.parse($("rc-data").textContent);
    const figure = $("explorer"), chart = $("risk-chart"), marker = chart.querySelector(".marker");
    const slider = $("rc-slider"), select = $("rc-curve"), by = $("rc-by"), typed = $("rc-number");
    const box = chart.viewBox.baseVal;
    const [left, right, top, bottom, most] =
      ["left", "right", "top", "bottom", "most"].map((side) => Number(marker.dataset[side]));
    let [k, at] = chosen;

    const say = (key, text) => { $("rc-out").querySelector(`[data-o="${key}"]`).textContent = text; };

    function draw() {
      const c = curves[k];
      const x = left + c.coverage[at] * (box.width - left - right);
      const foot = box.height - bottom;
      const y = foot - Math.min(1, (c.risk[at] || 0) / most) * (foot - top);
      const dot = marker.querySelector("circle"), guide = marker.querySelector("line");
      dot.setAttribute("cx", x.toFixed(1));
      dot.setAttribute("cy", y.toFixed(1));
      guide.setAttribute("x1", x.toFixed(1));
      guide.setAttribute("x2", x.toFixed(1));
      say("score", c.label);
      say("threshold", threshold(c.threshold[at]));
      say("exact", absent(c.threshold[at]) ? DASH : "exactly " + c.threshold[at]);
      say("coverage", percent(c.coverage[at]));
      say("risk", percent(c.risk[at]) + " " + span(c.low[at], c.high[at], c.risk[at]));
      say("accepted", count(c.accepted[at]));
      say("errors", count(c.errors[at]));
      slider.value = at;
      slider.setAttribute("aria-valuetext", `coverage ${percent(c.coverage[at])}, risk ${percent(c.risk[at])}`);
    }

    /* The number box follows the point, except while somebody types into it. */
    function fill() {
      const value = curves[k][by.value][at];
      const scaled = by.value === "threshold" ? value : value * 100;
      typed.value = absent(value) ? "" : String(Number(scaled.toPrecision(by.value === "threshold" ? 6 : 4)));
    }

    function move(to, words) {
      at = Math.max(0, Math.min(curves[k].coverage.length - 1, to));
      $("rc-status").textContent = words || "";
      draw();
      if (!words) fill();
    }

    const nearest = (values, wanted) =>
      values.reduce((best, v, i) => (Math.abs(v - wanted) < Math.abs(values[best] - wanted) ? i : best), 0);

    /* The largest coverage for which a condition holds, -1 if there is none. */
    const last = (values, holds) => values.reduce((found, v, i) => (!absent(v) && holds(v) ? i : found), -1);

    /* A typed percentage as a share, rounded once: 0.3 / 100 is not quite 0.003. */
    const share = (words) => (/e/i.test(words) ? Number(words) / 100 : Number(words + "e-2"));

    /* Of a curve that holds every threshold the answer is exact; of a thinned one it is that of the points kept. */
    function search() {
      const c = curves[k], value = typed.valueAsNumber;
      if (Number.isNaN(value)) return;
      if (by.value !== "threshold" && !(value >= 0 && value <= 100)) {
        $("rc-status").textContent = `A ${by.value} lies between 0% and 100%.`;
        return;
      }
      const there = (i) => `coverage ${percent(c.coverage[i])}, risk ${percent(c.risk[i])}`;
      const point = c.all ? "point" : "kept point";
      if (by.value === "coverage") {
        const i = nearest(c.coverage, share(typed.value));
        move(i, `Nearest ${point}: ${there(i)}.`);
      } else if (by.value === "threshold") {
        const i = last(c.threshold, (t) => t >= value);
        const exact = c.all || c.threshold[i] === value;
        move(i, i < 0 ? `No ${point} has a threshold that high; this is the highest.`
          : exact ? `Scores of at least ${typed.value}: ${there(i)}.`
          : `Nearest kept point with a threshold of at least ${typed.value}: ${threshold(c.threshold[i])}, ${there(i)}.`);
      } else {
        const i = last(c.risk, (r) => r <= share(typed.value));
        const lowest = c.risk.reduce((best, r, j) => (!absent(r) && !(r >= (c.risk[best] ?? Infinity)) ? j : best), 0);
        move(i < 0 ? lowest : i, i < 0 ? `No ${point} has a risk that low; this is the lowest.`
          : `Largest coverage${c.all ? "" : " among the points kept"} with a risk of at most ${typed.value}%: ` +
            `${percent(c.coverage[i])}.`);
      }
    }

    function choose(to) {
      const coverage = curves[k].coverage[at];
      k = to;
      slider.max = curves[k].coverage.length - 1;
      for (const path of chart.querySelectorAll("[data-k]")) path.classList.toggle("on", Number(path.dataset.k) === k);
      move(nearest(curves[k].coverage, coverage));
    }

    function point(event) {
      const frame = chart.getBoundingClientRect();
      const x = ((event.clientX - frame.left) / frame.width) * box.width;
      move(nearest(curves[k].coverage, (x - left) / (box.width - left - right)));
    }

    slider.addEventListener("input", () => move(Number(slider.value)));
    typed.addEventListener("input", search);
    by.addEventListener("change", () => { $("rc-status").textContent = ""; fill(); });
    if (select) select.addEventListener("change", () => choose(Number(select.value)));
    chart.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      chart.setPointerCapture(event.pointerId);
      point(event);
    });
    chart.addEventListener("pointermove", (event) => { if (event.buttons & 1) point(event); });

    for (const controls of figure.querySelectorAll(".controls")) controls.hidden = false;
    figure.classList.add("live");
    choose(select ? Number(select.value) : k); /* a browser may remember what was selected before a reload */
    if (!select || Number(select.value) === chosen[0]) move(chosen[1]);
  }

  if ($("rc-data")) explore();

  /* --- commands --- */

  for (const copy of document.querySelectorAll("button.copy")) {
    const text = copy.previousElementSibling;
    const choose = () => { getSelection().selectAllChildren(text); };
    const done = () => { copy.textContent = "Copied"; setTimeout(() => { copy.textContent = "Copy"; }, 1500); };
    copy.hidden = false;
    copy.addEventListener("click", () => {
      if (!navigator.clipboard) choose();
      else navigator.clipboard.writeText(text.textContent).then(done, choose);
    });
  }
})();
