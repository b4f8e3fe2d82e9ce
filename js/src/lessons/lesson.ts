/** The entry for a lesson's hidden widget. A default export alone: anywidget warns about a named one. */
import { initialize } from "./page";

export default { initialize, render() {} };
