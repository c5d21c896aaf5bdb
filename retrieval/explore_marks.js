// Marks on the image that is chosen: wrong label (and the right one), duplicate, no class. By key or button; kept by the browser; saved as a table.
const PROBLEMS = { w: "wrong label", d: "duplicate", n: "no class" };
const marking = content.marks;  // null without paths, by which the table names images
const marks = new Map();  // image -> [problem, right label, empty if none]
const changes = [];  // of the marks, for undo: [image, its mark before]
const copies = new Map();  // path -> number of images: boxes of one file share its path
if (marking) content.paths.forEach(path => copies.set(path, (copies.get(path) || 0) + 1));
const isNamed = marking && marking.classes !== null;
const textOf = mark => mark ? mark[1] ? `${mark[0]} → ${mark[1]}` : mark[0] : "";
const labelOf = i => isNamed && labels[i] !== content.classless ? nameOf(i) : "";

// The browser's storage, which pages that are files may lack.
const STORE = marking && `explorer-marks:${marking.id}`;
let stores = marking !== null, isSaved = true;
function restore() {
  let text = null;
  try {
    localStorage.setItem("explorer-marks", "");
    localStorage.removeItem("explorer-marks");
    text = localStorage.getItem(STORE);
  } catch { stores = false; }
  let entries = [];
  try { entries = JSON.parse(text) || []; } catch { /* not written by this page */ }
  for (const [i, problem, right] of entries)
    if (i >= 0 && i < N && Object.values(PROBLEMS).includes(problem)) marks.set(i, [problem, rightLabel(right) || ""]);
}
function store() {
  if (!stores) return;
  try {
    if (marks.size) localStorage.setItem(STORE, JSON.stringify([...marks].map(([i, mark]) => [i, ...mark])));
    else localStorage.removeItem(STORE);
  } catch { stores = false; }
}

// The class of this name, in another case if none has it as it is written.
function rightLabel(text) {
  if (!isNamed || !text) return undefined;
  const name = text.trim().toLowerCase();
  return marking.classes.includes(text) ? text : marking.classes.find(other => other.trim().toLowerCase() === name);
}
function put(i, mark) {
  if (mark) marks.set(i, mark); else marks.delete(i);
  isSaved = false;
  store();
  document.querySelectorAll(`.tile[data-image="${i}"]`).forEach(showMark);
  showMarks();
  listMarks();
}
// Marks the chosen image, or takes the same mark away.
function mark(problem, right = "") {
  const i = state.query;
  if (!marking || i < 0) return;
  if (copies.get(content.paths[i]) > 1) return showMarks("Several images here are boxes of this file: it cannot be marked.");
  if (right && right === labelOf(i)) return showMarks(`It is of class ${right} already.`);
  const before = marks.get(i);
  changes.push([i, before]);
  put(i, textOf(before) === textOf([problem, right]) ? undefined : [problem, right]);
}
function undo() {
  const change = changes.pop();
  if (!change) return showMarks("Nothing to undo.");
  put(...change);
  choose(change[0]);
}
function takeRightLabel() {
  const text = $("right-label").value, name = rightLabel(text);
  if (!text && textOf(marks.get(state.query)).includes("→")) mark(PROBLEMS.w);
  else if (text && name === undefined) return showMarks(`There is no class ${text}.`);
  else if (text && textOf(marks.get(state.query)) !== textOf([PROBLEMS.w, name])) mark(PROBLEMS.w, name);
  $("right-label").blur();
}
function step(by) {
  const at = sorted.indexOf(state.query), next = sorted[at < 0 ? 0 : at + by];
  if (next !== undefined) choose(next);
}

