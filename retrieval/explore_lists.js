// Neighbours of the query, queries by average precision, confusions, distances of pairs, the filter.
function tile(i, ...below) {
  const made = make("button", undefined, "tile");
  made.type = "button";
  made.dataset.image = i;
  if (content.sheets) made.append(thumbnail(make("canvas"), i));
  made.append(...below);
  showMark(made);
  made.addEventListener("click", () => { choose(i); $("query-part").scrollIntoView({ block: "nearest" }); });
  return made;
}
function choose(i) {
  state.query = i;
  $("hint").hidden = true;
  $("query").dataset.image = i;
  const about = make("div");
  about.append(make("b", nameOf(i)), make("div", `average precision ${spoken(precision[i])}`), make("div", content.paths ? content.paths[i] : `image ${i}`));
  $("query").replaceChildren(...(content.sheets ? [thumbnail(make("canvas"), i)] : []), about);
  const found = [];
  for (let j = 0; j < K; j++) {
    const other = neighbours[i * K + j];
    if (other === NONE) continue;
    const kind = kindOf(i, j), mark = make("span", MARKS[kind], "mark");
    const name = make("div", nameOf(other));
    name.prepend(mark);
    const one = tile(other, make("b", `${j + 1} · ${distances[i * K + j].toFixed(4)}`), name);
    one.classList.add(KINDS[kind]);
    one.title = `${(judged ? ["to be found", "not to be found", "junk", "not judged"] : ["same class", "another class"])[kind]}, distance ${distances[i * K + j].toFixed(6)}${content.paths ? "\n" + content.paths[other] : ""}`;
    found.push(one);
  }
  $("neighbours").replaceChildren(...found);
  showClasses();
  showMarks();
  $("colours").value === "query" ? colour() : redraw();
}

let sorted = [], listed = 0;
function sort() {
  const how = $("sort").value;
  sorted = [];
  for (let i = 0; i < N; i++) if (isKept(i) && (how === "order" || !Number.isNaN(precision[i]))) sorted.push(i);
  if (how !== "order") sorted.sort((a, b) => (how === "worst" ? 1 : -1) * (precision[a] - precision[b]) || a - b);
  listed = 0;
  $("worst").replaceChildren();
  moreQueries();
}
function moreQueries() {
  const next = sorted.slice(listed, listed + 48);
  listed += next.length;
  $("worst").append(...next.map(i => tile(i, make("b", Number.isNaN(precision[i]) ? "–" : precision[i].toFixed(3)), make("div", nameOf(i)))));
  $("more").hidden = listed >= sorted.length;
}

let rows = 0;
function moreConfusions() {
  const next = content.confusions.slice(rows, rows + 50);
  rows += next.length;
  $("confusions").append(...next.map(([a, b, count, share]) => {
    const row = make("tr");
    row.tabIndex = 0;
    row.append(make("td", content.classes[a]), make("td", content.classes[b]), make("td", count.toLocaleString("en")), make("td", `${(100 * share).toFixed(0)} %`));
    const show = () => { keep(new Set([a, b]), `${content.classes[a]} and ${content.classes[b]}`); $("map-part").scrollIntoView({ block: "start" }); };
    row.addEventListener("click", show);
    row.addEventListener("keydown", event => { if (event.key === "Enter") show(); });
    return row;
  }));
  if (!rows) { const cell = make("td", "none: every image's nearest is of its class"); cell.colSpan = 4; $("confusions").append(make("tr")); $("confusions").lastChild.append(cell); }
  $("more-confusions").hidden = rows >= content.confusions.length;
}

