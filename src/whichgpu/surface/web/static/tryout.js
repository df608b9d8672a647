// Forms of the page about the REST API: sends the request with the values that are filled in, and displays the reply.
const MOST = 20000; // characters of a reply that are displayed

async function send(form, ending) {
  const filled = [...new FormData(form)].filter(([, value]) => value.trim() !== "");
  const query = new URLSearchParams(filled);
  const url = form.getAttribute("action") + ending + (query.size ? `?${query}` : "");
  const [status, place] = [form.querySelector("[data-status]"), form.querySelector("[data-reply]")];
  status.textContent = `GET ${url}`;
  const start = performance.now();
  const reply = await fetch(url);
  const text = await reply.text();
  const seconds = ((performance.now() - start) / 1000).toFixed(2);
  status.textContent = `GET ${url} → ${reply.status}, ${seconds} s, ${text.length} B`;
  const isJson = reply.headers.get("content-type")?.startsWith("application/json");
  const shown = isJson ? JSON.stringify(JSON.parse(text), null, 2) : text;
  place.textContent = shown.length > MOST ? `${shown.slice(0, MOST)}\n…` : shown;
  place.hidden = false;
}

export function startTryOut() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-try]")) return;
    event.preventDefault();
    send(form, event.submitter?.value ?? "").catch((problem) => {
      form.querySelector("[data-status]").textContent = String(problem);
    });
  });
}
