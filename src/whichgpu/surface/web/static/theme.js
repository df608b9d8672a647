// Runs before the first paint: marks that scripts run, and sets the theme that was chosen last time.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* storage may be forbidden */ }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
})();
