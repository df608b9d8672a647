// Draws the page's Vega-Lite specs with the Vega bundle of this server, which is loaded only if the page has a chart.
import { startControls } from "./controls.js";
import { say, word } from "./say.js";

const [LEGEND_LEFT, LETTER, LEGEND_GAP] = [120, 7, 30]; // pixels beside the legend, of a letter, and between two entries
let bundle = null;
const views = new Map();

function vega() {
  bundle ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = document.documentElement.dataset.vega;
    script.onload = () => done(window.vegaEmbed);
    script.onerror = failed;
    document.head.append(script);
  });
  return bundle;
}

// Vega's own tooltip adds a style element, which the page's content security policy forbids, so this one replaces it.
function tip(handler, event, item, value) {
  let box = document.querySelector("#tip");
  if (!box) {
    box = document.createElement("div");
    box.id = "tip";
    document.body.append(box);
  }
  if (value === null || value === undefined || value === "") {
    box.hidden = true;
    return;
  }
  box.replaceChildren();
  for (const [name, text] of Object.entries(value)) {
    const line = document.createElement("div");
    const title = document.createElement("span");
    title.textContent = name;
    line.append(title, ` ${text}`);
    box.append(line);
  }
  box.hidden = false;
  const wide = box.offsetWidth + 16;
  const left = event.clientX + wide > innerWidth ? event.clientX - wide : event.clientX + 14;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, event.clientY - box.offsetHeight - 10)}px`;
}

export const specs = () => {
  const block = document.querySelector("#charts");
  return block ? JSON.parse(block.textContent) : {};
};

function sized(spec, place) {
  const width = Math.max(240, place.clientWidth);
  const narrow = width < 480;
  const names = [spec, ...(spec.layer ?? [])].flatMap((part) => part.encoding?.color?.scale?.domain ?? []);
  const longest = Math.max(1, ...names.map((name) => String(name).length));
  const room = Math.floor((width - LEGEND_LEFT) / (LETTER * longest + LEGEND_GAP));
  const most = narrow ? (longest > 14 ? 1 : 2) : Math.max(1, room); // columns of the legend
  const legend = { ...spec.config.legend, columns: narrow ? most : undefined, labelLimit: narrow ? 220 : 260 };
  const axis = { ...spec.config.axis, labelLimit: narrow ? 140 : 200 };
  const columns = (value) => (narrow ? most : Math.min(value, most));
  const fitting = JSON.parse(JSON.stringify(spec), (key, value) => (key === "columns" ? columns(value) : value));
  return { ...fitting, width, config: { ...spec.config, legend, axis } };
}

export async function draw(name, spec) {
  const place = document.querySelector(`[data-chart="${name}"]`);
  if (!place) return;
  try {
    const embed = await vega();
    const made = await embed(place, sized(spec, place), {
      ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: tip, mode: "vega-lite",
    });
    views.get(name)?.finalize();
    views.set(name, made);
    startControls(name, spec, made.view);
    place.dataset.drawn = "true";
    place.dataset.width = String(place.clientWidth);
  } catch (problem) {
    place.textContent = word("no-chart");
    say(word("no-chart"));
    console.warn(problem);
  }
}

// Replaces the data of a chart that is already drawn, which is much faster than drawing it again.
export async function renew(name, spec) {
  const made = views.get(name);
  const layers = spec.layer ?? [];
  const sets = layers.map((layer) => layer.data).filter((data) => data?.name && data.values);
  const alike = made && JSON.stringify(made.spec.layer.map((layer) => layer.encoding.color?.scale)) ===
    JSON.stringify(layers.map((layer) => layer.encoding.color?.scale));
  if (!alike || !sets.length) return draw(name, spec);
  for (const data of sets) made.view.data(data.name, data.values);
  await made.view.runAsync();
}

export async function drawCharts() {
  const all = specs();
  for (const [name, spec] of Object.entries(all)) await draw(name, spec);
}

let waiting = 0;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const all = specs();
    for (const place of document.querySelectorAll("[data-chart][data-drawn]")) {
      if (place.dataset.width !== String(place.clientWidth)) draw(place.dataset.chart, all[place.dataset.chart]);
    }
  }, 150);
});
