/** The script of a lesson's knobs: it finds its output as every view at rest does. */
import { knobs } from "./knobs";

const host = document.currentScript?.closest<HTMLElement>(".modlab-knobs");
if (host) knobs(host);
