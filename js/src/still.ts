/** The entry for a tree, a state and values at rest: a classic script, self-contained, that an output carries with its payload. */
import { models } from "./models";
import { mountBy, offer } from "./mounting";
import { show } from "./view";

export const mount = mountBy((place, bytes) => show(place, bytes, [models]));
offer(mount);
