// Buttons that copy a command or the page's URL, and the button that prints the page.
import { say, word } from "./say.js";

async function copied(button, text) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = word("copied");
    say(word("copied"));
  } catch {
    say(word("failed"));
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}

export function startCopying() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-copy-link], [data-print]");
    if (!button) return;
    if (button.hasAttribute("data-print")) window.print();
    else if (button.hasAttribute("data-copy-link")) copied(button, location.href);
    else copied(button, document.querySelector(button.dataset.copy).textContent);
  });
}
