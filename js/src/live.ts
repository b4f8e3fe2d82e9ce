/** The entry for anywidget. A default export alone: anywidget warns about a named one. */
// Like with like, for gzip compares 32 KB: all styles, then all that draws.
import "./style.css";
import "./sheet/sheet.css";
import "./models.css";
import "./lab/lab.css";
import "./watch/watch.css";
import "./watch/parts.css";
import "./watch/neurons";
import "./watch/gradient-flow";
import "./watch/bins-map";
import "./watch/depth-map";
import "./watch/curve";
import { render } from "./widget";

export default { render };
