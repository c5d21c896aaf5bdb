// What the page holds, what is chosen, and the map. The lists beside it: explore_lists.js.
const $ = id => document.getElementById(id);
const content = JSON.parse($("content").textContent);
const unpacked = (text, Kind) => {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return new Kind(bytes.buffer);
};
const N = content.size, K = content.k, NONE = 2 ** 32 - 1;
const labels = unpacked(content.labels, Uint32Array), places = unpacked(content.places, Uint16Array);
const neighbours = unpacked(content.neighbours, Uint32Array), distances = unpacked(content.distances, Float32Array);
const precision = unpacked(content.precision, Float32Array);
const judged = content.judged === null ? null : unpacked(content.judged, Uint8Array);  // by lists: 0 right, 1 wrong, 2 junk, 3 not judged
const KINDS = ["right", "wrong", "junk", "junk"], MARKS = ["✓ ", "✗ ", "– ", ""], COLOURS = ["#1f7a2c", "#c22a2a", "#9a9a9a", "#9a9a9a"];
const kindOf = (i, j) => judged ? judged[i * K + j] : labels[neighbours[i * K + j]] === labels[i] ? 0 : 1;
const state = { query: -1, kept: null, scale: 1, left: 0, top: 0, hovered: -1 };  // kept: classes that are shown, null for all
const nameOf = i => content.classes[labels[i]];
const isKept = i => state.kept === null || state.kept.has(labels[i]);
const make = (kind, text, of) => { const made = document.createElement(kind); if (text !== undefined) made.textContent = text; if (of) made.className = of; return made; };
const spoken = value => Number.isNaN(value) ? judged ? "none: no query, or nothing to find" : "none: alone in its class" : value.toFixed(3);

// Thumbnails: sheets are decoded when one of their images is first asked for.
const sheets = content.sheets === null ? [] : content.sheets.images.map(() => null);
function thumbnail(canvas, i) {
  const { side, across, images } = content.sheets || { side: 1, across: 1, images: [] };
  const of = Math.floor(i / across ** 2), rest = i % across ** 2;
  canvas.width = canvas.height = Math.max(side, 32);
  canvas.dataset.image = i;
  if (!images.length) return canvas;
  if (sheets[of] === null) { sheets[of] = new Image(); sheets[of].src = images[of]; }
  const draw = () => {
    if (+canvas.dataset.image !== i) return;  // it shows another one by now
    canvas.getContext("2d").drawImage(sheets[of], (rest % across) * side, Math.floor(rest / across) * side, side, side, 0, 0, canvas.width, canvas.height);
  };
  if (sheets[of].complete) draw(); else sheets[of].addEventListener("load", draw, { once: true });
  return canvas;
}

