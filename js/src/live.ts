/** The entry for anywidget. A default export alone: anywidget warns about a named one. */
import { render } from "./widget";

export default { render };
