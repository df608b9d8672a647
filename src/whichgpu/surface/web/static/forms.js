// Submits forms without a page load: the URL has the whole state, so the answer is fetched from the new URL and inserted.
import { drawCharts } from "./charts.js";
import { followPage, startCourse } from "./course.js";
import { say, word } from "./say.js";
import { startSorting } from "./sorting.js";

const WAIT = 600; // milliseconds after which the progress of an answer is displayed
let asked = 0;
let stopped = new AbortController();

// Returns the URL of a form's values, without empty fields, fields of other tasks and the default columns.
export function addressOf(form) {
  const pairs = [...new FormData(form)].filter(([, value]) => typeof value === "string" && value.trim() !== "");
  const task = form.querySelector('input[name="task"]:checked')?.value;
  const unused = new Set([...form.querySelectorAll("[data-only]")]
    .filter((field) => task && !field.dataset.only.split(" ").includes(task))
    .flatMap((field) => [...field.querySelectorAll("[name]")].map((input) => input.name)));
  const chooser = form.querySelector(".chooser");
  if (chooser && [...chooser.querySelectorAll("input")].every((box) => box.checked === box.hasAttribute("data-usual"))) {
    unused.add("columns");
  }
  const query = new URLSearchParams(pairs.filter(([name]) => !unused.has(name)));
  return form.getAttribute("action") + (query.size ? `?${query}` : "");
}

// Returns HTML as a document, without what is for browsers without scripts: a parsed image there would be fetched.
function parsed(html) {
  const page = new DOMParser().parseFromString(html, "text/html");
  page.querySelectorAll("noscript").forEach((part) => part.remove());
  return page;
}

async function pageAt(address, signal) {
  const reply = await fetch(address, { headers: { Accept: "text/html" }, signal });
  const kind = reply.headers.get("content-type") ?? "";
  if (!kind.startsWith("text/html")) throw new Error(address);
  return parsed(await reply.text());
}

function settle(part) {
  startSorting(part);
  drawCharts();
  say(word("updated"));
  document.dispatchEvent(new CustomEvent("answered"));
}

// Marks the invalid fields of the form as the page with the answer does, with what is wrong beneath each.
function markFields(found) {
  document.querySelectorAll("[data-wrong]").forEach((line) => line.remove());
  for (const line of found.querySelectorAll("[data-wrong]")) document.getElementById(`f-${line.dataset.wrong}`)?.after(line);
  for (const field of document.querySelectorAll("form:is(.ask, .filters) [id]")) {
    const fresh = found.getElementById(field.id);
    if (!fresh) continue;
    for (const name of ["aria-invalid", "aria-describedby"]) {
      if (fresh.hasAttribute(name)) field.setAttribute(name, fresh.getAttribute(name));
      else field.removeAttribute(name);
    }
    if (field.hasAttribute("aria-invalid") && field.closest("details")) field.closest("details").open = true;
  }
  showInvalid();
}

// Scrolls a long form to its first invalid field; the page itself stays where it is.
export function showInvalid() {
  const field = document.querySelector(".fields [aria-invalid=true]");
  const box = field?.closest(".fields");
  if (box) box.scrollTop += field.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
}

// Displays an answer that a job has rendered.
export function insert(html) {
  const answer = document.querySelector("#answer");
  answer.replaceChildren(...parsed(html).body.childNodes);
  settle(answer);
  answer.focus();
}

// Displays the answer of a URL; `whole` also replaces the form, as the back and forward buttons need.
export async function show(address, { whole = false, push = true } = {}) {
  const turn = ++asked;
  const answer = document.querySelector("#answer");
  document.dispatchEvent(new CustomEvent("asking"));
  stopped.abort();
  const stop = stopped = new AbortController();
  let end = () => {};
  const late = setTimeout(() => { end = followPage(address, () => stop.abort()); }, WAIT);
  answer.setAttribute("aria-busy", "true");
  try {
    const found = await pageAt(address, stop.signal);
    if (turn !== asked) return;
    const fresh = found.querySelector(whole ? "#main" : "#answer");
    if (push) history.pushState({}, "", address);
    document.title = found.title;
    const [choice, other] = [document, found].map((page) => page.querySelector("#languages"));
    if (choice && other) choice.replaceWith(other); // The new links lead to the new answer in other languages.
    const place = whole ? document.querySelector("#main") : answer;
    if (!whole) markFields(found);
    place.replaceChildren(...fresh.childNodes);
    settle(place);
    if (document.querySelector("#answer .problem")) reveal();
  } catch (problem) {
    if (turn === asked && stop.signal.aborted) say(word("cancelled"));
    if (stop.signal.aborted) return;
    say(word("failed"));
    location.assign(address);
  } finally {
    clearTimeout(late);
    end();
    if (turn === asked) document.querySelector("#answer")?.removeAttribute("aria-busy");
  }
}

// Scrolls up to the beginning of the answer if it is above the window or behind the header.
function reveal() {
  const answer = document.querySelector("#answer");
  if (answer.getBoundingClientRect().top < parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop)) answer.scrollIntoView();
}

// Displays that an answer is being computed on the way to another page, which may take seconds.
function startWaiting() {
  let timer = 0;
  let course = null;
  const end = () => {
    clearTimeout(timer);
    course?.end();
  };
  const cancel = () => {
    end();
    stop();
  };
  const wait = () => { timer = setTimeout(() => { course = startCourse(cancel); }, WAIT); };
  document.addEventListener("submit", (event) => event.target.matches("form[data-wait]") && wait());
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-wait] a") && !(event.metaKey || event.ctrlKey || event.shiftKey)) wait();
  });
  addEventListener("pageshow", (event) => event.persisted && end());
}

// Hides the form on a narrow screen after its answer has come.
function fold(form) {
  const box = document.querySelector("#fold");
  if (!box?.checked || !form.isConnected || !document.querySelector("label.fold").offsetParent) return;
  const answer = document.querySelector("#answer");
  box.checked = Boolean(answer.querySelector(".problem"));
  answer.focus({ preventScroll: true });
  answer.scrollIntoView();
}

// Displays the answer to a form, unless a listener prevents it and computes the answer itself.
export async function ask(form, options) {
  if (form.dispatchEvent(new CustomEvent("ask", { bubbles: true, cancelable: true }))) await show(addressOf(form), options);
}

export function startForms() {
  startWaiting();
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-ask], [data-basket]")) return;
    event.preventDefault();
    ask(form, { whole: form.matches("[data-basket]") }).then(() => {
      fold(form);
      reveal();
    });
  });
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-ask]");
    if (!form || event.target.closest(".slider")) return;
    if (event.target.matches("input[type=radio], select, input[type=checkbox], input[type=date]")) {
      const whole = event.target.name === form.dataset.whole;
      if (whole) show(addressOf(form), { whole });
      else ask(form);
    }
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-swap]");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    show(link.getAttribute("href"), { whole: true });
  });
  addEventListener("popstate", () => show(location.pathname + location.search, { whole: true, push: false }));
}