// Colours: hues by the golden angle, so that the next class is far away; three strengths. [red, green, blue] from 0 to 255.
const FEW = ["1f77b4", "ff7f0e", "2ca02c", "d62728", "9467bd", "8c564b", "e377c2", "17becf", "bcbd22", "111111", "1b3a8f", "e8707b"];
function hue(code, count) {
  if (count <= FEW.length) return [0, 2, 4].map(at => parseInt(FEW[code].slice(at, at + 2), 16));
  const angle = (code * 137.508) % 360, light = [0.45, 0.58, 0.35][Math.floor(code / 3) % 3], reach = [0.75, 0.6, 0.85][code % 3] * Math.min(light, 1 - light);
  return [0, 8, 4].map(n => { const k = (n + angle / 30) % 12; return Math.round(255 * (light - reach * Math.max(-1, Math.min(k - 3, 9 - k, 1)))); });
}
const GREY = [217, 221, 226], littleEndian = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;
const pixel = ([red, green, blue]) => (littleEndian ? 0xff000000 | blue << 16 | green << 8 | red : red << 24 | green << 16 | blue << 8 | 0xff) >>> 0;
const QUIET = pixel([178, 188, 200]), LISTED = 60;
let colours;
// What the colours tell apart: [names, code of each class, codes in order]. By class or super-class of what is shown, or by the query's class and those near it.
function groups() {
  const how = $("colours").value, names = how === "super" ? content.supers : content.classes;
  const codeOf = how === "super" ? content.superOf : content.classes.map((_, label) => label);
  if (how === "query") {
    const near = state.query < 0 ? [] : [state.query, ...neighbours.subarray(state.query * K, (state.query + 1) * K)].filter(i => i !== NONE);
    return [names, codeOf, [...new Set(near.map(i => labels[i]))].slice(0, FEW.length)];
  }
  const shown = state.kept === null ? codeOf : [...state.kept].map(label => codeOf[label]);
  return [names, codeOf, [...new Set(shown)].sort((a, b) => a - b)];
}
function colour() {
  const [names, codeOf, codes] = groups(), hues = new Map(codes.map((code, place) => [code, hue(place, codes.length)]));
  const palette = codeOf.map(code => hues.has(code) ? pixel(hues.get(code)) : QUIET);
  colours = Uint32Array.from(labels, label => palette[label]);
  const legend = codes.slice(0, LISTED).map(code => {
    const one = make("button", names[code]);
    one.type = "button";
    one.style.setProperty("--colour", `rgb(${hues.get(code)})`);
    one.addEventListener("click", () => keep(new Set(codeOf.flatMap((of, label) => of === code ? [label] : [])), names[code]));
    return one;
  });
  if (codes.length > LISTED) legend.push(make("i", `and ${(codes.length - LISTED).toLocaleString("en")} more: search a class above`));
  if (!codes.length) legend.push(make("i", "A click on an image colours its class and those of its neighbours."));
  $("legend").replaceChildren(...legend);
  redraw();
}

