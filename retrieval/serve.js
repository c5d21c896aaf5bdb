"use strict";
// One photograph at a time: it is sent as it is, and the answer's images are fetched by the numbers of their rows.
const $ = id => document.getElementById(id);
const settings = JSON.parse($("settings").textContent);
const whole = number => number.toLocaleString("en");
let photograph = null, latest = 0;

$("about").textContent = `${whole(settings.images)} images. Photographs stay on this server and are not stored.`;
$("count").value = settings.count;
$("count").max = settings.most_count;

function report(text, isWrong) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", Boolean(isWrong));
}

function element(tag, text) {
  const created = document.createElement(tag);
  if (text !== undefined) created.textContent = text;
  return created;
}

function unknown(neighbour) {
  const figure = element("figure"), placeholder = element("div", "unknown");
  placeholder.className = "gone";
  const distance = neighbour.distance === null ? "no image" : `the nearest image at ${neighbour.distance.toFixed(4)}`;
  figure.append(placeholder, element("figcaption", distance));
  return figure;
}

function tile(neighbour) {
  if (neighbour.rank === 0) return unknown(neighbour);
  const figure = element("figure"), picture = element("img"), caption = element("figcaption");
  picture.alt = neighbour.class ?? `image of rank ${neighbour.rank}`;
  picture.loading = "lazy";
  picture.addEventListener("error", () => {
    const placeholder = element("div", "no longer there");
    placeholder.className = "gone";
    picture.replaceWith(placeholder);
  });
  picture.src = neighbour.image;
  caption.append(element("b", neighbour.rank), ` · distance ${neighbour.distance.toFixed(4)}`);
  if (neighbour.class !== undefined) caption.append(element("br"), element("b", neighbour.class));
  caption.append(element("br"), neighbour.path);
  figure.append(picture, caption);
  return figure;
}

async function search() {
  if (photograph === null) return;
  const number = ++latest;
  $("neighbours").replaceChildren();
  if (photograph.size > settings.most_bytes) {
    report(`${photograph.name}: ${whole(photograph.size)} bytes, more than ${whole(settings.most_bytes)}`, true);
    return;
  }
  report("searching …");
  let answer;
  try {
    const reply = await fetch(`/query?k=${encodeURIComponent($("count").value)}`, { method: "POST", body: photograph });
    answer = await reply.json();
  } catch {
    answer = { error: "the server does not answer" };
  }
  if (number !== latest) return;
  if (answer.error !== undefined) {
    report(answer.error, true);
    return;
  }
  const images = whole(answer.neighbours.filter(neighbour => neighbour.rank).length);
  report(`${photograph.name}: ${images} nearest images, by Euclidean distance`);
  $("neighbours").replaceChildren(...answer.neighbours.map(tile));
}

function choose(file) {
  if (!file) return;
  photograph = file;
  URL.revokeObjectURL($("photo").src);
  $("photo").src = URL.createObjectURL(file);
  $("photo").hidden = false;
  $("hint").replaceChildren(element("b", "Choose another"), " or drop it here");
  search();
}

$("photo").addEventListener("error", () => { $("photo").hidden = true; });
$("file").addEventListener("change", () => {
  choose($("file").files[0]);
  $("file").value = "";  // the same name again, perhaps of a changed file, is a choice too
});
$("count").addEventListener("change", search);
$("form").addEventListener("submit", event => { event.preventDefault(); search(); });
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, event => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") choose(event.dataTransfer.files[0]);
  });
}
