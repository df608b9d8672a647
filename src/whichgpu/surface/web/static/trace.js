// Uploads a trace of requests, follows the job that plans for it or simulates it, and displays the page's answer to it.
import { startCourse } from "./course.js";
import { addressOf, insert } from "./forms.js";
import { say, word } from "./say.js";

const OWN = { "X-Whichgpu": "1" };

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
  const stop = new AbortController();
  let job = null;
  const course = startCourse(() => {
    stop.abort();
    if (job) fetch(job.url, { method: "DELETE", headers: OWN });
  });
  try {
    const kind = file.name.endsWith(".csv") ? "text/csv" : file.name.endsWith(".txt") ? "text/plain" : "application/x-ndjson";
    const kept = await asked(`/api/v1/uploads${spoken}`, {
      method: "POST", body: file, headers: { ...OWN, "Content-Type": kind }, signal: stop.signal,
    });
    job = await asked(`/api/v1/jobs${spoken}`, {
      method: "POST", body: JSON.stringify({ command: "page", query, trace: kept.id }),
      headers: { ...OWN, "Content-Type": "application/json" }, signal: stop.signal,
    });
    if (await ended(job, course) === "cancelled") return say(word("cancelled"));
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
  }
}

export function startTraces() {
  document.addEventListener("change", (event) => {
    const box = event.target.closest("[data-trace]");
    if (!box || event.target.type !== "file" || !event.target.files.length) return;
    run(box.closest("form"), event.target.files[0]);
    event.target.value = ""; // The same file may be chosen again after a change of the form.
  });
}
