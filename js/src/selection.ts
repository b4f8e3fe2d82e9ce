/** One selection for all views of a model on a page: a document event, so that views need not know each other. */

const EVENT = "modlab:select";

export interface Selected {
  model: string;
  /** The dotted name of a module. */
  path: string;
  /** The view that speaks; it does not listen to itself. */
  source: object;
}

export function tell(selected: Selected): void {
  if (selected.model) document.dispatchEvent(new CustomEvent<Selected>(EVENT, { detail: selected }));
}

/** Hears what the other views of `model` select; gives what ends it. */
export function hear(model: string, self: object, follow: (path: string) => void): () => void {
  const listener = (event: Event): void => {
    const { detail } = event as CustomEvent<Selected>;
    if (detail?.model === model && detail.source !== self && typeof detail.path === "string") follow(detail.path);
  };
  document.addEventListener(EVENT, listener);
  return () => document.removeEventListener(EVENT, listener);
}
