// Sliders of the fit page: each sets the number field next to it, and the bar chart is redrawn at once.
import { renew } from "./charts.js";
import { addressOf, show } from "./forms.js";

const STEPS = 4; // slider steps per doubling of the number

const toNumber = (range) => {
  const exact = Number(range.dataset.low) * 2 ** (Number(range.value) / STEPS);
  return exact < 16 ? Math.round(exact) : Math.round(exact / 8) * 8;
};
const toStep = (range, number) => Math.round(STEPS * Math.log2(Math.max(1, number) / Number(range.dataset.low)));

let turn = 0;
let settled = 0;

async function redraw(form) {
  const mine = ++turn;
  const began = performance.now();
  const address = addressOf(form);
  const query = address.includes("?") ? `${address.slice(address.indexOf("?"))}&quick=true` : "?quick=true";
  const reply = await fetch(`/fit.part${query}`);
  if (mine !== turn || !reply.ok) return;
  const part = await reply.json();
  if (mine !== turn) return;
  await renew("memory", part.charts.memory);
  performance.measure("slider", { start: began, end: performance.now() });
  document.querySelector("#bars")?.setAttribute("data-redrawn", String(Math.round(performance.now() - began)));
}

function wire(range) {
  const number = document.getElementById(range.dataset.for);
  const form = range.form;
  const follow = () => {
    range.value = String(toStep(range, Number(number.value) || Number(range.dataset.low)));
    range.setAttribute("aria-valuetext", number.value || String(toNumber(range)));
  };
  follow();
  range.addEventListener("input", () => {
    number.value = String(toNumber(range));
    range.setAttribute("aria-valuetext", number.value);
    redraw(form);
    clearTimeout(settled);
    settled = setTimeout(() => show(addressOf(form)), 500);
  });
  number.addEventListener("input", () => {
    follow();
    if (number.checkValidity() && number.value) {
      redraw(form);
      clearTimeout(settled);
      settled = setTimeout(() => show(addressOf(form)), 700);
    }
  });
}

export function startSliders() {
  const all = () => document.querySelectorAll(".slider input[type=range]:not([data-wired])").forEach((range) => {
    range.dataset.wired = "true";
    wire(range);
  });
  all();
  document.addEventListener("answered", all);
}
