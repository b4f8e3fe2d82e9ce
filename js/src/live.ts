/** The entry for anywidget. A default export alone: anywidget warns about a named one. */
// The styles stand together, for gzip compares 32 KB: css with css.
import "./style.css";
import "./sheet.css";
import "./models.css";
import "./lab.css";
import "./watch/watch.css";
import "./watch/parts.css";
import { render } from "./widget";

export default { render };
