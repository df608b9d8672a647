// Uploads a trace of requests, follows the job that simulates it, and displays the result.
import { say, word } from "./say.js";

const OWN = { "X-Whichgpu": "1" };
const FIELDS = ["model", "gpu", "gpus", "seq_in", "seq_out", "ttft_max", "tpot_max", "precision", "engine"];

async function asked(address, options) {
  const reply = await fetch(address, options);
  const told = await reply.json();
  if (!reply.ok) throw new Error(told.error?.message ?? word("failed"));
  return told;
}

function line(body, name, value) {
  const row = body.insertRow();
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = name;
  row.append(head);
  row.insertCell().textContent = value;
}

const time = (seconds) => (seconds >= 1 ? `${seconds.toPrecision(3)} s` : `${(seconds * 1000).toPrecision(3)} ms`);

function show(answer) {
  const card = document.querySelector("#traced");
  const body = card.querySelector("tbody");
  body.replaceChildren();
  const serving = answer.serving;
  const load = serving?.load ?? { requests: 0, rate: 0 };
  card.querySelector("h2").textContent = answer.sentence ?? word("traced", {
    gpus: answer.request.gpus, gpu: answer.request.gpu, n: load.requests, rate: load.rate.toPrecision(3),
  });
  if (serving) {
    for (const metric of ["ttft", "tpot", "latency"]) {
      for (const [at, figure] of Object.entries(serving[metric])) {
        line(body, `${word(metric)}, ${at === "mean" ? word("mean") : at}`, time(figure.value));
      }
    }
    line(body, word("sustains"), word("rate", { rate: serving.sustainable_rate.value.toPrecision(3) }));
    line(body, word("throughput"), `${serving.throughput.value.toPrecision(4)} ${serving.throughput.unit}`);
  }
  for (const group of answer.groups ?? []) {
    line(body, `${group.gpus}× ${group.gpu_name}`, word("traced-group", {
      machine: `${group.provider} ${group.instance}`, rate: group.rate.toPrecision(3),
    }));
  }
  card.hidden = false;
  card.querySelector("h2").setAttribute("tabindex", "-1");
  card.querySelector("h2").focus();
}

async function run(box, file) {
  const course = box.querySelector(".course");
  const bar = course.querySelector("progress");
  const form = box.closest("form");
  course.hidden = false;
  bar.removeAttribute("value");
  try {
    const kind = file.name.endsWith(".csv") ? "text/csv" : file.name.endsWith(".txt") ? "text/plain" : "application/x-ndjson";
    const spoken = `?lang=${document.documentElement.lang}`;
    const kept = await asked(`/api/v1/uploads${spoken}`, { method: "POST", body: file, headers: { ...OWN, "Content-Type": kind } });
    const given = Object.fromEntries([...new FormData(form)].filter(([name, value]) => FIELDS.includes(name) && value !== ""));
    const estimate = box.dataset.trace === "estimate";
    if (estimate) Object.assign(given, { task: "serve", gpu: given.gpu ?? "H100 SXM" });
    else if (given.model) { given.what = [given.model]; delete given.model; }
    const question = { command: box.dataset.trace, ...given, trace: kept.id };
    const job = await asked(`/api/v1/jobs${spoken}`, {
      method: "POST", body: JSON.stringify(question), headers: { ...OWN, "Content-Type": "application/json" },
    });
    const events = new EventSource(job.events);
    course.querySelector("[data-cancel]").onclick = () => fetch(job.url, { method: "DELETE", headers: OWN });
    const over = async (good) => {
      events.close();
      course.hidden = true;
      if (!good) return say(word("failed"));
      show(await asked(`${job.url}/result`));
    };
    events.addEventListener("progress", (event) => { bar.value = JSON.parse(event.data).done; });
    events.addEventListener("done", () => over(true));
    events.addEventListener("failed", () => over(false));
    events.addEventListener("cancelled", () => over(false));
  } catch (problem) {
    course.hidden = true;
    const card = document.querySelector("#traced");
    card.querySelector("h2").textContent = problem.message;
    card.querySelector("tbody").replaceChildren();
    card.hidden = false;
    say(problem.message);
  }
}

export function startTraces() {
  document.addEventListener("change", (event) => {
    const box = event.target.closest("[data-trace]");
    if (box && event.target.type === "file" && event.target.files.length) run(box, event.target.files[0]);
  });
}
