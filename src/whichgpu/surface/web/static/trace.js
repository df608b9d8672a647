// Uploads a trace of requests, follows the job that plans for it or simulates it, and displays the page's answer to it.
import { startCourse } from "./course.js";
import { addressOf, ask, insert } from "./forms.js";
import { say, word } from "./say.js";

const OWN = { "X-Whichgpu": "1" };
let current = null; // The file and query of the job under way, and the function that cancels it.

async function asked(address, options) {
  const reply = await fetch(address, options);
  const content = await reply.json();
  if (!reply.ok && !content.html) throw new Error(content.error?.message ?? word("failed"));
  return content;
}

// Resolves when a job has ended, to its last state.
function ended(job, course) {
  return new Promise((done) => {
    const events = new EventSource(job.events);
    events.addEventListener("progress", (event) => course.set(JSON.parse(event.data).done));
    for (const state of ["done", "failed", "cancelled"]) {
      events.addEventListener(state, () => { events.close(); done(state); });
    }
  });
}

async function run(form, file) {
  const spoken = `?lang=${document.documentElement.lang}`;
  const query = addressOf(form).split("?")[1] ?? "";
  if (current?.file === file && current.query === query) return;
  current?.cancel();
  const stop = new AbortController();
  let job = null;
  const cancel = () => {
    stop.abort();
    if (job) fetch(job.url, { method: "DELETE", headers: OWN });
  };
  const own = current = { file, query, cancel };
  const course = startCourse(cancel);
  try {
    const kind = file.name.endsWith(".csv") ? "text/csv" : file.name.endsWith(".txt") ? "text/plain" : "application/x-ndjson";
    const kept = await asked(`/api/v1/uploads${spoken}`, {
      method: "POST", body: file, headers: { ...OWN, "Content-Type": kind }, signal: stop.signal,
    });
    job = await asked(`/api/v1/jobs${spoken}`, {
      method: "POST", body: JSON.stringify({ command: "page", query, trace: kept.id }),
      headers: { ...OWN, "Content-Type": "application/json" }, signal: stop.signal,
    });
    if (await ended(job, course) === "cancelled" || stop.signal.aborted) return say(word("cancelled"));
    insert((await asked(`${job.url}/result`)).html);
  } catch (problem) {
    if (stop.signal.aborted) return say(word("cancelled"));
    const card = document.createElement("section");
    card.classList.add("card", "problem");
    card.setAttribute("role", "alert");
    card.append(problem.message);
    document.querySelector("#answer").prepend(card);
  } finally {
    course.end();
    if (current === own) current = null;
  }
}

const chosen = (form) => form.querySelector("[data-trace] input[type=file]")?.files[0];

export function startTraces() {
  document.addEventListener("ask", (event) => {
    const file = chosen(event.target);
    if (!file) return;
    event.preventDefault();
    run(event.target, file);
  });
  document.addEventListener("asking", () => current?.cancel());
  document.addEventListener("change", (event) => {
    const box = event.target.closest("[data-trace]");
    if (!box) return;
    box.querySelector("[data-without]").hidden = !event.target.files.length;
    ask(box.closest("form"));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-without]");
    if (!button) return;
    const box = button.closest("[data-trace]");
    box.querySelector("input").value = "";
    box.querySelector("input").focus();
    button.hidden = true;
    ask(box.closest("form"));
  });
}