function showMark(tile) {
  const text = textOf(marks.get(+tile.dataset.image)), badge = tile.querySelector(".badge");
  tile.classList.toggle("marked", text !== "");
  if (badge) badge.remove();
  if (text) tile.append(make("div", text, "badge"));
}
// Shows the mark of the chosen image, and why something that was asked for is not done.
function showMarks(refusal = "") {
  if (!marking) return;
  const of = marks.get(state.query);
  document.querySelectorAll("#marking [data-key]").forEach(button => button.setAttribute("aria-pressed", String(of !== undefined && of[0] === PROBLEMS[button.dataset.key])));
  $("right-label").value = of ? of[1] : "";
  $("mark-status").textContent = refusal || (of ? `Marked: ${textOf(of)}.` : "");
}
// Shows all marks: their numbers, and the images.
function listMarks() {
  if (!marking) return;
  const counts = Object.values(PROBLEMS).map(problem => [problem, [...marks.values()].filter(other => other[0] === problem).length]);
  const parts = counts.filter(([, count]) => count).map(([problem, count]) => `${count.toLocaleString("en")} ${problem}`);
  const saved = isSaved ? "" : " Not saved since the last change.";
  $("marks").textContent = marks.size ? `${marks.size.toLocaleString("en")} marked: ${parts.join(", ")}.${saved}` : "No image is marked.";
  $("save").disabled = !marks.size;
  $("marked").replaceChildren(...[...marks.keys()].sort((a, b) => a - b).map(i => tile(i, make("div", nameOf(i)))));
}
// The classes that may be right: those of the neighbours first.
function showClasses() {
  if (!isNamed) return;
  const near = [...neighbours.subarray(state.query * K, (state.query + 1) * K)].filter(i => i !== NONE).map(labelOf);
  const names = new Set([...near, ...marking.classes.slice(0, 2000)]);
  $("right-labels").replaceChildren(...[...names].filter(name => name && name !== labelOf(state.query)).map(name => { const option = make("option"); option.value = name; return option; }));
}

// A spreadsheet computes what begins so: an apostrophe before it, which `--dataset_fixes` removes.
const COMPUTED = /^'*[=+\-@\t\r\n＝＋－＠]/;
const cell = text => `"${(COMPUTED.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
const pathInTable = i => marking.root !== null && content.paths[i].startsWith(`${marking.root}/`) ? content.paths[i].slice(marking.root.length + 1) : content.paths[i];
// The corrections that the data have already, and the marks, which replace them.
function table() {
  const rows = new Map(marking.fixes.map(([path, ...fix]) => [path, fix]));
  for (const i of [...marks.keys()].sort((a, b) => a - b)) {
    const path = pathInTable(i), [problem, right] = marks.get(i), before = rows.get(path), label = before ? before[1] : labelOf(i);
    if (right && right === label) rows.delete(path);
    else rows.set(path, [problem, label, right]);
  }
  return [["path", "problem", "label", "right_label"], ...[...rows].map(([path, fix]) => [path, ...fix])].map(row => `${row.map(cell).join(",")}\n`).join("");
}
function save() {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([table()], { type: "text/csv;charset=utf-8" }));
  link.download = "fixes.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  isSaved = true;
  listMarks();
}

const ACTIONS = { u: undo, j: () => step(1), k: () => step(-1), r: () => isNamed && $("right-label").focus() };
document.addEventListener("keydown", event => {
  const key = event.key.toLowerCase(), problem = PROBLEMS[key];
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select")) return;
  if (!problem && !ACTIONS[key]) return;
  event.preventDefault();
  if (problem && !event.repeat) mark(problem);
  else if (ACTIONS[key]) ACTIONS[key]();
});
$("right-label").addEventListener("change", takeRightLabel);
$("right-label").addEventListener("keydown", event => { if (event.key === "Escape") { showMarks(); event.target.blur(); } });
document.querySelectorAll("#marking [data-key]").forEach(button => button.addEventListener("click", () => mark(PROBLEMS[button.dataset.key])));
for (const [id, key] of [["undo", "u"], ["next", "j"], ["previous", "k"]]) $(id).addEventListener("click", ACTIONS[key]);
$("save").addEventListener("click", save);
window.addEventListener("beforeunload", event => { if (!stores && !isSaved && marks.size) event.preventDefault(); });
if (marking) {
  restore();
  $("right-part").hidden = !isNamed;
  const sentences = ["Training with --dataset folder or csv and --dataset_fixes fixes.csv gives images their right label and leaves out the others that are marked.", stores ? "This browser keeps the marks of this page." : "This browser keeps no marks of this page: save them before it is closed."];
  if (marking.fixes.length) sentences.push(`The saved table repeats the corrections that the data have already (${marking.fixes.length.toLocaleString("en")}).`);
  $("keeping").textContent = sentences.join(" ");
} else {
  $("marking").hidden = $("save").hidden = true;
  $("marks").textContent = "Images are marked by their paths, which the file of this page does not hold.";
}
