/** The script of a line's settings: it finds its output as every view at rest does. */
import { settings } from "./settings";

const host = document.currentScript?.closest<HTMLElement>(".modlab-settings");
if (host) settings(host);
