// KaTeX renders what pymdownx.arithmatex marks: `$...$` and blocks of ```math.
for (const element of document.querySelectorAll(".arithmatex")) {
  const source = element.textContent.trim();
  katex.render(source.slice(2, -2), element, { displayMode: source.startsWith("\\["), throwOnError: false });
}
