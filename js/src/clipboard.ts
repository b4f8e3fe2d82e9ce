/** Copying text, also where the page has no secure context (a JupyterLab over plain http). */

export async function copy(text: string, near: ShadowRoot | Document): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text, near);
  }
}

function copyBySelection(text: string, near: ShadowRoot | Document): boolean {
  const focused = near.activeElement as HTMLElement | null;
  const field = document.createElement("textarea");
  field.value = text;
  field.style.cssText = "position:fixed;opacity:0";
  (near instanceof Document ? near.body : near).append(field);
  field.select();
  const done = typeof document.execCommand === "function" && document.execCommand("copy");
  field.remove();
  focused?.focus({ preventScroll: true });
  return done;
}
