// The switch between light and dark; the system's setting applies until the reader chooses.
export function startTheme() {
  const button = document.querySelector("#theme");
  const dark = () => {
    const own = document.documentElement.dataset.theme;
    return own ? own === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const tell = () => button.setAttribute("aria-pressed", String(dark()));
  button.addEventListener("click", () => {
    const theme = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("theme", theme); } catch { /* Without storage, the choice applies to this page only. */ }
    tell();
  });
  tell();
}
