/** Every field in place: what is missing or odd in what came becomes empty, and is never `undefined` further on. */

/** Puts the default in the place of whatever is missing or of another type, in the object itself: there may be many. */
export function filled<T extends object>(defaults: T, given: unknown): T {
  const made = (typeOf(given) === "object" ? given : {}) as T;
  for (const name in defaults) {
    const [type, wanted] = [typeOf(made[name]), typeOf(defaults[name])];
    if (type !== wanted && (wanted !== "null" || type === "undefined")) made[name] = defaults[name];
  }
  return made;
}

function typeOf(value: unknown): string {
  return Array.isArray(value) ? "array" : value === null ? "null" : typeof value;
}

export function list(given: unknown): unknown[] {
  return Array.isArray(given) ? given : [];
}
