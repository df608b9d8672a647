// Returns texts in the page's language, and announces a text to screen readers.
export function word(name, values = {}) {
  const found = [...document.querySelectorAll("template.words")]
    .map((words) => words.content.querySelector(`[data-word="${name}"]`)).find(Boolean);
  return found.textContent.replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
}

export function say(text) {
  const line = document.querySelector("#said");
  line.textContent = "";
  requestAnimationFrame(() => { line.textContent = text; });
}