// The map: its pixels are set here, image by image, which takes milliseconds for 60,000; at most once a refresh of the screen.
const map = $("map"), pen = map.getContext("2d");
let waiting = false;
const redraw = () => { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); } };
const MARGIN = 14;
let [right, bottom] = [1, 1];
for (let i = 0; i < N; i++) { right = Math.max(right, places[2 * i]); bottom = Math.max(bottom, places[2 * i + 1]); }
// Pixels a unit of the places: each direction fills the canvas.
const across = () => (map.clientWidth - 2 * MARGIN) / right * state.scale, down = () => (map.clientHeight - 2 * MARGIN) / bottom * state.scale;
const x = i => state.left + places[2 * i] * across();
const y = i => state.top + places[2 * i + 1] * down();
function whole() {
  Object.assign(state, { scale: 1, left: MARGIN, top: MARGIN });
  redraw();
}
let picture = null;
function paint(side, dense) {
  if (picture === null || picture.width !== map.width || picture.height !== map.height) picture = pen.createImageData(map.width, map.height);
  const pixels = new Uint32Array(picture.data.buffer), { width, height } = picture, grey = pixel(GREY), left = state.left * dense - side / 2, top = state.top * dense - side / 2, wide = across() * dense, high = down() * dense;
  pixels.fill(0);
  for (const shown of state.kept === null ? [true] : [false, true])
    for (let i = 0; i < N; i++) {
      if (isKept(i) !== shown) continue;
      const x = Math.round(left + places[2 * i] * wide), y = Math.round(top + places[2 * i + 1] * high);
      if (x < 0 || y < 0 || x + side > width || y + side > height) continue;
      for (let row = y; row < y + side; row++) pixels.fill(shown ? colours[i] : grey, row * width + x, row * width + x + side);
    }
  pen.putImageData(picture, 0, 0);
}
function draw() {
  const dense = window.devicePixelRatio || 1, width = map.clientWidth, height = map.clientHeight;
  if (map.width !== Math.round(width * dense) || map.height !== Math.round(height * dense)) { map.width = Math.round(width * dense); map.height = Math.round(height * dense); }
  if (!map.width || !map.height) return;  // not laid out yet: the observer of its size draws it
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  const side = Math.max(2, Math.min(7, (N > 20000 ? 2 : N > 4000 ? 3 : 4.5) * Math.sqrt(state.scale)));
  paint(Math.round(side * dense), dense);
  if (state.query < 0) return;
  for (let j = 0; j < K; j++) {
    const i = neighbours[state.query * K + j];
    if (i === NONE) continue;
    pen.strokeStyle = COLOURS[kindOf(state.query, j)];
    pen.lineWidth = 1.2;
    pen.beginPath(); pen.moveTo(x(state.query), y(state.query)); pen.lineTo(x(i), y(i)); pen.stroke();
    pen.beginPath(); pen.arc(x(i), y(i), side + 2, 0, 7); pen.stroke();
  }
  pen.strokeStyle = "#000"; pen.lineWidth = 2.5;
  pen.beginPath(); pen.arc(x(state.query), y(state.query), side + 5, 0, 7); pen.stroke();
}
function nearestTo(px, py, within) {
  const wide = across(), high = down();
  let found = -1, least = within ** 2;
  for (let i = 0; i < N; i++) {
    const dx = state.left + places[2 * i] * wide - px, dy = state.top + places[2 * i + 1] * high - py, square = dx * dx + dy * dy;
    if (square < least && isKept(i)) { least = square; found = i; }
  }
  return found;
}
function hover(i, px, py) {
  state.hovered = i;
  $("hover").hidden = i < 0;
  if (i < 0) return;
  $("hover").replaceChildren(...(content.sheets ? [thumbnail(make("canvas"), i)] : []), make("b", nameOf(i)), make("div", `average precision ${spoken(precision[i])}`));
  $("hover").style.left = `${Math.max(0, px + 150 > map.clientWidth ? px - 148 : px + 12)}px`;
  $("hover").style.top = `${Math.max(0, Math.min(py + 12, map.clientHeight - $("hover").offsetHeight - 4))}px`;
}
function zoom(factor, px, py) {
  const scale = Math.min(200, Math.max(0.5, state.scale * factor)), by = scale / state.scale;
  Object.assign(state, { scale, left: px - (px - state.left) * by, top: py - (py - state.top) * by });
  redraw();
}
const fingers = new Map();
let moved = 0;
const at = event => { const box = map.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
map.addEventListener("pointerdown", event => { if (!fingers.size) moved = 0; fingers.set(event.pointerId, at(event)); map.setPointerCapture(event.pointerId); });
map.addEventListener("pointermove", event => {
  const [px, py] = at(event), before = fingers.get(event.pointerId);
  if (!before) return hover(nearestTo(px, py, 14), px, py);
  const other = [...fingers].find(([id]) => id !== event.pointerId);
  moved += Math.hypot(px - before[0], py - before[1]);
  if (other) zoom(Math.hypot(px - other[1][0], py - other[1][1]) / Math.max(Math.hypot(before[0] - other[1][0], before[1] - other[1][1]), 1), ...other[1]);
  else if (moved > 4) { state.left += px - before[0]; state.top += py - before[1]; hover(-1); redraw(); }
  fingers.set(event.pointerId, [px, py]);
});
map.addEventListener("pointerup", event => {
  const alone = fingers.size === 1, [px, py] = at(event);
  fingers.delete(event.pointerId);
  const found = alone && moved <= 4 ? nearestTo(px, py, event.pointerType === "touch" ? 24 : 14) : -1;
  if (found >= 0) choose(found);
});
map.addEventListener("pointercancel", event => fingers.delete(event.pointerId));
map.addEventListener("pointerleave", () => hover(-1));
map.addEventListener("wheel", event => { event.preventDefault(); zoom(Math.exp(-event.deltaY * 0.0015), ...at(event)); }, { passive: false });
map.addEventListener("keydown", event => {
  const middle = [map.clientWidth / 2, map.clientHeight / 2], shift = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] }[event.key];
  if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.3 : 1 / 1.3, ...middle);
  else if (shift) { state.left += shift[0]; state.top += shift[1]; redraw(); }
  else return;
  event.preventDefault();
});
$("whole").addEventListener("click", whole);
$("colours").addEventListener("change", colour);
if (content.supers) { const one = make("option", "super-class"); one.value = "super"; $("colours").append(one); }
const few = names => names !== null && names.length <= FEW.length;  // more colours cannot be told apart
$("colours").value = few(content.classes) ? "class" : few(content.supers) ? "super" : "query";
new ResizeObserver(redraw).observe(map);