function keep(classes, words) {
  state.kept = classes;
  let count = 0;
  for (let i = 0; i < N; i++) count += isKept(i);
  $("filtered").replaceChildren();
  if (classes !== null) {
    const all = make("button", "show all");
    all.type = "button";
    all.addEventListener("click", () => { $("filter").value = ""; keep(null); });
    $("filtered").append(`${words}: ${count.toLocaleString("en")} images of ${classes.size.toLocaleString("en")} classes. `, all);
  }
  sort();
  colour();
}
function filter() {
  const text = $("filter").value.trim().toLowerCase();
  if (!text) return keep(null);
  const exact = content.classes.map((name, c) => [name.toLowerCase(), c]).filter(([name]) => name === text);
  const found = exact.length ? exact : content.classes.map((name, c) => [name.toLowerCase(), c]).filter(([name]) => name.includes(text));
  keep(new Set(found.map(([, c]) => c)), `“${text}”`);
}

const drawn = (kind, about, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  Object.entries(about).forEach(([key, value]) => made.setAttribute(key, value));
  if (text !== undefined) made.textContent = text;
  return made;
};
function histogram() {
  const { same, different, most, thresholds } = content.histogram, width = Math.max(280, $("histogram").clientWidth), height = 210, floor = height - 24, bar = width / same.length;
  const top = Math.max(...same, ...different, 1e-9), svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "histograms of the distances of pairs of one class and of two" });
  for (const [shares, fill] of [[same, "#2a9d3a"], [different, "#d03030"]])
    svg.append(...shares.map((share, k) => drawn("rect", { x: k * bar, y: floor - share / top * (floor - 16), width: bar, height: share / top * (floor - 16), fill, opacity: 0.5 })));
  for (let k = 0; k <= 4; k++) svg.append(drawn("text", { x: k * width / 4, y: height - 8, "text-anchor": ["start", "middle", "middle", "middle", "end"][k] }, (k * most / 4).toPrecision(3)));
  svg.append(drawn("text", { x: 4, y: 12, style: "fill:#1f7a2c" }, "pairs of one class"), drawn("text", { x: width - 4, y: 12, "text-anchor": "end", style: "fill:#c22a2a" }, "pairs of two classes"));
  const chosen = thresholds[$("rate").value];
  if (chosen && chosen.distance <= most) {
    const place = chosen.distance / most * width;
    svg.append(drawn("line", { x1: place, x2: place, y1: 16, y2: floor, stroke: "#000", "stroke-width": 1.5, "stroke-dasharray": "4 3" }));
  }
  $("histogram").replaceChildren(svg);
  $("threshold").textContent = !chosen ? "Without pairs of both kinds there is no threshold."
    : `fnmr@${chosen.fmr}: ${chosen.fnmr.toFixed(4)}. Images nearer than ${chosen.distance.toFixed(4)} count as one class: at most ${100 * chosen.fmr} % of the pairs of two classes do, and ${(100 * chosen.fnmr).toFixed(2)} % of the pairs of one class do not.`;
}

const head = [`${N.toLocaleString("en")} images of ${content.classes.length.toLocaleString("en")} classes, ${content.dimensions} dimensions, Euclidean distances`];
if (content.meanPrecision !== null) head.push(`mean average precision ${content.meanPrecision.toFixed(4)} (of the first R neighbours, R those of the class: map_r)`);
document.querySelector("h1").textContent = content.title;
$("about").textContent = head.join("; ") + ".";
$("notes").append(...content.notes.map(note => make("li", note)));
$("class-names").append(...content.classes.slice(0, 2000).map(name => { const one = make("option"); one.value = name; return one; }));
$("pairs").textContent = `Shares of the pairs of one class (${content.histogram.counts[0].toLocaleString("en")}) and of two (${content.histogram.counts[1].toLocaleString("en")}): ${content.histogram.pairs}.`;
$("rate").append(...content.histogram.thresholds.map(({ fmr }, k) => { const one = make("option", fmr); one.value = k; return one; }));
$("rate").addEventListener("change", histogram);
new ResizeObserver(histogram).observe($("histogram"));
$("sort").addEventListener("change", sort);
$("filter").addEventListener("input", filter);
$("more").addEventListener("click", moreQueries);
$("more-confusions").addEventListener("click", moreConfusions);
colour(); whole(); sort(); moreConfusions(); histogram(); listMarks();
if (sorted.length) choose(sorted[0]);  // the worst query
