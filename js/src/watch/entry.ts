/** The entry for a watch at rest: a classic script, self-contained, that an output carries with its payload. */
import { mountBy, offer } from "../mounting";
import { wake } from "./behind";
import { showWatch } from "./show";

export const mount = mountBy((place, bytes) => wake(place, bytes, showWatch(place, bytes)));
offer(mount, "+watch");
