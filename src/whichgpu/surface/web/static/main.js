// Adds event handlers to the page. Without scripts the page works too: forms are sent by GET and charts are SVG images.
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
