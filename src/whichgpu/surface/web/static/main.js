// Wires the page up. Everything here is a convenience: without it forms go by GET and charts are pictures.
import { drawCharts } from "./charts.js";
import { startCopying } from "./copy.js";
import { startDays } from "./day.js";
import { startForms } from "./forms.js";
import { startSliders } from "./sliders.js";
import { startSorting } from "./sorting.js";
import { startTheme } from "./themes.js";
import { startTraces } from "./trace.js";

startTheme();
startCopying();
startSorting();
startForms();
startSliders();
startDays();
startTraces();
drawCharts();
