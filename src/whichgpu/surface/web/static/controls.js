// Controls of a chart for the keyboard: which series is drawn, and the part of the axes. They do what a click on the legend, a
// drag and Ctrl with the wheel do, through the signals of Vega-Lite's selections (`usermeta` of the spec names their fields).
const SMALLER = 0.6; // share of an axis that remains after a step of the zoom
const SHIFT = 0.25; // share of the drawn part that a step moves
const STEPS = {
  in: [SMALLER, 0, 0], out: [1 / SMALLER, 0, 0],
  left: [1, -SHIFT, 0], right: [1, SHIFT, 0], up: [1, 0, -SHIFT], down: [1, 0, SHIFT],
};

// Returns the part of an axis after a step: its two ends in the axis' own values, also on logarithmic and time scales. The zoom
// leaves the middle of an axis where it is, and the start of one with stacked bars.
function part(scale, [share, right, down], axis, stacked) {
  const [start, end] = scale.range();
  const fixed = stacked ? start : (start + end) / 2;
  const shift = (axis === "x" ? right : down) * Math.abs(end - start);
  return [start, end].map((at) => Number(scale.invert(fixed + share * (at - fixed) + shift)));
}

const covers = ([low, high], [least, most]) => low <= least && high >= most;

// Adds the controls of a chart that has just been drawn; the server writes their places, labels and buttons.
export function startControls(name, spec, view) {
  const box = document.querySelector(`[data-controls="${name}"]`);
  const { series, zoom, stacked } = spec.usermeta ?? {};
  if (!box || !series) return;
  const ends = Object.fromEntries(Object.keys(zoom).map((axis) => [axis, view.scale(axis).domain().map(Number)]));

  for (const choice of box.querySelectorAll("select")) {
    const field = choice.dataset.series;
    const names = series[field] ?? [];
    choice.replaceChildren(choice.options[0], ...names.map((text) => new Option(text, text)));
    choice.value = "";
    choice.onchange = () => view.signal(`only_${field}_${field}_legend`, choice.value || null).runAsync();
    view.addDataListener(`only_${field}_store`, (_, chosen) => { choice.value = chosen.length === 1 ? chosen[0].values[0] : ""; });
  }

  const set = (parts) => {
    for (const [axis, field] of Object.entries(zoom)) view.signal(`zoom_${field}`, parts?.[axis] ?? null);
    return view.runAsync();
  };
  const moves = box.querySelector("[data-moves]");
  for (const move of moves.children) move.hidden = !zoom[STEPS[move.dataset.zoom][1] ? "x" : "y"];
  moves.hidden = true;
  view.addSignalListener("zoom", (_, parts) => { moves.hidden = Object.keys(parts ?? {}).length === 0; });
  box.onclick = ({ target }) => {
    const step = target.closest("button")?.dataset.zoom;
    if (!step) return;
    const parts = STEPS[step] && Object.fromEntries(
      Object.keys(zoom).map((axis) => [axis, part(view.scale(axis), STEPS[step], axis, stacked.includes(axis))]));
    const whole = !parts || (step === "out" && Object.keys(zoom).every((axis) => covers(parts[axis], ends[axis])));
    set(whole ? null : parts);
  };
}
