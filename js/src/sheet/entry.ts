/** The entry for a sheet at rest: a classic script, self-contained, that an output carries with its payload. */
import { mountBy, offer } from "../mounting";
import { sheets } from "./views";
import { show } from "../view";

export const mount = mountBy((place, bytes) => show(place, bytes, [sheets]));
offer(mount, "+sheet");
