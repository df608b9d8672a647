// Displays the progress of a long computation above the answer, with a button that cancels it.
import { say, word } from "./say.js";

const POLL = 500; // milliseconds between two questions how much is done

export function startCourse(cancel) {
  const box = document.createElement("div");
  const bar = document.createElement("progress");
  const share = document.createElement("span");
  const button = document.createElement("button");
  box.classList.add("course", "card");
  bar.max = 1;
  bar.setAttribute("aria-label", word("working"));
  share.textContent = word("working");
  Object.assign(button, { type: "button", className: "quiet", textContent: word("cancel"), onclick: cancel });
  box.append(share, bar, button);
  document.querySelector("#answer").prepend(box);
  say(word("working"));
  return {
    set(done) {
      if (typeof done !== "number") return;
      bar.value = done;
      share.textContent = `${word("working")}: ${Math.round(100 * done)}%`;
    },
    end: () => box.remove(),
  };
}

// Follows the computation of a page's answer; returns a function that ends it.
export function followPage(address, cancel) {
  const course = startCourse(cancel);
  const [path, query = ""] = address.split("?");
  const timer = setInterval(async () => {
    const reply = await fetch(`${path}.progress?${query}`).catch(() => null);
    if (reply?.ok) course.set((await reply.json()).done);
  }, POLL);
  return () => {
    clearInterval(timer);
    course.end();
  };
}
