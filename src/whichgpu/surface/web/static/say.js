// Words of the page in its own language, and the line screen readers hear.
export const word = (name) => document.querySelector("#words").content.querySelector(`[data-word="${name}"]`).textContent;

export function say(text) {
  const line = document.querySelector("#said");
  line.textContent = "";
  requestAnimationFrame(() => { line.textContent = text; });
}
