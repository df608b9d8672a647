// Adds event handlers to the page. Without scripts the page works too: forms are sent by GET and charts are SVG images.
import { drawCharts } from "./charts.js";
import { startCopying } from "./copy.js";
import { startDays } from "./day.js";
import { show, showInvalid, startForms } from "./forms.js";
import { startSliders } from "./sliders.js";
import { startSorting } from "./sorting.js";
import { startTheme } from "./themes.js";
import { startTraces } from "./trace.js";

startTheme();
startCopying();
startSorting();
startForms();
showInvalid();
startSliders();
startDays();
startTraces();
drawCharts();
if (document.querySelector("[data-try]")) import("./tryout.js").then(({ startTryOut }) => startTryOut());

// Parts that were not computed yet when the page was sent are fetched a little later.
const WAIT = 1500; // milliseconds
const renew = () => document.querySelector("[data-pending]") && setTimeout(() => show(location.pathname + location.search, { push: false }), WAIT);
document.addEventListener("answered", renew);
renew();
