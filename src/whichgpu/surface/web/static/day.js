// 24 sliders for the traffic of each hour of a day, kept in step with a text field of comma-separated numbers.
const SHAPES = {
  office: [1, 1, 1, 1, 1, 2, 4, 8, 14, 18, 20, 20, 17, 19, 20, 18, 15, 11, 7, 5, 4, 3, 2, 1],
  evening: [6, 4, 2, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 9, 10, 12, 15, 18, 20, 20, 16, 10],
  flat: Array(24).fill(10),
};

function wire(box) {
  const field = document.getElementById(box.dataset.day);
  const bars = [...box.querySelectorAll("input[type=range]")];
  const follow = () => {
    const numbers = field.value.split(",").map(Number).filter((number) => Number.isFinite(number));
    if (numbers.length < 2) return;
    const most = Math.max(...numbers) || 1;
    bars.forEach((bar, hour) => {
      bar.value = String(Math.round((20 * (numbers[hour % numbers.length] ?? 0)) / most));
    });
  };
  const spell = () => {
    field.value = bars.map((bar) => bar.value).join(",");
    field.dispatchEvent(new Event("change", { bubbles: true }));
  };
  field.addEventListener("input", follow);
  bars.forEach((bar) => bar.addEventListener("input", spell));
  box.querySelectorAll("[data-shape]").forEach((button) => button.addEventListener("click", () => {
    SHAPES[button.dataset.shape].forEach((value, hour) => { bars[hour].value = String(value); });
    spell();
    field.form.requestSubmit();
  }));
  follow();
}

export function startDays() {
  const all = () => document.querySelectorAll("[data-day]:not([data-wired])").forEach((box) => {
    box.dataset.wired = "true";
    wire(box);
  });
  all();
  document.addEventListener("answered", all);
}
